"""One conversation at a time on an idle machine: what the system adds to each round, and before the first."""

from time import monotonic, sleep

from bench.measures.numbers import gaps, percentile
from bench.script import Script
from bench.stage import Stage

PAGE = 50_000


def idle(stage: Stage, conversations: int = 20) -> dict[str, float]:
    """Return the gap per round, the time from submit to the first model request, and one commit's time, in ms."""
    rounds: list[float] = []
    firsts: list[float] = []
    for conversation in stage.conversations(conversations, Script()):
        submitted = monotonic()
        calls = stage.play([conversation], 60)[conversation.id]
        rounds += gaps(calls)
        firsts.append(calls[0].arrived - submitted)
    return {
        "gap_p50_ms": 1e3 * percentile(rounds, 50),
        "gap_p95_ms": 1e3 * percentile(rounds, 95),
        "first_request_p50_ms": 1e3 * percentile(firsts, 50),
        "commit_ms": 1e3 * stage.services.commit_seconds(),
    }


def rest(stage: Stage, seconds: float = 5) -> dict[str, float]:
    """Return the CPU that the workers take with nothing to do, in percent of a core."""
    before = stage.workers.cpu_seconds()
    sleep(seconds)
    return {"rest_cpu_percent": 100 * (stage.workers.cpu_seconds() - before) / seconds}


def growth(stage: Stage, conversations: int = 4) -> dict[str, float]:
    """Return the gap after the first and after the 25th round of conversations whose tool results are 50 KB each."""
    early: list[float] = []
    late: list[float] = []
    for conversation in stage.conversations(conversations, Script(rounds=25, result_bytes=PAGE)):
        each = gaps(stage.play([conversation], 60)[conversation.id])
        early.append(each[0])
        late.append(each[-1])
    return {"round_1_ms": 1e3 * percentile(early, 50), "round_25_ms": 1e3 * percentile(late, 50)}
