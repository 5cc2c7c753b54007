"""The rules of the loop, as a pure function.

``step(state, event)`` says what follows from an event, ``todo(state)`` what is to be done now. No clock, no
I/O, no randomness: times and random numbers come in with events.

A message moves through four stages::

    Queued ──Started──► Asking ◄──────────────────────────────┐
      │                   │  ▲ failed attempt, discarded reply │
      │                   │  └── again, after a pause          │ the last result: one more round
      │                   ├──TurnArrived with calls──► Running ┘
      │                   ├──TurnArrived with text────► Ended
      └──Condemned, CancelAsked──► Ended ◄── from any stage

* A turn is judged by its content: calls are run whatever the stop reason says, unless the reply was cut.
* ``max_rounds`` caps the rounds; the turn after the last may still answer. If it asks for tools, its calls are
  answered unexecuted, and a closing turn is asked for. A closing turn that brings no text is replaced by a
  summary that needs no model.
* Reads of a turn run side by side, a write alone. A call that had begun when its executor was lost is in doubt:
  reads and idempotent writes run again, another write never, unless its tool says that it was not done and the old
  executor is known dead. A message that ends before tells of what stayed in doubt.
* Events come at least once, late, and out of order. One that does not fit the state any more changes nothing.

The laws that hold for every state are tests: see ``tests/loop``.
"""

from dataclasses import replace
from typing import assert_never

from roundelay_worker.loop import calls, stops, turns
from roundelay_worker.loop.effects import Effect, Note, Start
from roundelay_worker.loop.events import (
    AttemptBegan,
    CallFinished,
    CallStarted,
    CallVerified,
    CancelAsked,
    Condemned,
    Event,
    OwnerLost,
    Started,
    TimePassed,
    TurnArrived,
    TurnFailed,
)
from roundelay_worker.loop.moves import Step, stay, turn_started
from roundelay_worker.loop.state import Asking, Ended, Queued, Running, State


def todo(state: State) -> tuple[Effect, ...]:
    """Return what is to be done now; nothing once ended, and nothing while calls run that others wait for."""
    match state.stage:
        case Queued():
            return (Start(),)
        case Asking():
            return (turns.wanted(state, state.stage),)
        case Running():
            return calls.next_calls(state, state.stage)
        case Ended():
            return ()
        case _ as never:
            assert_never(never)


def step(state: State, event: Event) -> Step:
    """Return what follows from ``event``; an event that does not fit any more changes nothing."""
    if isinstance(state.stage, Ended):
        return Step(state)
    match event:
        case CancelAsked():
            return stops.cancel(state, event.now)
        case Condemned():
            return stops.fail(state, event.failure, event.now)
        case TimePassed():
            return _look_at_clock(state, event.now)
        case Started():
            return _start(state, event)
        case OwnerLost():
            return _lose_owner(state)
        case AttemptBegan() | TurnArrived() | TurnFailed():
            return _asking(state, event)
        case CallStarted() | CallFinished() | CallVerified():
            return _running(state, event)
        case _ as never:
            assert_never(never)


def _start(state: State, event: Started) -> Step:
    if not isinstance(state.stage, Queued):
        return Step(state)
    begun = replace(
        state,
        stage=Asking(),
        limits=event.limits,
        language=event.language,
        started_at=event.now,
        soft_deadline=event.now + event.message_timeout - event.closing_reserve,
        deadline=event.now + event.message_timeout,
    )
    return stay(begun, Note("started"), turn_started(begun))


def _look_at_clock(state: State, now: float) -> Step:
    stage = state.stage
    if isinstance(stage, Asking) and stage.closing is not None:
        return stops.soft_stop(state, stage.closing, now) if now >= state.deadline else Step(state)
    return stops.soft_stop(state, "timed_out", now) if now >= state.soft_deadline else Step(state)


def _lose_owner(state: State) -> Step:
    match state.stage:
        case Running():
            return stay(calls.doubt(state, state.stage))
        case Asking(begun=True):
            return stay(stops.give_up(state, state.stage))
        case _:
            return Step(state)


def _asking(state: State, event: AttemptBegan | TurnArrived | TurnFailed) -> Step:
    stage = state.stage
    if not isinstance(stage, Asking):
        return Step(state)
    match event:
        case AttemptBegan():
            return turns.begin_attempt(state, stage, event)
        case TurnArrived():
            return turns.read_turn(state, stage, event)
        case TurnFailed():
            return turns.fail_turn(state, stage, event)
        case _ as never:
            assert_never(never)


def _running(state: State, event: CallStarted | CallFinished | CallVerified) -> Step:
    stage = state.stage
    if not isinstance(stage, Running) or event.round != state.round or event.position >= len(stage.calls):
        return Step(state)
    match event:
        case CallStarted():
            return calls.start_call(state, stage, event)
        case CallFinished():
            return calls.finish_call(state, stage, event)
        case CallVerified():
            return calls.verify_call(state, stage, event)
        case _ as never:
            assert_never(never)
