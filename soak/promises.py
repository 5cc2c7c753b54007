"""The promises, each held against what others saw; what breaks one is named by its message."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from roundelay.names import Status
from roundelay_worker.store.records import TimelineCall
from soak.evidence import Evidence, Json
from soak.recovery import ALLOWED, quiet_recoveries
from soak.statistics import percentile
from soak.tools import IDEMPOTENT, WRITES
from soak.webapp import Submitted

_STATUSES: Final = frozenset(Status.__args__)  # type: ignore[attr-defined]
_QUEUES: Final = ("_kombu.binding", "unacked")
_OURS_TO_MEND: Final = frozenset({"internal_error", "provider_error"})


@dataclass(frozen=True, slots=True)
class Verdict:
    """A promise, how much it was tried by, and whoever broke it."""

    promise: str
    tried: int
    faults: tuple[str, ...]


def judge(evidence: Evidence, prefix: str) -> tuple[Verdict, ...]:
    """Return the verdict on each promise."""
    owed = _owed(evidence)
    writes = [row for row in evidence.ran if row["tool"] in WRITES | IDEMPOTENT]
    conversations = {each.message.conversation for each in owed}
    checks: tuple[tuple[str, int, Callable[[], Iterable[str]]], ...] = (
        ("no accepted message is lost", len(owed), lambda: _lost(evidence, owed)),
        ("no message has two terminal records", len(evidence.heard), lambda: _two_ends(evidence)),
        ("no message failed by a fault of ours", len(owed), lambda: _failed(evidence, owed)),
        ("no write is done twice", sum(row["tool"] in WRITES for row in writes), lambda: _twice(evidence)),
        ("no write is recorded as done and missing", len(writes), lambda: _missing(evidence)),
        ("no write took effect unknown to the record and the answer", len(writes), lambda: _unlisted(evidence)),
        ("every write of unknown outcome is listed in `uncertain`", len(writes), lambda: _uncertain(evidence)),
        (
            "idempotent writes are repeated under one key",
            sum(row["tool"] in IDEMPOTENT for row in writes),
            lambda: _keys(evidence),
        ),
        ("every conversation accepts a further message", len(evidence.last), lambda: _stuck(evidence)),
        ("the order within each conversation is kept", len(conversations), lambda: _order(evidence, owed)),
        ("one message of a conversation acts at a time", len(conversations), lambda: _overlap(evidence, owed)),
        ("every history is accepted by the model", len(evidence.asked), lambda: _refused(evidence)),
        ("updates are numbered without a hole and end once", len(owed), lambda: _holes(evidence, owed)),
        ("nothing lasts in Redis but the broker's queues", len(evidence.lasting), lambda: _lasting(evidence, prefix)),
        (f"others go on within {ALLOWED:.0f} s (95 of 100)", len(quiet_recoveries(evidence)), lambda: _slow(evidence)),
    )
    return tuple(Verdict(promise, tried, tuple(check())) for promise, tried, check in checks)


def _owed(evidence: Evidence) -> list[Submitted]:
    """Return what is owed an answer; a submit that found an earlier one with its key is counted once."""
    by_id = {each.message_id: each for each in (*evidence.submitted, *evidence.last) if not each.lost}
    return list(by_id.values())


def _answer(evidence: Evidence, message_id: str) -> Json:
    found: Json = json.loads(evidence.kept.get(message_id, b"{}"))
    return found


def _lost(evidence: Evidence, owed: list[Submitted]) -> Iterator[str]:
    for each in owed:
        answer = _answer(evidence, each.message_id)
        timeline = evidence.timelines[each.message_id]
        if answer.get("status") not in _STATUSES or not answer.get("text"):
            known = "unknown to the database" if timeline is None else f"in the database as {timeline.status}"
            yield f"{_called(each)} has no answer, {known}"
        elif timeline is None or timeline.answer is None or json.loads(timeline.answer) != answer:
            yield f"{_called(each)} has another answer in the database"


def _two_ends(evidence: Evidence) -> Iterator[str]:
    bodies: dict[str, set[bytes]] = defaultdict(set)
    for heard in evidence.heard:
        bodies[heard.message_id].add(heard.body)
    for message_id, body in evidence.kept.items():
        bodies[message_id].add(body)
    for message_id, different in bodies.items():
        if len(different) > 1:
            yield f"{message_id} has {len(different)} different answers"


def _failed(evidence: Evidence, owed: list[Submitted]) -> Iterator[str]:
    for each in owed:
        code = (_answer(evidence, each.message_id).get("error") or {}).get("code")
        if code in _OURS_TO_MEND:
            yield f"{_called(each)} failed with {code}"


def _twice(evidence: Evidence) -> Iterator[str]:
    done = Counter((row["message"], row["token"]) for row in evidence.ran if row["tool"] in WRITES)
    for (message_id, token), times in done.items():
        if times > 1:
            yield f"{message_id}: {token} was done {times} times"


def _written(evidence: Evidence) -> Iterator[tuple[str, str, TimelineCall]]:
    """Yield message, token and record of each write that the model asked for."""
    for message_id, timeline in evidence.timelines.items():
        for turn in timeline.turns if timeline else ():
            for call in turn.calls:
                if call.name in WRITES | IDEMPOTENT:
                    yield message_id, json.loads(call.arguments)["token"], call


def _missing(evidence: Evidence) -> Iterator[str]:
    ran = {(row["message"], row["token"]) for row in evidence.ran}
    for message_id, token, call in _written(evidence):
        if call.status == "done" and call.outcome == "done" and not call.is_error and (message_id, token) not in ran:
            yield f"{message_id}: {token} is recorded as done, and was not"


def _listed(evidence: Evidence) -> set[tuple[str, str]]:
    return {
        (message_id, call["arguments"]["token"])
        for message_id in evidence.kept
        for call in _answer(evidence, message_id).get("uncertain", ())
    }


def _unlisted(evidence: Evidence) -> Iterator[str]:
    listed = _listed(evidence)
    known = {
        (message_id, token)
        for message_id, token, call in _written(evidence)
        if call.status == "done" and call.outcome == "done"
    }
    for row in evidence.ran:
        place = (row["message"], row["token"])
        if row["tool"] in WRITES | IDEMPOTENT and place in known and _says_no(evidence, place):
            yield f"{place[0]}: {place[1]} took effect, and its result is an error"
        if row["tool"] in WRITES | IDEMPOTENT and place not in known | listed:
            yield f"{place[0]}: {place[1]} took effect, and is neither recorded nor listed"


def _says_no(evidence: Evidence, place: tuple[str, str]) -> bool:
    return any((message_id, token) == place and call.is_error for message_id, token, call in _written(evidence))


def _uncertain(evidence: Evidence) -> Iterator[str]:
    listed = _listed(evidence)
    for message_id, token, call in _written(evidence):
        if call.outcome == "unknown" and (message_id, token) not in listed:
            yield f"{message_id}: the outcome of {token} is unknown, and the answer does not list it"


def _keys(evidence: Evidence) -> Iterator[str]:
    keys: dict[tuple[str, str], set[str]] = defaultdict(set)
    for row in evidence.ran:
        if row["tool"] in IDEMPOTENT:
            keys[row["message"], row["token"]].add(row["key"])
    for (message_id, token), different in keys.items():
        if len(different) > 1:
            yield f"{message_id}: {token} was done under {len(different)} keys"


def _stuck(evidence: Evidence) -> Iterator[str]:
    for each in evidence.last:
        if _answer(evidence, each.message_id).get("status") != "answered":
            yield f"{each.message.conversation}: {_called(each)} was not answered"


def _order(evidence: Evidence, owed: list[Submitted]) -> Iterator[str]:
    place = {each.message.name: number for number, each in enumerate(owed)}
    conversation = {each.message.name: each.message.conversation for each in owed}
    for request in evidence.asked:
        users = [user for user in dict.fromkeys(request["users"]) if user in place]
        if any(conversation[user] != conversation[request["name"]] for user in users):
            yield f"{request['name']}: request {request['number']} holds another conversation's message"
        if [place[user] for user in users] != sorted(place[user] for user in users) or users[-1:] != [request["name"]]:
            yield f"{request['name']}: request {request['number']} has the order {' '.join(users)}"


def _overlap(evidence: Evidence, owed: list[Submitted]) -> Iterator[str]:
    """Yield effects that came after a later message had begun to act, unless they are listed as uncertain.

    An idempotent write again under its key is no further effect: a process that was stopped in the middle of one
    may do it when it wakes up, after another process did it in its place.
    """
    seen: set[tuple[str, str]] = set()
    listed = _listed(evidence)
    place = {each.message_id: number for number, each in enumerate(owed)}
    conversation = {each.message_id: each.message.conversation for each in owed}
    latest: dict[str, Json] = {}
    for row in sorted(evidence.ran, key=lambda row: float(row["at"])):
        effect = (row["message"], row["token"])
        if row["tool"] not in WRITES | IDEMPOTENT or row["message"] not in place or effect in seen:
            continue
        seen.add(effect)
        before = latest.setdefault(conversation[row["message"]], row)
        if place[row["message"]] > place[before["message"]]:
            latest[conversation[row["message"]]] = row
        elif place[row["message"]] < place[before["message"]] and effect not in listed:
            yield f"{row['message']}: {row['token']} took effect after {before['token']}"


def _refused(evidence: Evidence) -> Iterator[str]:
    for refusal in evidence.refusals:
        yield f"{refusal['name']}: step {refusal['step']} broke {refusal['refused']}: {refusal['message'][:200]}"


def _holes(evidence: Evidence, owed: list[Submitted]) -> Iterator[str]:
    for each in owed:
        durable = [update for entry, update in evidence.streams[each.message_id] if entry.endswith("-0")]
        if [update.get("seq") for update in durable] != list(range(1, len(durable) + 1)):
            yield f"{_called(each)} has the numbers {[update['seq'] for update in durable]}"
        ends = [update for update in durable if update["kind"] == "ended"]
        if len(ends) != 1 or durable[-1:] != ends:
            yield f"{_called(each)} has {len(ends)} ends"


def _lasting(evidence: Evidence, prefix: str) -> Iterator[str]:
    for key in evidence.lasting:
        if not key.startswith(_QUEUES) and key not in {f"{prefix}.messages", f"{prefix}.rounds"}:
            yield f"{key} never expires"


def _slow(evidence: Evidence) -> Iterator[str]:
    measured = quiet_recoveries(evidence)
    times = [each.seconds for each in measured]
    if times and percentile(times, 95) > ALLOWED:
        for each in measured:
            if each.seconds > ALLOWED:
                yield f"{each.message_id} went on after {each.seconds:.1f} s"


def _called(each: Submitted) -> str:
    return f"{each.message_id} ({each.message.name})"
