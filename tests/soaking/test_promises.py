"""Each promise of the soak is found broken where it is broken, and only there."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from soak.chaos import Blow
from soak.evidence import Evidence
from soak.listener import Heard
from soak.plan import Message
from soak.promises import judge
from soak.webapp import Submitted

from roundelay_worker.store.records import Timeline, TimelineCall, TimelineTurn

Change = Callable[[Evidence], Evidence]


def _message(number: int) -> Message:
    return Message(number, "c1", "u1", f"soak-{number:06d}", "text", "chat:m", 1, None, waits=True)


def _submitted(number: int) -> Submitted:
    return Submitted(_message(number), f"m{number}", began=0, returned=0, refusals=0)


def _answer(number: int, **fields: Any) -> bytes:
    return json.dumps(
        {"message_id": f"m{number}", "status": "answered", "text": "Done.", "uncertain": [], **fields}
    ).encode()


def _call(token: str, **fields: Any) -> TimelineCall:
    usual = TimelineCall(
        "write_sync", json.dumps({"token": token}), "write", "done", "done", False, "x", 1, 2, "p", False
    )
    return replace(usual, **fields)


def _timeline(number: int, call: TimelineCall) -> Timeline:
    turn = TimelineTurn(1, 0, "", "complete", None, None, "", None, (call,))
    times = {"submitted_at": 0, "accepted_at": 0, "started_at": 0, "claimed_at": 0, "progressed_at": 0, "ended_at": 9}
    counts = {"deadline": 99, "attempt": 1, "losses": 0, "dispatch": 1, "seq": 2, "published": 2, "position": number}
    names = {"message_id": f"m{number}", "user_id": "u1", "conversation_id": "c1", "submission": "{}"}
    rest = {"status": "answered", "owner": None, "verdict": None, "cancel_requested_at": None, "updates": ()}
    return Timeline(**names, **times, **counts, **rest, answer=_answer(number).decode(), turns=(turn,))


def _effect(number: int, at: float, tool: str = "write_sync", key: str = "k") -> dict[str, Any]:
    return {"token": f"t{number}", "tool": tool, "call": "c", "key": key, "message": f"m{number}", "pid": 1, "at": at}


def _request(number: int, *users: int) -> dict[str, Any]:
    names = [f"soak-{user:06d}" for user in users]
    return {"number": number, "at": float(number), "name": f"soak-{number:06d}", "step": "0", "users": names}


def _stream(*seqs: int) -> tuple[tuple[str, dict[str, Any]], ...]:
    kinds = ["accepted"] * (len(seqs) - 1) + ["ended"]
    at = "1970-01-01T00:00:01+00:00"
    return tuple((f"{seq}-0", {"seq": seq, "kind": kind, "at": at}) for seq, kind in zip(seqs, kinds, strict=True))


HONEST = Evidence(
    submitted=(_submitted(1), _submitted(2)),
    last=(_submitted(3),),
    blows=(),
    heard=(Heard(2, "m1", _answer(1)),),
    kept={f"m{number}": _answer(number) for number in (1, 2, 3)},
    streams={f"m{number}": _stream(1, 2) for number in (1, 2, 3)},
    lasting=("soak.rounds", "_kombu.binding_x"),
    ran=tuple(_effect(number, at=number) for number in (1, 2, 3)),
    asked=(_request(1, 1), _request(2, 1, 2), _request(3, 1, 2, 3)),
    refusals=(),
    timelines={f"m{number}": _timeline(number, _call(f"t{number}")) for number in (1, 2, 3)},
    strays=(),
)


def _with_call(evidence: Evidence, **fields: Any) -> Evidence:
    return replace(evidence, timelines={**evidence.timelines, "m1": _timeline(1, _call("t1", **fields))})


def _with_answer(evidence: Evidence, number: int, **fields: Any) -> Evidence:
    timeline = evidence.timelines[f"m{number}"]
    assert timeline is not None
    body = _answer(number, **fields)
    told = {**evidence.timelines, f"m{number}": replace(timeline, answer=body.decode())}
    return replace(evidence, kept={**evidence.kept, f"m{number}": body}, heard=(), timelines=told)


BREACHES: dict[str, Change] = {
    "no accepted message is lost": lambda e: replace(e, kept={k: v for k, v in e.kept.items() if k != "m2"}),
    "no message has two terminal records": lambda e: replace(e, heard=(Heard(2, "m1", b"another"),)),
    "no message failed by a fault of ours": lambda e: _with_answer(e, 1, error={"code": "internal_error"}),
    "no write is done twice": lambda e: replace(e, ran=(_effect(1, at=0.5), *e.ran)),
    "no write is recorded as done and missing": lambda e: replace(e, ran=e.ran[1:]),
    "no write took effect unknown to the record and the answer": lambda e: _with_call(e, outcome="not_executed"),
    "idempotent writes are repeated under one key": lambda e: replace(
        e, ran=(*(_effect(1, 0.5, "write_again_sync", key) for key in "kl"), *e.ran[1:])
    ),
    "every conversation accepts a further message": lambda e: _with_answer(e, 3, status="failed"),
    "the order within each conversation is kept": lambda e: replace(e, asked=(_request(2, 2, 1, 2), *e.asked)),
    "one message of a conversation acts at a time": lambda e: replace(e, ran=(_effect(1, at=2.5), *e.ran[1:])),
    "every history is accepted by the model": lambda e: replace(
        e, refusals=({"name": "soak-000001", "step": "0", "refused": "pairs", "message": "no"},)
    ),
    "updates are numbered without a hole and end once": lambda e: replace(
        e, streams={**e.streams, "m1": _stream(1, 3)}
    ),
    "nothing lasts in Redis but the broker's queues": lambda e: replace(e, lasting=("soak:message:m1",)),
    "others go on within 12 s (95 of 100)": lambda e: replace(
        e, blows=(Blow("worker SIGKILL", -20.0, -20.0, owned=("m1",)),)
    ),
}


def _broken(evidence: Evidence) -> list[str]:
    return [verdict.promise for verdict in judge(evidence, "soak") if verdict.faults]


def test_honest_records_break_no_promise():
    assert _broken(HONEST) == []


@pytest.mark.parametrize("promise", BREACHES)
def test_a_broken_promise_is_found_and_no_other_is_blamed(promise: str):
    assert _broken(BREACHES[promise](HONEST)) == [promise]


def test_a_write_of_unknown_outcome_that_the_answer_does_not_list_breaks_two_promises():
    assert _broken(_with_call(HONEST, outcome="unknown")) == [
        "no write took effect unknown to the record and the answer",
        "every write of unknown outcome is listed in `uncertain`",
    ]


def test_a_write_of_unknown_outcome_that_the_answer_lists_is_as_promised():
    listed = [{"name": "write_sync", "arguments": {"token": "t1"}}]
    unknown = _with_call(_with_answer(HONEST, 1, uncertain=listed), outcome="unknown")
    told = unknown.timelines["m1"]
    assert told is not None
    timelines = {**unknown.timelines, "m1": replace(told, answer=unknown.kept["m1"].decode())}

    assert _broken(replace(unknown, timelines=timelines)) == []


def test_what_redis_took_with_it_is_owed_no_answer():
    lost = replace(_submitted(9), lost="Redis FLUSHALL")

    assert _broken(replace(HONEST, submitted=(*HONEST.submitted, lost))) == []
