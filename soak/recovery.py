"""From the kill of a message's owner to its next sign of life anywhere else."""

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from soak.chaos import Blow
from soak.evidence import Evidence

ALLOWED: Final = 12.0
"""Seconds, at the usual lease and sweep: the lease runs out, a sweep finds it, a worker takes it."""
BEFORE: Final = 3.0
"""Seconds before a kill in which nothing else may have gone wrong, for its recovery to be a quiet one."""
KILL: Final = "worker SIGKILL"


@dataclass(frozen=True, slots=True)
class Recovery:
    """One message whose owner was killed; ``quiet``: nothing else went wrong before it went on."""

    message_id: str
    seconds: float
    quiet: bool


def recoveries(evidence: Evidence) -> tuple[Recovery, ...]:
    """Return how long each message took that a killed worker was at work on."""
    signs = _signs_of_life(evidence)
    found = []
    for blow in evidence.blows:
        if blow.kind != KILL:
            continue
        for message_id in blow.owned:
            times = signs[message_id]
            place = bisect_right(times, blow.ended)
            if place < len(times):
                found.append(Recovery(message_id, times[place] - blow.ended, _is_quiet(evidence, blow)))
    return tuple(found)


def quiet_recoveries(evidence: Evidence) -> tuple[Recovery, ...]:
    """Return the recoveries in which nothing else went wrong."""
    return tuple(each for each in recoveries(evidence) if each.quiet)


def _is_quiet(evidence: Evidence, blow: Blow) -> bool:
    return not any(
        other is not blow and other.ended > blow.at - BEFORE and other.at < blow.ended + ALLOWED
        for other in evidence.blows
    )


def _signs_of_life(evidence: Evidence) -> dict[str, list[float]]:
    """Return when each message was seen to go on: at the model, in a tool, by its durable updates, at its end."""
    ids = defaultdict(list)
    for each in evidence.submitted:
        ids[each.message.name].append(each.message_id)
    signs: dict[str, list[float]] = defaultdict(list)
    for request in evidence.asked:
        for message_id in ids[request["name"]]:
            signs[message_id].append(request["at"])
    for row in evidence.ran:
        signs[row["message"]].append(row["at"])
    for heard in evidence.heard:
        signs[heard.message_id].append(heard.at)
    for message_id, stream in evidence.streams.items():
        signs[message_id] += [_seconds(update["at"]) for entry, update in stream if entry.endswith("-0")]
    return defaultdict(list, {message_id: sorted(times) for message_id, times in signs.items()})


def _seconds(at: str) -> float:
    return datetime.fromisoformat(at).timestamp()
