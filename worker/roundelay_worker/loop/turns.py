"""Asking for turns: what an attempt may cost, what a reply means, what a failure leads to."""

from dataclasses import replace
from typing import Final, assert_never

from roundelay.names import SoftStop
from roundelay_worker.loop.calls import next_round, repeats, skip_repeated
from roundelay_worker.loop.effects import AskModel, Note
from roundelay_worker.loop.events import AttemptBegan, TurnArrived, TurnFailed
from roundelay_worker.loop.history import Exchange, Finish, Result, Turn
from roundelay_worker.loop.moves import Step, stay, then, turn_ended, untold
from roundelay_worker.loop.replies import kept_text, only_announces
from roundelay_worker.loop.state import Asking, CallPlan, CallState, Failure, Running, State, ToolWords
from roundelay_worker.loop.stops import end_by_summary, end_with_turn, fail, give_up, refuse, soft_stop
from roundelay_worker.loop.texts import NOT_EXECUTED, phrases

_FIRST_BACKOFF = 0.5
_LONGEST_BACKOFF = 8.0
"""Seconds; the curve of the providers' own SDKs: 0.5 s x 2^n up to 8 s, with jitter."""
_LEAST_CLOSING = 256
"""Output tokens below which a closing turn is not worth asking for."""


def wanted(state: State, stage: Asking) -> AskModel:
    """Return the request that is due, or under way."""
    most = state.limits.max_output_tokens * (2 if stage.doubled and state.limits.may_double else 1)
    return AskModel(
        round=state.round,
        attempt=stage.attempt,
        begun=stage.begun,
        max_output_tokens=most if stage.room is None else min(most, stage.room),
        closing=stage.closing,
        nudge=stage.nudge,
        due_at=stage.due_at,
    )


def begin_attempt(state: State, stage: Asking, event: AttemptBegan) -> Step:
    """Let an attempt begin, unless time or tokens forbid it; its number is used up all the same."""
    if event.round != state.round or event.attempt <= stage.attempt:
        return Step(state)
    state = _with_vanished(state, stage, event)
    stage = replace(stage, attempt=event.attempt, begun=False)
    state = replace(state, stage=stage)
    if event.now >= (state.soft_deadline if stage.closing is None else state.deadline):
        return _forbidden(state, stage, "timed_out", event.now)
    left = _tokens_left(state, event.estimate)
    least = wanted(state, stage).max_output_tokens if stage.closing is None else _LEAST_CLOSING
    if left is not None and left < least:
        return _forbidden(state, stage, "token_limit", event.now)
    return _begun(state, stage, event.estimate, left)


def _with_vanished(state: State, stage: Asking, event: AttemptBegan) -> State:
    """Count the attempts that were allowed since, and of which nothing was heard: they may have been sent."""
    if stage.begun:
        state = give_up(state, stage)
    for _ in range(event.attempt - stage.attempt - 1):
        spent = replace(state.spent, model_calls=state.spent.model_calls + 1)
        state = untold(replace(state, spent=spent), _reservation(state, stage, event.estimate))
    return state


def _reservation(state: State, stage: Asking, estimate: int) -> int:
    limited = state.limits.max_total_tokens is not None
    return estimate + wanted(state, stage).max_output_tokens if limited else 0


def _tokens_left(state: State, estimate: int) -> int | None:
    most = state.limits.max_total_tokens
    return None if most is None else most - state.spent.tokens - state.reserved - estimate


def _forbidden(state: State, stage: Asking, reason: SoftStop, now: float) -> Step:
    if stage.closing is not None:
        return end_by_summary(state, stage.closing, now)
    return soft_stop(state, reason, now)


def _begun(state: State, stage: Asking, estimate: int, left: int | None) -> Step:
    begun = replace(stage, begun=True, due_at=None, room=None if stage.closing is None else left)
    begun = replace(begun, reserved=_reservation(state, begun, estimate))
    spent = replace(state.spent, model_calls=state.spent.model_calls + 1)
    return stay(replace(state, stage=begun, spent=spent))


def read_turn(state: State, stage: Asking, event: TurnArrived) -> Step:
    """Decide what a reply means."""
    if not stage.begun or (event.round, event.attempt) != (state.round, stage.attempt):
        return Step(state)
    reserved = stage.reserved
    stage = replace(stage, begun=False, reserved=0)
    state = _charged(replace(state, stage=stage, tools=_known_tools(state, event)), event.turn, reserved)
    if event.model and event.model not in state.models:
        state = replace(state, models=(*state.models, event.model))
    if stage.closing is not None:
        return _close(state, stage, stage.closing, event.turn, event.now)
    return _read(state, stage, event)


def _known_tools(state: State, event: TurnArrived) -> tuple[ToolWords, ...]:
    known = {tool.name for tool in state.tools}
    return (*state.tools, *(tool for tool in dict.fromkeys(event.tools) if tool.name not in known))


def _charged(state: State, turn: Turn, reserved: int) -> State:
    usage, spent = turn.usage, state.spent
    if usage is None:
        return untold(state, reserved)
    told = replace(
        spent,
        input_tokens=spent.input_tokens + usage.input_tokens,
        output_tokens=spent.output_tokens + usage.output_tokens,
        cached_tokens=spent.cached_tokens + usage.cached_tokens,
        reasoning_tokens=spent.reasoning_tokens + usage.reasoning_tokens,
    )
    return replace(state, spent=told)


def _read(state: State, stage: Asking, event: TurnArrived) -> Step:
    turn = event.turn
    match turn.finish:
        case "refused":
            return refuse(state, turn, event.now)
        case "cut":
            return _cut(state, stage, turn, event.now)
        case "overflow":
            return _failed(state, stage, _OVERFLOW, event.now, 0.0)
        case "malformed":
            return _discard(state, stage, "malformed_reply", event.now)
        case "unknown":
            return _discard(state, stage, "unknown_finish", event.now)
        case "paused" if not turn.calls:
            return _pause(state, turn, event.now)
        case "complete" | "paused":
            return _usable(state, stage, turn, event)
        case _ as never:
            assert_never(never)


_OVERFLOW = Failure("context_overflow", "The model's context window was exceeded.", repair="shrink")


def _usable(state: State, stage: Asking, turn: Turn, event: TurnArrived) -> Step:
    if turn.calls:
        return _called(state, turn, event.plans, event.now)
    if not _is_seen(turn.text):
        return _discard(state, stage, "empty_reply", event.now)
    return end_with_turn(state, "answered", turn.text, event.now)


def _is_seen(text: str) -> bool:
    """Say whether a person would see anything: spaces without width and control characters show nothing."""
    return any(char.isprintable() and not char.isspace() for char in text)


def _called(state: State, turn: Turn, plans: tuple[CallPlan, ...], now: float) -> Step:
    if state.rounds >= state.limits.max_rounds:
        return _stopped(state, turn, "round_limit", now)
    repeated = state.streak > state.limits.repeat_limit and repeats(state, turn)
    if repeated and state.streak > state.limits.repeat_limit + 1:
        return _stopped(state, turn, "no_progress", now)
    if repeated:
        return skip_repeated(state, turn)
    return stay(replace(state, stage=Running(turn, tuple(CallState(plan) for plan in plans))))


def _stopped(state: State, turn: Turn, reason: SoftStop, now: float) -> Step:
    unexecuted = stay(_unexecuted(state, turn, reason), turn_ended(state, is_round=False))
    return then(unexecuted, soft_stop(unexecuted.state, reason, now))


def _unexecuted(state: State, turn: Turn, why: str) -> State:
    results = (Result(NOT_EXECUTED[why], outcome="not_executed"),) * len(turn.calls)
    return replace(state, stage=Asking(), sequence=(*state.sequence, Exchange(turn, results)))


def _pause(state: State, turn: Turn, now: float) -> Step:
    if state.rounds >= state.limits.max_rounds:
        return _stopped(state, turn, "round_limit", now)
    return next_round(state, Exchange(turn), 0)


def _cut(state: State, stage: Asking, turn: Turn, now: float) -> Step:
    if not turn.cut_call and (kept := kept_text(turn.text)):
        return end_with_turn(state, "token_limit", f"{kept}\n\n{phrases(state.language)['cut']}", now)
    if stage.doubled:
        return soft_stop(state, "token_limit", now)
    again = replace(stage, doubled=True, nudge="reply_cut")
    return stay(replace(state, stage=again), _retrying(state, stage, "reply_cut", 0.0))


def _discard(state: State, stage: Asking, code: str, now: float) -> Step:
    if stage.discards >= state.limits.discards:
        return fail(state, Failure(code, _DISCARDED[code]), now)
    delay = _FIRST_BACKOFF * stage.discards
    again = replace(stage, discards=stage.discards + 1, nudge=code, due_at=now + delay)
    return _again(state, again, _retrying(state, stage, code, delay), now)


_DISCARDED = {
    "empty_reply": "The model answered with nothing, again and again.",
    "malformed_reply": "The model's replies could not be read, again and again.",
    "unknown_finish": "The model's replies ended in a way that is not known, again and again.",
}


def _close(state: State, stage: Asking, reason: SoftStop, turn: Turn, now: float) -> Step:
    if turn.finish == "complete" and not turn.calls and _is_seen(turn.text) and not only_announces(turn.text):
        return end_with_turn(state, reason, turn.text, now)
    if turn.finish == "cut" and not turn.cut_call and (kept := kept_text(turn.text)):
        return end_with_turn(state, reason, f"{kept}\n\n{phrases(state.language)['cut']}", now)
    if turn.finish == "overflow":
        return _failed(state, stage, _OVERFLOW, now, 0.0)
    final = bool(turn.calls) or turn.finish in {"refused", "paused"}
    if final or _attempts_used(stage) >= state.limits.closing_attempts:
        return end_by_summary(state, reason, now)
    again = replace(stage, discards=stage.discards + 1)
    if turn.finish == "cut":
        again = replace(again, doubled=True, nudge="reply_cut")
    return _again(state, again, _retrying(state, stage, _UNUSABLE.get(turn.finish, "empty_reply"), 0.0), now)


_UNUSABLE: Final[dict[Finish, str]] = {"cut": "reply_cut", "malformed": "malformed_reply", "unknown": "unknown_finish"}
"""What a reply that is asked for again is called by how it ended; one that ended well was empty."""


def _attempts_used(stage: Asking) -> int:
    return stage.failures + stage.discards + 1


def fail_turn(state: State, stage: Asking, event: TurnFailed) -> Step:
    """Decide what a failed attempt leads to: a repaired request, a later attempt, or the end."""
    if not stage.begun or (event.round, event.attempt) != (state.round, stage.attempt):
        return Step(state)
    reserved = stage.reserved if event.failure.code in _COSTLY else 0
    stage = replace(stage, begun=False, reserved=0)
    state = replace(state, stage=stage)
    state = untold(state, reserved) if event.sent else _never_sent(state)
    return _failed(state, stage, event.failure, event.now, event.jitter)


def _never_sent(state: State) -> State:
    return replace(state, spent=replace(state.spent, model_calls=state.spent.model_calls - 1))


_COSTLY: Final = frozenset({"model_stalled", "model_timeout", "reply_cut_off"})
"""Failures of a reply that was being written, and is billed; a request that was turned away costs nothing."""


def _failed(state: State, stage: Asking, failure: Failure, now: float, jitter: float) -> Step:
    if failure.repair and failure.repair not in state.repairs:
        return _repaired(state, stage, failure)
    delay = _delay(stage, failure, jitter)
    if stage.closing is not None:
        return _closing_failed(state, stage, stage.closing, failure, now, delay)
    if not failure.retryable or stage.failures + 1 >= state.limits.model_attempts:
        return fail(state, failure, now)
    if _too_long(state, failure):
        asked = f"The provider asked to wait {failure.delay:.0f} s, longer than max_retry_delay allows."
        return fail(state, Failure(failure.code, asked, delay=failure.delay), now)
    return _retry(state, stage, failure.code, now, delay)


def _too_long(state: State, failure: Failure) -> bool:
    return failure.delay is not None and failure.delay > state.limits.max_retry_delay


def _repaired(state: State, stage: Asking, failure: Failure) -> Step:
    repaired = replace(state, repairs=(*state.repairs, failure.repair))
    return stay(repaired, _retrying(state, stage, failure.code, 0.0))


def _closing_failed(state: State, stage: Asking, reason: SoftStop, failure: Failure, now: float, delay: float) -> Step:
    worth_it = failure.retryable and not _too_long(state, failure)
    if not worth_it or _attempts_used(stage) >= state.limits.closing_attempts:
        return end_by_summary(state, reason, now)
    return _retry(state, stage, failure.code, now, delay)


def _retry(state: State, stage: Asking, code: str, now: float, delay: float) -> Step:
    again = replace(stage, failures=stage.failures + 1, due_at=now + delay)
    return _again(state, again, _retrying(state, stage, code, delay), now)


def _again(state: State, again: Asking, note: Note, now: float) -> Step:
    """Ask again, unless the pause would outlast the time that is left."""
    due_at = again.due_at if again.due_at is not None else now
    if again.closing is not None and due_at >= state.deadline:
        return end_by_summary(state, again.closing, now)
    waiting = stay(replace(state, stage=again), note)
    if again.closing is None and due_at >= state.soft_deadline:
        return then(waiting, soft_stop(waiting.state, "timed_out", now))
    return waiting


def _delay(stage: Asking, failure: Failure, jitter: float) -> float:
    """Return the pause before another attempt: our own, or the server's wish if that is longer.

    A wish is spread, too: many messages that were turned away together must not come back at one instant.
    """
    backoff = float(min(_FIRST_BACKOFF * 2**stage.failures, _LONGEST_BACKOFF) * (1 - jitter / 2))
    return backoff if failure.delay is None else max(backoff, failure.delay * (1 + jitter / 4))


def _retrying(state: State, stage: Asking, code: str, delay: float) -> Note:
    return Note("retrying", turn=state.round, attempt=stage.attempt, code=code, delay=round(delay, 3))
