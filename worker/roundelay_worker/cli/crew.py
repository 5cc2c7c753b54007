"""Child processes that are kept running: started, restarted with back-off when they die, ended together."""

import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from roundelay_worker.cli.failed import CommandFailed
from roundelay_worker.embedded.child import guarded, until
from roundelay_worker.process.heartbeat import SILENT, Deeds, deeds_of, forget, last_beat
from roundelay_worker.settings import EXIT_UNFIT

_LOOK_AT_BEATS: Final = 3.0
FIRST_DELAY: Final = 0.5
LONGEST_DELAY: Final = 30.0
SETTLED: Final = 30.0
"""Seconds after which a child counts as well, so that its next death is a first one."""
LAST_WORDS: Final = 3.0
"""Seconds between the hard signal and the end by force."""
_LAST_LINES: Final = 4_096
_REASON: Final = b"roundelay: "


@dataclass(frozen=True, slots=True)
class Job:
    """What a child runs; without ``log`` it writes where we write."""

    name: str
    command: Sequence[str]
    env: Mapping[str, str]
    log: Path | None = None
    is_needed: bool = False
    """Whether the crew is of no use without any such child."""


class CrewUnfit(CommandFailed):
    """No child that is needed can start, and a later start would not go better; the text says why."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How often a child has died in a row, and when it may be started again."""

    deaths: int = 0
    due_at: float = 0.0

    def after_death(self, now: float, lived: float, *, worked: bool = False) -> "Patience":
        """Return the patience after another death; one after a settled life, or after work done, is a first one."""
        deaths = 1 if worked or lived >= SETTLED else self.deaths + 1
        return Patience(deaths, now + min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** (deaths - 1)))


@dataclass(slots=True)
class _Member:
    job: Job
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    patience: Patience = field(default_factory=Patience)
    is_unfit: bool = False
    beat: float | None = None
    """The last heartbeat that was seen, by the clock of files."""
    beat_seen_at: float = 0.0


class Crew:
    """Children in sessions of their own (a Ctrl-C is ours to pass on), which end if we are killed."""

    def __init__(
        self,
        jobs: Sequence[Job],
        say: Callable[[str], None],
        *,
        last_words: float = LAST_WORDS,
        silent: float = SILENT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._members = [_Member(job) for job in jobs]
        self._say = say
        self._last_words = last_words
        self._silent = silent
        self._clock = clock
        self._tended_at = clock()
        self._deeds = Deeds()

    @property
    def deeds(self) -> Deeds:
        """Return what the children that have ended did since they were told to stop."""
        return self._deeds

    @property
    def pids(self) -> dict[str, int]:
        """Return the processes that run now, by the names of their jobs."""
        return {member.job.name: process.pid for member in self._members if (process := _alive(member))}

    def tend(self) -> float:
        """Start what is due, note what died; return the seconds until something is due again.

        Raises CrewUnfit if all children that are needed ended as unfit for good.
        """
        now = self._clock()
        self.end_frozen()
        for member in self._members:
            self._note_death(member, now)
            if member.process is None and member.patience.due_at <= now:
                self._start(member, now)
        waiting = [member.patience.due_at - now for member in self._members if member.process is None]
        return max(0.0, min([*waiting, _LOOK_AT_BEATS]))

    def signal(self, number: signal.Signals) -> None:
        """Pass a signal to every child that lives."""
        for member in self._members:
            if process := _alive(member):
                process.send_signal(number)

    @property
    def all_gone(self) -> bool:
        """Whether no child lives."""
        return not any(map(_alive, self._members))

    def tell_deeds(self) -> None:
        """Say what became of the messages that were under way when the children were told to stop."""
        self._bury_all()
        deeds = self._deeds
        self._say(f"stopped: {deeds.finished} messages finished, {deeds.handed_over} handed over to other workers")

    def stop(self, grace: float) -> None:
        """End every child: warmly within ``grace`` seconds (0: not warmly at all), then hard, at last by force."""
        warm = ((signal.SIGTERM, grace),) if grace else ()
        for number, patience in (*warm, (signal.SIGQUIT, self._last_words), (signal.SIGKILL, LAST_WORDS)):
            self.signal(number)
            if until(lambda: self.all_gone, patience):
                break
        self._bury_all()

    def _note_death(self, member: _Member, now: float) -> None:
        if member.process is not None and (code := member.process.poll()) is not None:
            deeds = self._buried(member.process.pid)
            member.process, member.beat = None, None
            member.patience = member.patience.after_death(now, now - member.started_at, worked=deeds.rounds > 0)
            delay, why = member.patience.due_at - now, f"{_ending(code)}{_reason(member.job.log)}"
            member.is_unfit = code == EXIT_UNFIT
            needed = [other.is_unfit for other in self._members if other.job.is_needed]
            if needed and all(needed):
                raise CrewUnfit(f"{member.job.name} cannot start ({why})")
            self._say(f"{member.job.name} ended ({why}); starting it again in {delay:.1f} s")

    def _bury_all(self) -> None:
        for member in self._members:
            if member.process is not None and member.process.poll() is not None:
                self._buried(member.process.pid)
                member.process = None

    def _buried(self, pid: int) -> Deeds:
        deeds = deeds_of(pid)
        forget(pid)
        self._deeds.finished += deeds.finished
        self._deeds.handed_over += deeds.handed_over
        return deeds

    def end_frozen(self) -> None:
        """Kill children that have not beaten for long; to be called every few seconds."""
        now = self._clock()
        asleep = now - self._tended_at > _LOOK_AT_BEATS * 2  # we were frozen ourselves: nobody is to blame
        self._tended_at = now
        for member in self._members:
            self._end_if_frozen(member, now, asleep=asleep)

    def _end_if_frozen(self, member: _Member, now: float, *, asleep: bool) -> None:
        """Kill a child that beat once and does not any more: one that holds its interpreter's lock hears no signal."""
        if (process := _alive(member)) is None:
            return
        beat = last_beat(process.pid)
        if beat != member.beat or asleep:
            member.beat, member.beat_seen_at = beat, now
        elif beat is not None and now - member.beat_seen_at > self._silent:
            self._say(f"{member.job.name} has been silent for {self._silent:.0f} s; ending it by force")
            process.kill()

    def _start(self, member: _Member, now: float) -> None:
        job = member.job
        command = guarded(list(job.command), signal.SIGKILL)
        if job.log is None:
            member.process = subprocess.Popen(command, env=job.env, start_new_session=True)  # noqa: S603
        else:
            with job.log.open("ab") as log:
                member.process = subprocess.Popen(  # noqa: S603
                    command, env=job.env, start_new_session=True, stdout=log, stderr=log, stdin=subprocess.DEVNULL
                )
        member.started_at = now
        member.patience = replace(member.patience, due_at=0.0)


def _alive(member: _Member) -> subprocess.Popen[bytes] | None:
    return member.process if member.process is not None and member.process.poll() is None else None


def _ending(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"


def _reason(log: Path | None) -> str:
    """Return why a child whose output nobody sees did not start, by the last line of its log, or where to look."""
    if log is None:
        return ""
    with log.open("rb") as written:
        written.seek(max(0, log.stat().st_size - _LAST_LINES))
        last = written.read().rstrip().rpartition(b"\n")[2]
    said = last.startswith(_REASON)
    return f": {last.removeprefix(_REASON).decode(errors='replace')}" if said else f", see {log}"
