"""Calls ``ROUNDELAY_SETUP``, and tells in one line what a project's own code raised."""

import importlib
import traceback
from inspect import iscoroutine
from pathlib import Path
from typing import Final

_LONGEST: Final = 300
_NOT_THEIRS: Final = ("<frozen", importlib.__file__, f"{Path(__file__).parents[1]}/")


class SetupNotFound(LookupError):
    """``ROUNDELAY_SETUP`` does not name a function; the text says what to mend."""


def call_setup(setup: str) -> None:
    """Call the function that ``module:function`` names; what it raises goes to the caller."""
    module, colon, name = setup.partition(":")
    if not (module and colon and name):
        raise SetupNotFound("ROUNDELAY_SETUP is written module:function")
    function = getattr(importlib.import_module(module), name, None)
    if not callable(function):
        raise SetupNotFound(f"ROUNDELAY_SETUP names {name}, which is not a function of {module}")
    returned = function()
    if iscoroutine(returned):
        returned.close()
        raise SetupNotFound(
            f"ROUNDELAY_SETUP names {name}, which is async: nothing would await it; make it a plain def"
        )


def in_one_line(exc: BaseException) -> str:
    """Return class, first line and place of an exception, the place where it lies in the project's own code."""
    told = next(iter(str(exc).splitlines()), "")[:_LONGEST]
    frames = [frame for frame in traceback.extract_tb(exc.__traceback__) if not frame.filename.startswith(_NOT_THEIRS)]
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(exc).__name__}{': ' if told else ''}{told}{place}"
