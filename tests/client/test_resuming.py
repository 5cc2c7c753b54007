"""Text that comes in pieces: whoever appends what comes has it once, whatever was cut, retried or read again."""

import pytest

from roundelay._core.follow import Tracker
from roundelay.updates import TextDelta, TextReset, TurnStarted

AT = "2026-01-01T00:00:00Z"


def delta(text, offset, *, turn=1, attempt=1):
    update = TextDelta(at=AT, message_id="m", turn=turn, attempt=attempt, text=text, offset=offset)
    return update.to_json().encode()


def reset(*, turn=1, attempt=2):
    return TextReset(at=AT, message_id="m", turn=turn, attempt=attempt).to_json().encode()


def shown(updates, page=""):
    """Return what a page shows that appends deltas and forgets at a reset."""
    for update in updates:
        match update:
            case TextDelta():
                page += update.text
            case TextReset():
                page = ""
    return page


def durable(seq):
    return (seq, 0), TurnStarted(at=AT, message_id="m", seq=seq, turn=seq).to_json().encode()


BEFORE = [durable(1), durable(2)]
HELLO = [((2, 1), delta("Hel", 0)), ((2, 2), delta("lo, ", 3)), ((2, 3), delta("world", 7))]


def test_a_reader_that_resumes_gets_a_reset_before_the_text_that_it_may_have_shown():
    page = shown(Tracker("m").take([*BEFORE, *HELLO[:2]]))
    assert page == "Hello, "

    again = list(Tracker("m", 2).take(HELLO))

    assert isinstance(again[0], TextReset)
    assert (again[0].turn, again[0].attempt, again[0].seq) == (1, 1, None)
    assert shown(again, page) == "Hello, world"


def test_a_reader_that_begins_gets_none():
    assert [update.kind for update in Tracker("m").take([*BEFORE, *HELLO])][2:] == ["text_delta"] * 3


def test_text_of_a_later_turn_needs_no_reset():
    tracker = Tracker("m", 2)

    said = list(tracker.take([((2, 1), delta("a", 0)), durable(3), ((3, 1), delta("b", 0, turn=2))]))

    assert [update.kind for update in said] == ["text_reset", "text_delta", "turn_started", "text_delta"]


@pytest.mark.parametrize("with_reset", [True, False])
def test_another_attempt_begins_anew_even_if_its_reset_was_lost(with_reset):
    again = [durable(3), *([((3, 1), reset())] if with_reset else [])]
    entries = [*BEFORE, *HELLO, *again, ((3, 2), delta("Good", 0, attempt=2)), ((3, 3), delta("bye", 4, attempt=2))]

    said = list(Tracker("m").take(entries))

    assert shown(said) == "Goodbye"
    assert [update.kind for update in said].count("text_reset") == 1


def test_pieces_that_overlap_are_told_once():
    twice = [*HELLO, ((2, 4), delta("Hello, world", 0)), ((2, 5), delta("world!", 7))]

    said = list(Tracker("m", 1).take([durable(2), *twice]))

    assert shown(said) == "Hello, world!"
    assert (said[-1].text, said[-1].offset) == ("!", 12)


@pytest.mark.services
def test_a_page_that_reconnects_again_and_again_shows_the_text_once(client, worker):
    job = client.submit("one")
    worker.update(job, 1)
    page, text = "", "It is forty-two, said the deep voice."
    for place in range(0, len(text), 5):
        worker.delta(job, 1, place + 1, text[place : place + 5], offset=place)
        updates = job.follow(after=1, timeout=5)
        while len(page) < place + len(text[place : place + 5]):
            page = shown([next(updates)], page)
        updates.close()

    assert page == text
