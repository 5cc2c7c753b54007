"""Many conversations at once: both cores busy, a slow model with a thousand users, a long queue."""

from threading import Event, Thread
from time import monotonic

from bench.measures.numbers import percentile, rank_correlation, span, total
from bench.processes import Memory
from bench.script import Script
from bench.stage import Stage

SLOW = Script(rounds=2, think_ms=5_000)
ONE_ROUND = Script(rounds=1)
SAMPLE_SECONDS = 2.0


def load(stage: Stage, conversations: int = 100) -> dict[str, float]:
    """Return calls per second, and CPU, database and Redis traffic a call, of conversations that start at once."""
    crowd = stage.conversations(conversations, Script())
    stage.workers.settle()
    cpu, log, wire = stage.workers.cpu_seconds(), stage.services.written_bytes(), stage.services.redis_bytes()
    records = stage.play(crowd, 300)
    stage.workers.settle()
    calls = total(records)
    first, last = span(records)
    return {
        "calls_per_second": calls / (last - first),
        "cpu_ms": 1e3 * (stage.workers.cpu_seconds() - cpu) / calls,
        "wal_bytes": (stage.services.written_bytes() - log) / calls,
        "redis_bytes": (stage.services.redis_bytes() - wire) / calls,
        "lost": conversations - stage.ended(crowd),
    }


def crowd(stage: Stage, conversations: int = 1_000) -> dict[str, float]:
    """Return wall time (ideal: 15 s) and memory of messages submitted at once, each with 3 calls of 5 s."""
    messages = stage.conversations(conversations, SLOW)
    watch = MemoryWatch(stage)
    submitted = monotonic()
    records = stage.play(messages, 600)
    peak = watch.stop()
    _, last = span(records)
    return {
        "crowd_seconds": last - submitted,
        "crowd_rss_mb": peak.rss / 1e6,
        "crowd_pss_mb": peak.pss / 1e6,
        "crowd_lost": conversations - stage.ended(messages, 60),
    }


class MemoryWatch:
    """Samples the workers' memory in a thread and keeps the largest."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.peak = Memory(0, 0)
        self.stopped = Event()
        self.thread = Thread(target=self._sample)
        self.thread.start()

    def _sample(self) -> None:
        while not self.stopped.wait(SAMPLE_SECONDS):
            now = self.stage.workers.memory()
            self.peak = Memory(max(self.peak.rss, now.rss), max(self.peak.pss, now.pss))

    def stop(self) -> Memory:
        """Return the largest sample."""
        self.stopped.set()
        self.thread.join()
        return self.peak


def queue(stage: Stage, conversations: int = 10_000) -> dict[str, float]:
    """Return what becomes of messages queued at once: how fast accepted, how many lost, repeated, out of order.

    ``in_order`` is the rank correlation of start and end. ``held_p50_ms`` is the median time from a message's first
    model request to its answer: a system that begins everything before it ends anything has a long one.
    """
    messages = stage.conversations(conversations, ONE_ROUND)
    stage.model.reset()
    before, watch = stage.workers.memory(), MemoryWatch(stage)
    submitted = monotonic()
    stage.system.submit_all(messages)
    accepted = monotonic()
    stage.wait(conversations, 1_800)
    peak = watch.stop()
    records = stage.model.records()
    _, last = span(records)
    starts = {name: calls[0].arrived for name, calls in records.items()}
    ends = {name: calls[-1].answered for name, calls in records.items()}
    return {
        "accepted_per_second": conversations / (accepted - submitted),
        "queue_seconds": last - submitted,
        "queue_lost": conversations - stage.ended(messages, 120),
        "queue_repeated": total(records) - conversations * ONE_ROUND.calls,
        "queue_rss_before_mb": before.rss / 1e6,
        "queue_rss_peak_mb": peak.rss / 1e6,
        "in_order": rank_correlation(starts, ends),
        "held_p50_ms": 1e3 * percentile((ends[name] - starts[name] for name in starts), 50),
    }
