"""Running the calls of a turn: order, barriers, results, and turns that repeat themselves."""

import json
from dataclasses import replace

from roundelay_worker.loop.effects import Note, RunCall, VerifyCall
from roundelay_worker.loop.events import CallFinished, CallStarted, CallVerified
from roundelay_worker.loop.history import Call, Exchange, Result, Turn
from roundelay_worker.loop.moves import Step, settled_error, stay, turn_ended, turn_started
from roundelay_worker.loop.state import Asking, CallPlan, CallState, Running, State
from roundelay_worker.loop.texts import NOT_EXECUTED, REPEAT_NOTE


def next_calls(state: State, running: Running) -> tuple[RunCall | VerifyCall, ...]:
    """Return the calls that may begin now: a run of reads side by side, a write or a doubtful call alone."""
    first = next(i for i, call in enumerate(running.calls) if call.status != "done")
    call = running.calls[first]
    if call.status == "in_doubt" and not call.plan.repeatable:
        return (VerifyCall(state.round, first),)
    if call.plan.effect == "write":
        return () if call.status == "started" else (RunCall(state.round, first),)
    window = _reads_from(running, first)
    free = state.limits.parallel_reads - sum(running.calls[i].status == "started" for i in window)
    waiting = [i for i in window if running.calls[i].status in {"requested", "in_doubt"}]
    return tuple(RunCall(state.round, i) for i in waiting[: max(free, 0)])


def _reads_from(running: Running, first: int) -> list[int]:
    window = []
    for position in range(first, len(running.calls)):
        if running.calls[position].plan.effect == "write":
            break
        window.append(position)
    return window


def start_call(state: State, running: Running, event: CallStarted) -> Step:
    """Note that a call which may begin has begun."""
    if RunCall(event.round, event.position) not in next_calls(state, running):
        return Step(state)
    begun = replace(running.calls[event.position], status="started")
    spent = replace(state.spent, tool_calls=state.spent.tool_calls + 1)
    tool = running.turn.calls[event.position].name
    return stay(
        replace(state, stage=_with(running, event.position, begun), spent=spent),
        Note("tool_started", turn=event.round, round=state.rounds + 1, tool=tool, call=event.position),
    )


def finish_call(state: State, running: Running, event: CallFinished) -> Step:
    """Keep the result of a call that is under way; with the last one the round is complete."""
    if running.calls[event.position].status != "started":
        return Step(state)
    result = replace(event.result, at=event.now - event.seconds, seconds=round(event.seconds, 6))
    return _record(state, running, event.position, result, event.seconds)


def verify_call(state: State, running: Running, event: CallVerified) -> Step:
    """Settle a call in doubt by what its tool says."""
    if VerifyCall(event.round, event.position) not in next_calls(state, running):
        return Step(state)
    call = running.calls[event.position]
    if event.verdict == "not_done" and event.executor_dead:
        return stay(replace(state, stage=_with(running, event.position, replace(call, status="requested"))))
    known = event.result if event.verdict == "done" else None
    return _record(state, running, event.position, known or _unknown(), 0.0)


def _unknown() -> Result:
    return settled_error(
        "outcome_unknown",
        "The call had begun when its worker was lost; whether it took effect is unknown, and it was not repeated.",
        "unknown",
        "Do not repeat it blindly: check its effect, or ask the user.",
    )


def doubt(state: State, running: Running) -> State:
    """The executor is gone: nobody knows what became of the calls that had begun."""
    calls = (replace(call, status="in_doubt") if call.status == "started" else call for call in running.calls)
    return replace(state, stage=replace(running, calls=tuple(calls)))


def _with(running: Running, position: int, call: CallState) -> Running:
    calls = (*running.calls[:position], call, *running.calls[position + 1 :])
    return replace(running, calls=calls)


def _record(state: State, running: Running, position: int, result: Result, seconds: float) -> Step:
    done = replace(running.calls[position], status="done", result=result)
    running = _with(running, position, done)
    note = Note(
        "tool_finished",
        turn=state.round,
        round=state.rounds + 1,
        tool=running.turn.calls[position].name,
        call=position,
        ok=not result.is_error,
        seconds=round(seconds, 6),
    )
    state = replace(state, stage=running)
    return _complete(state, running, note) if all(c.status == "done" for c in running.calls) else stay(state, note)


def _complete(state: State, running: Running, *notes: Note) -> Step:
    results = tuple(call.result for call in running.calls if call.result is not None)
    streak = _streak(state, running.turn, results, tuple(call.plan for call in running.calls))
    note = REPEAT_NOTE if streak == state.limits.repeat_limit else ""
    return next_round(state, Exchange(running.turn, results, note), streak, *notes)


def next_round(state: State, exchange: Exchange, streak: int, *notes: Note) -> Step:
    """Append a whole exchange as a round, and want the next turn."""
    ended = turn_ended(state, is_round=True)
    after = replace(
        state,
        stage=Asking(),
        sequence=(*state.sequence, exchange),
        rounds=state.rounds + 1,
        streak=streak,
    )
    return stay(after, *notes, ended, turn_started(after))


def _streak(state: State, turn: Turn, results: tuple[Result, ...], plans: tuple[CallPlan, ...]) -> int:
    same = repeats(state, turn) and state.sequence[-1].results == results
    polls = all(plan.polling for plan in plans)
    return state.streak + 1 if same and not polls else 1


def repeats(state: State, turn: Turn) -> bool:
    """Tell whether ``turn`` asks for exactly what the turn before asked for."""
    return bool(state.sequence) and _asked(state.sequence[-1].turn) == _asked(turn)


def _asked(turn: Turn) -> list[tuple[str, str]]:
    return [(call.name, _canonical(call)) for call in turn.calls]


def _canonical(call: Call) -> str:
    return call.fault or json.dumps(json.loads(call.arguments), sort_keys=True)


def skip_repeated(state: State, turn: Turn) -> Step:
    """Answer the calls of a turn that repeats itself without running them, and ask again."""
    result = Result(NOT_EXECUTED["no_progress"], outcome="not_executed")
    return next_round(state, Exchange(turn, (result,) * len(turn.calls), REPEAT_NOTE), state.streak + 1)
