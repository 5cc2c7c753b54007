"""How a message stops: softly, with a closing turn, or at once."""

from dataclasses import replace

from roundelay.names import SoftStop, Status
from roundelay_worker.loop.effects import Note
from roundelay_worker.loop.history import Exchange, Result
from roundelay_worker.loop.moves import Step, settled_error, stay, untold
from roundelay_worker.loop.state import Asking, CallState, Ended, Failure, Running, State
from roundelay_worker.loop.summary import summary
from roundelay_worker.loop.texts import NOT_EXECUTED, phrases

_SECOND_THOUGHTS = 256
"""Output tokens below which a closing turn is not worth asking for."""


def soft_stop(state: State, reason: SoftStop, now: float) -> Step:
    """Answer what is open, and ask for one closing turn; if there is no time left for it, end with a summary."""
    settled = settle(state, reason)
    if now >= state.deadline:
        return end_by_summary(settled, reason, now)
    attempt = settled.stage.attempt if isinstance(settled.stage, Asking) else 0
    closing = replace(settled, stage=Asking(attempt=attempt, closing=reason))
    return stay(closing, Note("round_started", round=closing.round, code=reason))


def limit_closing(state: State, stage: Asking, estimate: int, now: float) -> Step | None:
    """Fit a closing turn into the tokens that are left; None if it fits, a step to the summary if it cannot."""
    most = state.limits.max_total_tokens
    if most is None or stage.closing is None:
        return None
    left = most - state.spent.tokens - estimate
    return end_by_summary(state, stage.closing, now) if left < _SECOND_THOUGHTS else None


def settle(state: State, why: str) -> State:
    """Give every open call a result that says what is known; ``why`` is a key of ``NOT_EXECUTED``.

    A request that is under way is given up; what it costs stays untold.
    """
    match state.stage:
        case Running():
            results = tuple(_settled(call, why) for call in state.stage.calls)
            ran = any(call.status != "requested" for call in state.stage.calls)
            exchange = Exchange(state.stage.turn, results)
            grown = (*state.sequence, exchange)
            return replace(state, stage=Asking(), sequence=grown, rounds=state.rounds + ran, streak=0)
        case Asking(begun=True):
            return replace(state, stage=replace(state.stage, begun=False), spent=untold(state.spent))
        case _:
            return state


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


def end(state: State, status: Status, text: str, now: float, failure: Failure | None = None) -> Step:
    """End the message; ``text`` must not be blank."""
    ended = replace(state, stage=Ended(status=status, text=text, finished_at=now, failure=failure), repairs=())
    return stay(ended, Note("ended"))


def end_by_summary(state: State, reason: SoftStop, now: float) -> Step:
    """End a soft stop with the local summary, for want of a closing turn."""
    return end(state, reason, summary(state, reason, "go_on"), now)


def fail(state: State, failure: Failure, now: float) -> Step:
    """End as failed, with the local summary of what was done."""
    settled = settle(state, "failed")
    return end(settled, "failed", summary(settled, "failed", "try_again"), now, failure)


def cancel(state: State, now: float) -> Step:
    """End as cancelled, with what was done so far, if anything."""
    settled = settle(state, "cancelled")
    text = summary(settled, "cancelled", "go_on") if settled.sequence else phrases(state.language)["cancelled"]
    return end(settled, "cancelled", text, now)


def refuse(state: State, note: str, now: float) -> Step:
    """End as refused: the same request again would be refused again."""
    failure = Failure("refused", f"The model or its provider declined to answer ({note or 'no reason given'}).")
    return end(state, "refused", phrases(state.language)["refused"], now, failure)
