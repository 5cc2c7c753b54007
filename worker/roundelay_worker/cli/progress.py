"""What a waiting person sees of a message: one live line on a terminal, one line a step elsewhere."""

import time
from collections.abc import Callable
from typing import TextIO

from roundelay.updates import (
    Accepted,
    Gap,
    Retrying,
    TextDelta,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnStarted,
    Update,
)

_WIDTH = 78


class Progress:
    """Writes updates to ``stream``; the last line is rewritten in place where that is a terminal."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._live = stream.isatty()
        self._clock = clock
        self._began = clock()
        self._running: dict[int, str] = {}
        self._turn = "turn 1"

    def show(self, update: Update) -> None:
        """Take in an update and show it, if there is something to see."""
        if line := self._line(update):
            self._write(f"[{self._clock() - self._began:5.1f} s] {line}")

    def say(self, line: str) -> None:
        """Write a line that stays."""
        self.close()
        self._stream.write(f"{line}\n")
        self._stream.flush()

    def close(self) -> None:
        """Take the live line away."""
        if self._live:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def _write(self, line: str) -> None:
        self._stream.write(f"\r\x1b[K{line[:_WIDTH]}" if self._live else f"{line}\n")
        self._stream.flush()

    def _line(self, update: Update) -> str:
        match update:
            case Accepted():
                return "accepted, an earlier message of the conversation goes first" if update.after else "accepted"
            case TurnStarted():
                self._turn, self._running = _turn(update), {}
                return f"{self._turn}: asking the model"
            case TextDelta():
                return f"{self._turn}: the model is writing" if self._live else ""
            case ToolStarted():
                self._running[update.call] = update.tool
                return self._tools(update)
            case ToolFinished():
                self._running.pop(update.call, None)
                return self._finished(update)
            case ToolProgress():
                return f"{_round(update)}: {update.tool}: {update.text}"
            case Retrying():
                return f"{self._turn}: {update.code}; asking again in {update.delay:.0f} s"
            case Gap():
                return "some progress notes were lost"
            case _:
                return ""

    def _tools(self, update: ToolStarted | ToolFinished) -> str:
        return f"{_round(update)}: running {', '.join(self._running.values())}"

    def _finished(self, update: ToolFinished) -> str:
        if self._live and self._running:
            return self._tools(update)
        how = "done" if update.ok else "failed"
        took = "" if update.seconds is None else f" after {update.seconds:.1f} s"
        return f"{_round(update)}: {update.tool} {how}{took}"


def _round(update: ToolStarted | ToolProgress | ToolFinished) -> str:
    return f"round {update.round or update.turn}"


def _turn(update: TurnStarted) -> str:
    """Return what a turn is called: the closing one by what it closes."""
    return f"closing ({update.closing.replace('_', ' ')})" if update.closing else f"turn {update.turn}"
