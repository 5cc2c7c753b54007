"""The words of the command line."""

import os
from argparse import ArgumentParser, ArgumentTypeError, Namespace, RawDescriptionHelpFormatter
from importlib.metadata import version
from typing import Final

Options = Namespace

_LAST_PORT: Final = 65_535
_EXITS: Final = "exit codes: 0 answered, 3 stopped at a limit, 1 failed, refused or cancelled, 124 timeout, 2 usage"
_LINES: Final = {
    "demo": "start everything embedded, answer some messages with real tools, show what happened",
    "up": "start everything embedded and keep it running",
    "worker": "run worker processes, restarting those that die",
    "beat": "run Celery's scheduler",
    "flower": "run Flower, the web page that shows the workers",
    "ask": "send a message and wait for its answer",
    "show": "show the timeline of a message",
    "cancel": "cancel a message",
    "doctor": "check Redis, broker, database, model and settings, and say what to mend",
    "prune": "delete messages that ended long ago",
    "healthz": "exit 0 if messages can be accepted and worked on here",
}


def parser() -> ArgumentParser:
    """Return the parser; ``command`` is the name of the module that runs what was asked for."""
    whole = ArgumentParser(prog="roundelay", description="Language-model messages as durable background rounds.")
    whole.add_argument("--version", action="version", version=f"roundelay {version('roundelay-worker')}")
    commands = whole.add_subparsers(dest="command", required=True, metavar="COMMAND")
    made = {
        name: commands.add_parser(
            name,
            help=line,
            description=line,
            epilog=_EXITS if name == "ask" else None,
            formatter_class=RawDescriptionHelpFormatter,
        )
        for name, line in _LINES.items()
    }
    _services(made)
    _messages(made)
    _care(made)
    return whole


def _services(made: dict[str, ArgumentParser]) -> None:
    made["demo"].add_argument("--model", help="provider:model to use instead of the demo rules")
    made["up"].add_argument("--postgres", action="store_true", help="an embedded PostgreSQL instead of SQLite")
    made["up"].add_argument("--no-flower", action="store_true", help="without Flower")
    made["up"].add_argument("--processes", type=_count, default=min(2, _cores()), help="default %(default)s")
    made["worker"].add_argument("--processes", type=_count, default=_cores(), help="default: one a core (%(default)s)")
    for name in ("up", "worker"):
        made[name].add_argument("--concurrency", type=_count, help="slots of each process (ROUNDELAY_CONCURRENCY)")
    made["flower"].add_argument("--address", default="127.0.0.1", help="where to listen, default %(default)s")
    made["flower"].add_argument("--port", type=_port, default=5555, help="default %(default)s")


def _messages(made: dict[str, ArgumentParser]) -> None:
    ask = made["ask"]
    ask.add_argument("text", help="the message; - reads it from the standard input")
    ask.add_argument("--conversation", metavar="ID", help="go on in this conversation")
    ask.add_argument("--user", metavar="ID", default="", help="on behalf of this user")
    ask.add_argument("--model", help="provider:model")
    ask.add_argument("--max-rounds", type=int, metavar="N", help="at most N rounds of tools")
    ask.add_argument("--timeout", type=_seconds, metavar="SECONDS", help="wait no longer; the message goes on")
    ask.add_argument("--json", action="store_true", help="the answer as one JSON object")
    made["show"].add_argument("--json", action="store_true", help="as one JSON object")
    for name in ("show", "cancel"):
        made[name].add_argument("message_id")


def _care(made: dict[str, ArgumentParser]) -> None:
    made["doctor"].add_argument("--json", action="store_true", help="the findings as one JSON object")
    made["healthz"].add_argument("--live", action="store_true", help="only whether a process here is frozen")
    made["prune"].add_argument(
        "--older-than", type=_seconds, metavar="SECONDS", help="default: ROUNDELAY_RETENTION, 30 days"
    )


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError("must be a whole number from 1 up")
    return int(text)


def _port(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= _LAST_PORT:
        raise ArgumentTypeError("must be a port from 1 to 65535")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise ArgumentTypeError("must be a number of seconds")
    return seconds
