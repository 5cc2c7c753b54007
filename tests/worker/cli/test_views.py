"""What a person sees: progress while waiting, and the timeline afterwards."""

from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

from roundelay import Answer, Update, Usage
from roundelay_worker.cli.drawing import drawn, lines
from roundelay_worker.cli.progress import Progress
from roundelay_worker.cli.timeline import Span, spans

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


ANSWER = Answer(message_id="m", conversation_id="c", status="answered", text="Done.", finished_at=BEGAN)


def update(kind: str, at: float = 0.0, **more: Any) -> Update:
    return Update.model_validate({"kind": kind, "at": BEGAN + timedelta(seconds=at), "message_id": "m", **more})


def numbered(*updates: Update) -> list[Update]:
    return [one.model_copy(update={"seq": seq}) for seq, one in enumerate(updates, 1)]


TWO_ROUNDS = numbered(
    update("accepted"),
    update("started", 0.5),
    update("turn_started", 0.5, turn=1, attempt=1),
    update("retrying", 1.0, turn=1, attempt=1, code="rate_limited", delay=1.0),
    update("tool_started", 3.0, turn=1, round=1, call=0, tool="search"),
    update("tool_finished", 5.0, turn=1, round=1, call=0, tool="search", ok=True, seconds=2.0),
    update("tool_finished", 5.0, turn=1, round=1, call=1, tool="calculator", ok=False, seconds=1.0),
    update("turn_ended", 5.0, turn=1, round=1, usage=Usage(input_tokens=10, output_tokens=5)),
    update("turn_started", 5.0, turn=2, attempt=1),
    update("turn_ended", 6.0, turn=2, usage=Usage(input_tokens=30, output_tokens=9)),
    update("ended", 6.0, answer=ANSWER),
)


def test_the_timeline_has_the_wait_each_turn_and_each_call_with_its_time():
    assert spans(TWO_ROUNDS) == [
        Span("wait", "waiting", 0.0, 0.5),
        Span("turn", "turn 1", 0.5, 3.0, "again after rate_limited, 10 + 5 tokens so far"),
        Span("call", "  search", 3.0, 5.0),
        Span("call", "  calculator", 4.0, 5.0, "failed"),
        Span("turn", "turn 2", 5.0, 6.0, "30 + 9 tokens so far"),
    ]


def test_a_turn_of_which_nothing_ran_ends_where_the_next_is_asked_for():
    at_the_cap = numbered(
        update("accepted"),
        update("turn_started", 1.0, turn=6, attempt=1),
        update("turn_started", 3.0, turn=7, closing="round_limit"),
        update("ended", 4.0, answer=ANSWER),
    )

    assert spans(at_the_cap)[1:] == [
        Span("turn", "turn 6", 1.0, 3.0),
        Span("turn", "closing turn", 3.0, 4.0, "round limit"),
    ]


def test_progress_calls_the_closing_turn_by_what_it_closes_and_not_a_round():
    stream = StringIO()
    progress = Progress(stream, clock=lambda: 0.0)

    progress.show(update("turn_started", turn=12, closing="round_limit"))
    progress.show(update("retrying", turn=12, attempt=1, code="empty_reply", delay=0.0))

    assert stream.getvalue().splitlines() == [
        "[  0.0 s] closing (round limit): asking the model",
        "[  0.0 s] closing (round limit): empty_reply; asking again in 0 s",
    ]


def test_updates_out_of_order_and_provisional_ones_change_nothing():
    delta = update("text_delta", 2.5, turn=1, text="Hel", offset=0)

    assert spans([delta, *reversed(TWO_ROUNDS)]) == spans(TWO_ROUNDS)


def test_what_still_runs_has_no_end():
    found = spans(TWO_ROUNDS[:5])

    assert found[-1] == Span("call", "  search", 3.0, None)
    assert "running" in list(drawn(found, now=10.0))[-1]


def test_bars_lie_on_one_scale_within_their_frame():
    bars = [line.split("|")[1] for line in drawn(spans(TWO_ROUNDS))]

    assert {len(bar) for bar in bars} == {30}
    assert all("#" in bar for bar in bars)
    assert bars[2].index("#") == 15
    assert bars[-1].rstrip().endswith("#")


def test_a_message_without_any_update_has_no_timeline():
    assert spans([]) == []
    assert list(drawn([])) == []


def test_show_names_what_was_not_done_and_ends_with_the_answer():
    answer = Answer(
        message_id="m",
        conversation_id="c",
        status="round_limit",
        text="That far.",
        rounds=2,
        undone=[{"name": "pay"}],  # type: ignore[arg-type]
        uncertain=[{"name": "send"}],  # type: ignore[arg-type]
        finished_at=BEGAN,
    )

    shown = list(lines(TWO_ROUNDS, answer))

    assert "round limit: 2 rounds" in "\n".join(shown)
    assert shown[-3:] == ["not executed: pay", "unknown outcome: send", "That far."]


def test_progress_elsewhere_than_on_a_terminal_is_one_line_a_step():
    stream = StringIO()
    progress = Progress(stream, clock=lambda: 0.0)

    for one in (*TWO_ROUNDS[:7], update("text_delta", text="x", offset=0, turn=1)):
        progress.show(one)

    assert stream.getvalue().splitlines() == [
        "[  0.0 s] accepted",
        "[  0.0 s] turn 1: asking the model",
        "[  0.0 s] turn 1: rate_limited; asking again in 1 s",
        "[  0.0 s] round 1: running search",
        "[  0.0 s] round 1: search done after 2.0 s",
        "[  0.0 s] round 1: calculator failed after 1.0 s",
    ]


def test_a_tools_own_word_is_shown_behind_its_name():
    stream = StringIO()

    Progress(stream, clock=lambda: 0.0).show(update("tool_progress", turn=1, call=0, tool="search", text="halfway"))

    assert stream.getvalue() == "[  0.0 s] round 1: search: halfway\n"


def test_progress_on_a_terminal_rewrites_one_line_and_takes_it_away():
    stream = Terminal()
    progress = Progress(stream, clock=lambda: 0.0)
    for one in (
        update("tool_started", turn=2, round=2, call=0, tool="search"),
        update("tool_started", turn=2, round=2, call=1, tool="calculator"),
        update("tool_finished", turn=2, round=2, call=0, tool="search", ok=True),
    ):
        progress.show(one)
    progress.close()

    shown = stream.getvalue().split("\r\x1b[K")
    assert "running search, calculator" in shown[2]
    assert "running calculator" in shown[3]
    assert "\n" not in stream.getvalue()
    assert shown[-1] == ""
