"""How a message stops: softly, with a closing turn, or at once."""

from collections.abc import Iterator
from dataclasses import replace

from roundelay.names import SoftStop, Status
from roundelay_worker.loop.effects import Note
from roundelay_worker.loop.history import Exchange, Result, Turn
from roundelay_worker.loop.moves import Step, settled_error, stay, then, turn_ended, turn_started, untold
from roundelay_worker.loop.state import Asking, CallState, Ended, Failure, Running, State
from roundelay_worker.loop.summary import summary
from roundelay_worker.loop.surrogates import readable
from roundelay_worker.loop.texts import NOT_EXECUTED, farewell, phrases


def soft_stop(state: State, reason: SoftStop, now: float) -> Step:
    """Answer what is open, and ask for one closing turn; if there is no time left for it, end with a summary."""
    settled = settle(state, reason)
    if now >= state.deadline:
        return then(settled, end_by_summary(settled.state, reason, now))
    stage = settled.state.stage
    attempt = stage.attempt if isinstance(stage, Asking) else 0
    closing = replace(settled.state, stage=Asking(attempt=attempt, closing=reason))
    return then(settled, stay(closing, turn_started(closing)))


def settle(state: State, why: str) -> Step:
    """Give every open call a result that says what is known; ``why`` is a key of ``NOT_EXECUTED``."""
    match state.stage:
        case Running():
            return _settle_calls(state, state.stage, why)
        case Asking(begun=True):
            return stay(give_up(state, state.stage))
        case _:
            return Step(state)


def give_up(state: State, stage: Asking) -> State:
    """Return ``state`` without the request that is under way; what that costs stays untold."""
    return untold(replace(state, stage=replace(stage, begun=False, reserved=0)), stage.reserved)


def _settle_calls(state: State, running: Running, why: str) -> Step:
    exchange = Exchange(running.turn, tuple(_settled(call, why) for call in running.calls))
    settled = replace(state, stage=Asking(), sequence=(*state.sequence, exchange))
    if all(call.status == "requested" for call in running.calls):
        return stay(settled, turn_ended(state, is_round=False))
    ended = turn_ended(state, is_round=True)
    return stay(replace(settled, rounds=state.rounds + 1), *_broken_off(state, running), ended)


def _broken_off(state: State, running: Running) -> Iterator[Note]:
    for position, call in enumerate(running.calls):
        if call.status in {"started", "in_doubt"}:
            tool = running.turn.calls[position].name
            yield Note("tool_finished", turn=state.round, round=state.rounds + 1, tool=tool, call=position, ok=False)


def _settled(call: CallState, why: str) -> Result:
    if call.result is not None:
        return call.result
    if call.status == "requested":
        return Result(NOT_EXECUTED[why], outcome="not_executed")
    cause = "cancelled by user" if why == "cancelled" else "interrupted"
    if call.plan.effect == "read":
        return settled_error("interrupted", f"The call was {cause} before it brought a result.", "done")
    text = f"The call had begun and was {cause}; whether it took effect is unknown."
    return settled_error("outcome_unknown", text, "unknown")


def end_with_turn(state: State, status: Status, text: str, now: float) -> Step:
    """End the message with the turn that has just come."""
    over = stay(state, turn_ended(state, is_round=False))
    return then(over, end(over.state, status, text, now))


def end(state: State, status: Status, text: str, now: float, failure: Failure | None = None) -> Step:
    """End the message; ``text`` must not be blank."""
    ended = Ended(status=status, text=readable(text), finished_at=now, failure=failure)
    return stay(replace(state, stage=ended, repairs=()), Note("ended"))


def end_by_summary(state: State, reason: SoftStop, now: float) -> Step:
    """End a soft stop with the local summary, for want of a closing turn."""
    return end(state, reason, summary(state, reason, "go_on"), now)


def fail(state: State, failure: Failure, now: float) -> Step:
    """End as failed, with the local summary of what was done."""
    settled = settle(state, "failed")
    text = summary(settled.state, "failed", farewell(failure.code))
    return then(settled, end(settled.state, "failed", text, now, failure))


def cancel(state: State, now: float) -> Step:
    """End as cancelled, with what was done so far, if anything."""
    settled = settle(state, "cancelled")
    said = settled.state
    text = summary(said, "cancelled") if said.sequence else phrases(said.language)["cancelled"]
    return then(settled, end(said, "cancelled", text, now))


def refuse(state: State, turn: Turn, now: float) -> Step:
    """End as refused, in the model's own words if it spoke, with what was done before.

    The same request again would be refused again.
    """
    failure = Failure("refused", f"The model or its provider declined to answer ({turn.note or 'no reason given'}).")
    headline = turn.text.strip() or phrases(state.language)["refused"]
    return end(state, "refused", summary(state, headline) if state.sequence else headline, now, failure)
