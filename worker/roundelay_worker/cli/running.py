"""Runs one command, and turns what it raised into a sentence and an exit code."""

import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from io import TextIOWrapper
from pkgutil import resolve_name
from types import FrameType
from typing import Final

from roundelay.errors import InvalidSubmission, NotConfigured, RoundelayError
from roundelay_worker.cli.failed import CommandFailed
from roundelay_worker.cli.parser import Options, parser
from roundelay_worker.embedded.child import EmbeddedError
from roundelay_worker.settings import SettingsError

FAILED: Final = 1
USAGE: Final = 2

Command = Callable[[Options, Mapping[str, str]], int]


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; what went wrong is told in a sentence on stderr."""
    _write_anywhere()
    options = parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _leave)
    command: Command = resolve_name(f"{__package__}.{options.command}:run")
    try:
        return command(options, os.environ)
    except (SettingsError, InvalidSubmission, NotConfigured) as exc:
        return _told(options, exc, USAGE)
    except (EmbeddedError, RoundelayError, CommandFailed) as exc:
        return _told(options, exc, FAILED)
    except BrokenPipeError:  # whoever read us has had enough
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115  # so that the flush at exit is silent
        return FAILED


def _write_anywhere() -> None:
    """Have letters that the output's encoding does not know replaced, where they would break the command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


def _leave(number: int, _frame: FrameType | None) -> None:
    """End through every ``finally``, so that what was started here is ended too."""
    sys.exit(128 + number)


def _told(options: Options, exc: Exception, code: int) -> int:
    sys.stderr.write(f"roundelay {options.command}: {exc}\n")
    return code
