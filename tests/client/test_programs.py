"""The programs and shared readers alone: no Redis, no thread, a clock of our own."""

import contextvars
import threading
import time

import pytest
import redis.exceptions as theirs
import sqlalchemy as sa
from sqlalchemy.orm import Session

from roundelay.errors import AnswerTimeout, MessageNotFound, ServiceUnavailable, Unreachable
from roundelay.faults import translate
from roundelay.feeds import BUFFER, Board, Feed, Read, reading
from roundelay.following import Follow, Tracker, decide
from roundelay.hub import IDLE_SECONDS, Pause
from roundelay.looks import Look
from roundelay.ops import Ask, Came, Hear, Rouse, Say, advance
from roundelay.patience import LIMIT_AWAY, Patience
from roundelay.sql import _now
from roundelay.tickets import Desk, Notice, Ping, Receive, Subscribe, Ticket, Unsubscribe, listening
from roundelay.updates import MessageState
from roundelay.waiting import Wait
from roundelay.within import within


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def update(seq: int, kind: str = "round_started") -> bytes:
    return f'{{"kind": "{kind}", "at": "2026-01-01T00:00:00Z", "message_id": "m", "seq": {seq}}}'.encode()


def entries(*seqs: int):
    return [((seq, 0), update(seq)) for seq in seqs]


def join(board: Board, cursor: int) -> Feed:
    feed = Feed("s", threading.Event())
    board.join(feed, (cursor, 0))
    return feed


def test_a_feed_that_joins_at_an_earlier_place_is_not_brought_what_was_read_from_a_later_one():
    board = Board("p")
    ahead = join(board, 10)
    request = board.request()
    behind = join(board, 5)

    board.deliver(request, {"s": entries(11)})

    assert [place for place, _ in board.take(ahead)[0]] == [(11, 0)]
    assert board.take(behind) == ([], False)
    assert board.request().streams["s"] == (5, 0)


def test_a_feed_is_brought_nothing_twice():
    board = Board("p")
    feed = join(board, 0)
    request = board.request()
    board.deliver(request, {"s": entries(1, 2)})
    board.deliver(request, {"s": entries(1, 2, 3)})

    assert [place[0] for place, _ in board.take(feed)[0]] == [1, 2, 3]


def test_a_slow_feed_is_parted_alone_and_its_buffer_is_dropped():  # rule 16
    board = Board("p")
    slow, quick = join(board, 0), join(board, 0)
    for seq in range(1, BUFFER + 2):
        board.deliver(board.request(), {"s": entries(seq)})
        assert len(board.take(quick)[0]) == 1

    assert board.take(slow) == ([], True)
    assert board.take(quick) == ([], False)
    board.leave(quick)
    (wake,) = board.request().streams
    assert wake.startswith("p:wake:"), "nothing is read for those who left"


def test_a_lost_connection_parts_every_feed_and_the_reader_tries_again():
    board = Board("p")
    board.claim()
    feed = join(board, 3)
    reader = reading(board)
    assert isinstance(next(reader), Read)

    assert reader.throw(Unreachable("away")) == Pause(0.05)

    assert board.take(feed) == ([], True)
    assert feed.bell.is_set()
    assert isinstance(reader.send(None), Read)
    assert reader.throw(Unreachable("away")) == Pause(0.1)


def test_a_reader_retires_when_nobody_needs_it_and_the_next_one_starts_another():
    clock = Clock()
    board = Board("p", clock)
    assert board.claim() is True
    assert board.claim() is False
    feed = join(board, 0)
    reader = reading(board)
    next(reader)
    clock.now += IDLE_SECONDS * 2
    assert isinstance(reader.send(None), Read), "somebody follows"
    board.leave(feed)
    clock.now += IDLE_SECONDS + 1

    with pytest.raises(StopIteration):
        reader.send(None)

    assert board.claim() is True


def test_a_reader_after_one_that_retired_subscribes_the_wake_channel_too():
    clock = Clock()
    desk = Desk("p", clock)
    desk.claim()
    first = listening(desk)
    (subscribed,) = (op.channels for op in [next(first)] if isinstance(op, Subscribe))
    first.send(None)
    clock.now += IDLE_SECONDS + 1
    with pytest.raises(StopIteration):
        first.send(Notice("message", subscribed[0]))

    desk.claim()

    assert next(listening(desk)) == Subscribe(subscribed), "its connection is another one"


def test_a_channel_left_and_asked_for_again_counts_as_subscribed_only_after_the_last_confirmation():
    desk = Desk("p")
    first = Ticket("c", threading.Event())
    desk.watch(first)
    desk.changes()
    desk.leave(first)
    desk.changes()
    again = Ticket("c", threading.Event())
    desk.watch(again)
    desk.changes()

    desk.take(Notice("subscribe", "c"))
    assert not again.bell.is_set()
    desk.take(Notice("subscribe", "c"))
    assert again.bell.is_set()


def test_a_second_ticket_for_a_subscribed_channel_knows_at_once():
    desk = Desk("p")
    desk.watch(Ticket("c", threading.Event()))
    desk.changes()
    desk.take(Notice("subscribe", "c"))
    second = Ticket("c", threading.Event())

    desk.watch(second)

    assert second.bell.is_set()
    assert desk.changes() == []


def test_a_connection_that_answers_no_ping_is_given_up_and_all_channels_are_subscribed_again():
    desk = Desk("p")
    desk.claim()
    ticket = Ticket("c", threading.Event())
    desk.watch(ticket)
    listener = listening(desk)
    subscribed = next(listener)
    assert isinstance(subscribed, Subscribe)
    assert isinstance(listener.send(None), Receive)
    assert listener.send(None) == Ping()
    assert isinstance(listener.send(None), Receive)

    assert isinstance(listener.send(None), Pause)

    assert listener.send(None) == subscribed


def test_a_channel_nobody_watches_is_unsubscribed():
    desk = Desk("p")
    ticket = Ticket("c", threading.Event())
    desk.watch(ticket)
    desk.changes()
    desk.leave(ticket)

    assert desk.changes() == [Unsubscribe(("c",))]


def test_a_wait_bears_with_a_redis_that_is_away_until_its_time_is_over():
    clock = Clock()
    wait = Wait(Patience("p", "m", 30.0, clock), Desk("p"), threading.Event()).run()
    assert isinstance(next(wait), Rouse)

    with pytest.raises(ServiceUnavailable) as caught:
        _run_without_redis(wait, clock)

    assert not isinstance(caught.value, Unreachable)
    assert clock.now == pytest.approx(130)


def _run_without_redis(program, clock):
    came = Came()
    while True:
        match advance(program, came):
            case Ask():
                came = Came(error=Unreachable("Redis cannot be reached"))
            case Hear() as hear:
                clock.now += hear.timeout
                came = Came()


def test_a_wait_without_timeout_gives_up_when_redis_was_away_for_long():
    clock = Clock()
    patience = Patience("p", "m", None, clock)
    patience.bear(Unreachable("away"))
    clock.now += LIMIT_AWAY + 1

    with pytest.raises(ServiceUnavailable):
        patience.bear(Unreachable("away"))


def test_time_over_while_redis_is_away_tells_the_state_known_last():
    clock = Clock()
    patience = Patience("p", "m", 5.0, clock)
    assert isinstance(patience.timed_out(), MessageNotFound)
    patience.state = MessageState(message_id="m", conversation_id="c", status="running")
    clock.now += 6

    with pytest.raises(AnswerTimeout) as caught:
        patience.bear(Unreachable("away"))

    assert caught.value.state.status == "running"


RUNNING = MessageState(message_id="m", conversation_id="c", status="running", seq=4)
ENDED = MessageState(message_id="m", conversation_id="c", status="answered", seq=4)


@pytest.mark.parametrize(
    ("look", "was_known", "course"),
    [
        (Look(state=RUNNING, tail=(9, 0)), True, "listen"),
        (Look(state=ENDED, tail=(9, 0), tail_ends=True), True, "listen"),
        (Look(state=ENDED, tail=(4, 0), tail_ends=True), True, "done"),
        (Look(state=ENDED, tail=(4, 0)), True, "restore"),
        (Look(state=ENDED), True, "restore"),
        (Look(state=RUNNING), True, "restore"),
        (Look(state=RUNNING.model_copy(update={"seq": 0})), True, "listen"),
        (Look(), True, "restore"),
        (Look(), False, "unknown"),
    ],
)
def test_a_follower_decides_by_what_is_left_of_the_message(look, was_known, course):
    assert decide(look, Tracker("m", 4), was_known=was_known) == course


def test_a_tracker_says_nothing_after_the_end_and_nothing_of_what_it_cannot_read():
    tracker = Tracker("m")

    said = list(
        tracker.take([((1, 0), update(1)), ((2, 0), b"\xff"), ((3, 0), update(3, "ended")), ((4, 0), update(4))])
    )

    assert [(one.kind, one.missing) for one in said] == [("round_started", None), ("gap", (2, 2)), ("ended", None)]


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (theirs.OutOfMemoryError("OOM secret"), False),
        (theirs.AuthenticationError("secret"), False),
        (theirs.NoPermissionError("secret"), False),
        (theirs.ReadOnlyError("secret"), False),
        (theirs.ResponseError("MISCONF secret"), False),
        (theirs.BusyLoadingError("secret"), True),
        (theirs.TimeoutError("secret"), True),
        (theirs.ConnectionError("redis://:secret@h"), True),
        (OSError("secret"), True),
    ],
)
def test_errors_of_redis_become_ours_and_show_nothing(error, passes):
    ours = translate(error)

    assert isinstance(ours, Unreachable) is passes
    assert "secret" not in str(ours)


def test_an_unforeseen_refusal_names_its_code():
    assert "MISCONF" in str(translate(theirs.ResponseError("MISCONF Redis is configured to save")))


def test_a_bounded_call_returns_raises_and_gives_up_in_the_callers_context():
    variable = contextvars.ContextVar("variable", default="unset")
    variable.set("mine")
    assert within(5, variable.get) == "mine"
    with pytest.raises(ZeroDivisionError):
        within(5, lambda: 1 // 0)
    with pytest.raises(TimeoutError, match="its own"):
        within(5, _time_out)
    started_at, release = time.monotonic(), threading.Event()
    with pytest.raises(Unreachable):
        within(0.1, release.wait)
    assert time.monotonic() - started_at < 2
    release.set()


def _time_out():
    raise TimeoutError("its own")


def test_on_postgresql_the_database_dates_an_outbox_row():
    engine = sa.create_engine("postgresql+asyncpg://h/d")

    assert "clock_timestamp" in str(_now(Session(engine)))


def test_a_follower_that_saw_an_update_does_not_take_an_emptied_redis_for_an_unknown_message():
    follow = Follow(Patience("p", "m", 30.0, Clock()), 0, Board("p"), threading.Event()).run()
    assert isinstance(next(follow), Ask)
    assert isinstance(follow.send(entries(1)), Say)
    assert isinstance(follow.send(None), Rouse)
    assert isinstance(follow.send(None), Ask)

    hint = follow.send(Look())

    assert hint.words == ("PUBLISH", "p:control", "restore m")


def test_a_thread_serves_one_call_after_the_other_and_a_hanging_call_holds_up_none():
    hangs = threading.Event()
    with pytest.raises(Unreachable):
        within(0.01, lambda: hangs.wait(10))

    first = within(5, threading.get_ident)
    idents = {within(5, threading.get_ident) for _ in range(20)}
    hangs.set()

    assert idents == {first}
    assert first != threading.get_ident()
