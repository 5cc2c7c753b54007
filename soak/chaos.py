"""What goes wrong, and when: drawn from a seed, noted with its time."""

import random
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from redis import Redis as Connection

from soak.deployment import Pod, children, send
from soak.servers import Postgres, Redis
from soak.webapp import Ledger

QUIET: Final = 14.0
"""Seconds without a further blow after some kills of a worker, in which the time to recover is measured."""
CALM: Final = 3.5
"""Seconds without one before such a kill."""
LEASE: Final = 6.0
GRACE: Final = 45.0
IN_HAND: Final = 3.0
"""Seconds after which what a worker had read from Redis before a blow is in the database."""

_OWNED: Final = "SELECT id FROM roundelay_messages WHERE ended_at IS NULL AND owner LIKE '%-' || $1 || '-%'"


@dataclass(slots=True)
class Blow:
    """One thing that went wrong: ``owned`` are the messages that the killed process was at work on."""

    kind: str
    at: float
    ended: float = 0.0
    detail: str = ""
    owned: tuple[str, ...] = ()


@dataclass
class Chaos:
    """Strikes at pods and servers; ``tend`` keeps the deployment running in the meantime."""

    pods: Sequence[Pod]
    redis: Redis
    postgres: Postgres
    ledger: Ledger
    prefix: str
    dice: random.Random
    short: bool = False
    """Only the kinds of blows that are over at once, each of them once."""
    blows: list[Blow] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._weighted: dict[Callable[[], Blow | None], int] = {
            self.kill_worker: 8,
            self.stop_shortly: 3,
            self.stop_long: 3,
            self.kill_child: 5,
            self.kill_pod: 1,
            self.restart_redis: 2,
            self.kill_redis: 2,
            self.restart_postgres: 1,
            self.kill_backend: 2,
            self.kill_postgres: 1,
            self.rolling_restart: 1,
        }
        if self.short:
            at_once = (self.kill_worker, self.kill_child, self.kill_redis, self.kill_backend, self.stop_shortly)
            self._weighted = dict.fromkeys(at_once, 1)
        self._flushed = False
        self.owed: list[Callable[[], Blow | None]] = list(self._weighted)
        self.dice.shuffle(self.owed)

    def strike(self, *, half_way: bool) -> Blow | None:
        """Strike once: first each kind, in the seed's order, then by weight; once, half-way, Redis is emptied."""
        if half_way and not self._flushed:
            self._flushed = True
            return self._noted(self.flush_redis)
        if self.owed:
            return self._noted(self.owed.pop())
        kinds, weights = list(self._weighted), list(self._weighted.values())
        return None if self.short else self._noted(self.dice.choices(kinds, weights)[0])

    def _noted(self, strike: Callable[[], Blow | None]) -> Blow | None:
        made = strike()
        if made is not None:
            made.ended = made.ended or time.time()
            self.blows.append(made)
        return made

    def rest(self, seconds: float) -> None:
        """Let the deployment run for some time."""
        until = time.monotonic() + seconds
        while True:
            for pod in self.pods:
                pod.tend()
            if time.monotonic() >= until:
                return
            time.sleep(0.1)

    def kill_worker(self) -> Blow | None:
        """Kill a worker process, half of the times with nothing else going wrong for a while."""
        alone = not self.short and self.dice.random() < 0.5
        if alone:
            self.rest(CALM)
        victim = self._worker()
        if victim is None:
            return None
        owned = self._owned(victim)
        blow = Blow("worker SIGKILL", time.time())
        send(victim, signal.SIGKILL)
        blow.ended = time.time()
        blow.owned = tuple(set(owned) & set(self._owned(victim)))
        if alone:
            self.rest(QUIET)
        return blow

    def stop_shortly(self) -> Blow | None:
        """Stop a worker process for less than its lease."""
        return self._stop("worker SIGSTOP, shorter than the lease", self.dice.uniform(0.5, LEASE - 2.5))

    def stop_long(self) -> Blow | None:
        """Stop a worker process for longer than its lease."""
        return self._stop("worker SIGSTOP, longer than the lease", self.dice.uniform(LEASE + 2, 3 * LEASE))

    def _stop(self, kind: str, seconds: float) -> Blow | None:
        victim = self._worker()
        if victim is None:
            return None
        blow = Blow(kind, time.time(), detail=f"{seconds:.1f} s")
        send(victim, signal.SIGSTOP)
        owned = self._owned(victim)
        self.rest(seconds)
        if seconds > LEASE:
            blow.owned = owned
        send(victim, signal.SIGCONT)
        return blow

    def kill_child(self) -> Blow | None:
        """Kill the process of an isolated tool, or its guardian."""
        guardians = [guardian for pod in self.pods for guardian in pod.guardians()]
        if not guardians:
            return None
        guardian = self.dice.choice(guardians)
        if self.dice.random() < 0.5 and (tool := next(iter(children(guardian)), None)):
            send(tool, signal.SIGKILL)
            return Blow("isolated tool SIGKILL", time.time())
        send(guardian, signal.SIGKILL)
        return Blow("isolated tool's guardian SIGKILL", time.time())

    def kill_pod(self) -> Blow | None:
        """Kill a supervisor; its worker process is ended by the kernel's signal."""
        victim = self.dice.choice(self.pods).pid
        if victim is None:
            return None
        send(victim, signal.SIGKILL)
        return Blow("supervisor SIGKILL", time.time())

    def restart_redis(self) -> Blow:
        """Restart Redis in good order."""
        blow = Blow("Redis SIGTERM", time.time())
        self.redis.stop()
        return self._started_again(self.redis, blow)

    def kill_redis(self) -> Blow:
        """Kill Redis; its file has all but what the last moment wrote."""
        blow = Blow("Redis SIGKILL", time.time())
        before = [each.message_id for each in self.ledger.submitted if time.time() - each.returned < 2]
        self.redis.kill()
        self._started_again(self.redis, blow)
        with self.redis.client() as client:
            self._note_lost(client, before, "Redis SIGKILL, within 2 s")
        return blow

    def flush_redis(self) -> Blow:
        """Empty Redis; what no worker has taken over yet is read in the same transaction."""
        blow = Blow("Redis FLUSHALL", time.time())
        with self.redis.client() as client:
            transaction = client.pipeline(transaction=True)
            transaction.zrange(f"{self.prefix}:inbox", 0, -1)
            transaction.flushall()
            inbox = [each.decode() for each in transaction.execute()[0]]
        self.rest(IN_HAND)
        known = {row["id"] for row in self.postgres.ask("SELECT id FROM roundelay_messages WHERE id = ANY($1)", inbox)}
        self.ledger.lost.update({each: "Redis FLUSHALL" for each in inbox if each not in known})
        blow.detail = f"{len(inbox)} messages in the inbox"
        return blow

    def _note_lost(self, client: Connection, ids: Sequence[str], cause: str) -> None:
        for message_id in ids:
            if client.exists(f"{self.prefix}:state:{message_id}", f"{self.prefix}:message:{message_id}"):
                continue
            if not self.postgres.ask("SELECT id FROM roundelay_messages WHERE id = $1", message_id):
                self.ledger.lost[message_id] = cause

    def restart_postgres(self) -> Blow:
        """Restart PostgreSQL by its fast shutdown."""
        blow = Blow("PostgreSQL SIGINT", time.time())
        self.postgres.stop()
        return self._started_again(self.postgres, blow)

    def kill_postgres(self) -> Blow:
        """Kill the postmaster."""
        blow = Blow("PostgreSQL postmaster SIGKILL", time.time())
        self.postgres.kill()
        return self._started_again(self.postgres, blow)

    def kill_backend(self) -> Blow | None:
        """Kill a backend, which takes all connections with it."""
        return Blow("PostgreSQL backend SIGKILL", time.time()) if self.postgres.kill_backend(self.dice) else None

    def rolling_restart(self) -> Blow:
        """End one pod after the other warmly, and start a new one in its place."""
        blow = Blow("rolling restart, SIGTERM", time.time())
        took = []
        for pod in self.pods:
            took.append(pod.restart(GRACE))
            self.rest(2)
        blow.detail = ", ".join(f"{seconds:.1f} s" for seconds in took)
        return blow

    def _started_again(self, server: Redis | Postgres, blow: Blow) -> Blow:
        away = 0 if self.short else self.dice.choice((0, 0, 1, 3))
        self.rest(away)
        server.start()
        blow.detail = f"away for {time.time() - blow.at:.1f} s"
        return blow

    def _worker(self) -> int | None:
        workers = [worker for pod in self.pods if (worker := pod.worker)]
        return self.dice.choice(workers) if workers else None

    def _owned(self, pid: int) -> tuple[str, ...]:
        with suppress(TimeoutError):
            return tuple(row["id"] for row in self.postgres.ask(_OWNED, str(pid)))
        return ()
