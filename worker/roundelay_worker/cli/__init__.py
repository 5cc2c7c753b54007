"""The command ``roundelay``: one file a command, each imported only when it is asked for.

Nothing is imported here: a Ctrl-C in the first second, while all the rest is, ends without a traceback too.
"""

from collections.abc import Callable, Sequence
from pkgutil import resolve_name
from typing import Final

INTERRUPTED: Final = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; what went wrong is told in a sentence on stderr."""
    try:
        run: Callable[[Sequence[str] | None], int] = resolve_name(f"{__name__}.running:run")
        return run(arguments)
    except KeyboardInterrupt:
        return INTERRUPTED
