"""The programs and shared readers alone: no Redis, no thread, a clock of our own."""

import contextvars
import threading
import time

import pytest
import redis.exceptions as theirs
import sqlalchemy as sa
from sqlalchemy.orm import Session

from roundelay._core.bounded_calls import call_within
from roundelay._core.deadline import LIMIT_AWAY, Deadline
from roundelay._core.follow import BUFFER, Follow, Read, StreamCursor, StreamCursors, Tracker, decide, reading
from roundelay._core.operations import Command, Emit, Reply, WaitFor, WakeReader, advance
from roundelay._core.redis_commands import Snapshot
from roundelay._core.redis_connections import translate
from roundelay._core.shared_reader import IDLE_SECONDS, Pause
from roundelay._core.wait import (
    Notice,
    Ping,
    Receive,
    Subscribe,
    Subscription,
    Subscriptions,
    Unsubscribe,
    Wait,
    listening,
)
from roundelay.errors import AnswerTimeout, MessageNotFound, ServiceUnavailable, Unreachable
from roundelay.sql import _now
from roundelay.updates import MessageState


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


ANSWER = (
    '{"message_id": "m", "conversation_id": "c", "status": "answered", "text": "hi", '
    '"finished_at": "2026-01-01T00:00:00Z"}'
)


def update(seq: int, kind: str = "turn_started") -> bytes:
    place = f'"at": "2026-01-01T00:00:00Z", "message_id": "m", "seq": {seq}, "turn": 1'
    return f'{{"kind": "{kind}", {place}, "answer": {ANSWER}}}'.encode()


def entries(*seqs: int):
    return [((seq, 0), update(seq)) for seq in seqs]


def join(cursors: StreamCursors, after: int) -> StreamCursor:
    cursor = StreamCursor("s", threading.Event())
    cursors.join(cursor, (after, 0))
    return cursor


def test_a_cursor_that_joins_at_an_earlier_place_is_not_brought_what_was_read_from_a_later_one():
    cursors = StreamCursors("p")
    ahead = join(cursors, 10)
    request = cursors.request()
    behind = join(cursors, 5)

    cursors.deliver(request, {"s": entries(11)})

    assert [place for place, _ in cursors.take(ahead)[0]] == [(11, 0)]
    assert cursors.take(behind) == ([], False)
    assert cursors.request().streams["s"] == (5, 0)


def test_a_cursor_is_brought_nothing_twice():
    cursors = StreamCursors("p")
    cursor = join(cursors, 0)
    request = cursors.request()
    cursors.deliver(request, {"s": entries(1, 2)})
    cursors.deliver(request, {"s": entries(1, 2, 3)})

    assert [place[0] for place, _ in cursors.take(cursor)[0]] == [1, 2, 3]


def test_a_slow_cursor_is_detached_alone_and_its_buffer_is_dropped():  # rule 16
    cursors = StreamCursors("p")
    slow, quick = join(cursors, 0), join(cursors, 0)
    for seq in range(1, BUFFER + 2):
        cursors.deliver(cursors.request(), {"s": entries(seq)})
        assert len(cursors.take(quick)[0]) == 1

    assert cursors.take(slow) == ([], True)
    assert cursors.take(quick) == ([], False)
    cursors.leave(quick)
    (wake,) = cursors.request().streams
    assert wake.startswith("p:wake:"), "nothing is read for those who left"


def test_a_lost_connection_parts_every_feed_and_the_reader_tries_again():
    cursors = StreamCursors("p")
    cursors.claim()
    cursor = join(cursors, 3)
    reader = reading(cursors)
    assert isinstance(next(reader), Read)

    assert reader.throw(Unreachable("away")) == Pause(0.05)

    assert cursors.take(cursor) == ([], True)
    assert cursor.signal.is_set()
    assert isinstance(reader.send(None), Read)
    assert reader.throw(Unreachable("away")) == Pause(0.1)


def test_a_reader_retires_when_nobody_needs_it_and_the_next_one_starts_another():
    clock = Clock()
    cursors = StreamCursors("p", clock)
    assert cursors.claim() is True
    assert cursors.claim() is False
    cursor = join(cursors, 0)
    reader = reading(cursors)
    next(reader)
    clock.now += IDLE_SECONDS * 2
    assert isinstance(reader.send(None), Read), "somebody follows"
    cursors.leave(cursor)
    clock.now += IDLE_SECONDS + 1

    with pytest.raises(StopIteration):
        reader.send(None)

    assert cursors.claim() is True


def test_a_reader_after_one_that_retired_subscribes_the_wake_channel_too():
    clock = Clock()
    subscriptions = Subscriptions("p", clock)
    subscriptions.claim()
    first = listening(subscriptions)
    (subscribed,) = (op.channels for op in [next(first)] if isinstance(op, Subscribe))
    first.send(None)
    clock.now += IDLE_SECONDS + 1
    with pytest.raises(StopIteration):
        first.send(Notice("message", subscribed[0]))

    subscriptions.claim()

    assert next(listening(subscriptions)) == Subscribe(subscribed), "its connection is another one"


def test_a_channel_left_and_asked_for_again_counts_as_subscribed_only_after_the_last_confirmation():
    subscriptions = Subscriptions("p")
    first = Subscription("c", threading.Event())
    subscriptions.watch(first)
    subscriptions.changes()
    subscriptions.leave(first)
    subscriptions.changes()
    again = Subscription("c", threading.Event())
    subscriptions.watch(again)
    subscriptions.changes()

    subscriptions.take(Notice("subscribe", "c"))
    assert not again.signal.is_set()
    subscriptions.take(Notice("subscribe", "c"))
    assert again.signal.is_set()


def test_a_second_ticket_for_a_subscribed_channel_knows_at_once():
    subscriptions = Subscriptions("p")
    subscriptions.watch(Subscription("c", threading.Event()))
    subscriptions.changes()
    subscriptions.take(Notice("subscribe", "c"))
    second = Subscription("c", threading.Event())

    subscriptions.watch(second)

    assert second.signal.is_set()
    assert subscriptions.changes() == []


def test_a_connection_that_answers_no_ping_is_given_up_and_all_channels_are_subscribed_again():
    subscriptions = Subscriptions("p")
    subscriptions.claim()
    subscription = Subscription("c", threading.Event())
    subscriptions.watch(subscription)
    listener = listening(subscriptions)
    subscribed = next(listener)
    assert isinstance(subscribed, Subscribe)
    assert isinstance(listener.send(None), Receive)
    assert listener.send(None) == Ping()
    assert isinstance(listener.send(None), Receive)

    assert isinstance(listener.send(None), Pause)

    assert listener.send(None) == subscribed


def test_a_channel_nobody_watches_is_unsubscribed():
    subscriptions = Subscriptions("p")
    subscription = Subscription("c", threading.Event())
    subscriptions.watch(subscription)
    subscriptions.changes()
    subscriptions.leave(subscription)

    assert subscriptions.changes() == [Unsubscribe(("c",))]


def test_a_wait_bears_with_a_redis_that_is_away_until_its_time_is_over():
    clock = Clock()
    wait = Wait(Deadline("p", "m", 30.0, clock), Subscriptions("p"), threading.Event()).run()
    assert isinstance(next(wait), WakeReader)

    with pytest.raises(ServiceUnavailable) as caught:
        _run_without_redis(wait, clock)

    assert not isinstance(caught.value, Unreachable)
    assert clock.now == pytest.approx(130)


def _run_without_redis(program, clock):
    reply = Reply()
    while True:
        match advance(program, reply):
            case Command():
                reply = Reply(error=Unreachable("Redis cannot be reached"))
            case WaitFor() as hear:
                clock.now += hear.timeout
                reply = Reply()


def test_a_wait_without_timeout_gives_up_when_redis_was_away_for_long():
    clock = Clock()
    deadline = Deadline("p", "m", None, clock)
    deadline.tolerate(Unreachable("away"))
    clock.now += LIMIT_AWAY + 1

    with pytest.raises(ServiceUnavailable):
        deadline.tolerate(Unreachable("away"))


def test_time_over_while_redis_is_away_tells_the_state_known_last():
    clock = Clock()
    deadline = Deadline("p", "m", 5.0, clock)
    assert isinstance(deadline.timed_out(), ServiceUnavailable), "nothing is known yet, not even that it is unknown"
    deadline.is_filled = True
    assert isinstance(deadline.timed_out(), MessageNotFound)
    deadline.state = MessageState(message_id="m", conversation_id="c", status="running")
    clock.now += 6

    with pytest.raises(AnswerTimeout) as caught:
        deadline.tolerate(Unreachable("away"))

    assert caught.value.state.status == "running"


RUNNING = MessageState(message_id="m", conversation_id="c", status="running", seq=4)
ENDED = MessageState(message_id="m", conversation_id="c", status="answered", seq=4)


@pytest.mark.parametrize(
    ("look", "was_known", "course"),
    [
        (Snapshot(state=RUNNING, tail=(9, 0)), True, "listen"),
        (Snapshot(state=ENDED, tail=(9, 0), tail_ends=True), True, "listen"),
        (Snapshot(state=ENDED, tail=(4, 0), tail_ends=True), True, "done"),
        (Snapshot(state=ENDED, tail=(4, 0)), True, "restore"),
        (Snapshot(state=ENDED), True, "restore"),
        (Snapshot(state=RUNNING), True, "restore"),
        (Snapshot(state=RUNNING.model_copy(update={"seq": 0})), True, "listen"),
        (Snapshot(), True, "restore"),
        (Snapshot(), False, "unknown"),
    ],
)
def test_a_follower_decides_by_what_is_left_of_the_message(look, was_known, course):
    assert decide(look, Tracker("m", 4), was_known=was_known) == course


def test_a_tracker_says_nothing_after_the_end_and_nothing_of_what_it_cannot_read():
    tracker = Tracker("m")

    said = list(
        tracker.take([((1, 0), update(1)), ((2, 0), b"\xff"), ((3, 0), update(3, "ended")), ((4, 0), update(4))])
    )

    assert [one.kind for one in said] == ["turn_started", "gap", "ended"]
    assert said[1].missing == (2, 2)


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (theirs.OutOfMemoryError("OOM secret"), False),
        (theirs.AuthenticationError("secret"), False),
        (theirs.NoPermissionError("secret"), False),
        (theirs.ReadOnlyError("secret"), True),
        (theirs.MasterDownError("secret"), True),
        (theirs.ClusterDownError("secret"), True),
        (theirs.ResponseError("UNBLOCKED force unblock from blocking operation, instance state changed"), True),
        (theirs.ResponseError("BUSY Redis is busy running a script"), True),
        (theirs.ResponseError("NOREPLICAS Not enough good replicas to write."), True),
        (theirs.ResponseError("ERR Error running script (call to f_1): @user_script:3: -READONLY secret"), True),
        (theirs.ResponseError("WRONGTYPE Operation against a key holding the wrong kind of value"), False),
        (ValueError("secret"), True),
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
    assert call_within(5, variable.get) == "mine"
    with pytest.raises(ZeroDivisionError):
        call_within(5, lambda: 1 // 0)
    with pytest.raises(TimeoutError, match="its own"):
        call_within(5, _time_out)
    started_at, release = time.monotonic(), threading.Event()
    with pytest.raises(Unreachable):
        call_within(0.1, release.wait)
    assert time.monotonic() - started_at < 2
    release.set()


def _time_out():
    raise TimeoutError("its own")


def test_on_postgresql_the_database_dates_an_outbox_row():
    engine = sa.create_engine("postgresql+asyncpg://h/d")

    assert "clock_timestamp" in str(_now(Session(engine)))


def test_a_follower_that_saw_an_update_does_not_take_an_emptied_redis_for_an_unknown_message():
    follow = Follow(Deadline("p", "m", 30.0, Clock()), 0, StreamCursors("p"), threading.Event()).run()
    assert isinstance(next(follow), Command)
    assert isinstance(follow.send(entries(1)), Emit)
    assert isinstance(follow.send(None), WakeReader)
    assert isinstance(follow.send(None), Command)

    hint = follow.send(Snapshot())

    assert hint.words == ("PUBLISH", "p:control", "restore m")


def test_a_thread_serves_one_call_after_the_other_and_a_hanging_call_holds_up_none():
    hangs = threading.Event()
    with pytest.raises(Unreachable):
        call_within(0.01, lambda: hangs.wait(10))

    first = call_within(5, threading.get_ident)
    idents = {call_within(5, threading.get_ident) for _ in range(20)}
    hangs.set()

    assert idents == {first}
    assert first != threading.get_ident()
