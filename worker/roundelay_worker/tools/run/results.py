"""What a call comes to: the text for the model, and whether it is known what happened."""

import json
import logging
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import isawaitable, iscoroutine
from typing import Any, Final

from roundelay_worker.loop.history import Effect, Result
from roundelay_worker.tools.context import ToolError
from roundelay_worker.tools.declare.declared import Tool
from roundelay_worker.tools.run.rendering import MOST_PLACES, Rendered, render
from roundelay_worker.tools.run.truncation import shorten

_LOG = logging.getLogger(__name__)

LONGEST_MESSAGE = 4_000
LONGEST_CODE = 64
LONGEST_SAID = 240
NAMES_LISTED = 100

_PARTLY: Final[dict[Effect, str]] = {
    "write": "It may have had part of its effect: check before you try again.",
    "read": "",
}
"""What to do about a call that failed by itself, by the tool's effect."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a call ended.

    ``code`` is '' for success, else the error's code. ``uncertain`` is set for a write that began and of
    which nobody knows whether it took effect.
    """

    result: Result
    uncertain: bool = False
    code: str = ""


def failure(code: str, message: str, recovery: str = "", *, uncertain: bool = False) -> Outcome:
    """Return an error result with its three texts, each bounded: errors are not cut later."""
    code = clean(code)[:LONGEST_CODE] or "tool_error"
    error = {"code": code, "message": _bounded(message), "recovery": _bounded(recovery)}
    text = json.dumps({"error": error}, ensure_ascii=False, separators=(",", ":"))
    return Outcome(Result(text, is_error=True), uncertain, code)


def success(tool: Tool, value: Any, limit: int, arguments: Mapping[str, Any] | None = None) -> Outcome:
    """Return the result for what a tool returned: its string, or JSON; longer than ``limit`` bytes it is cut.

    Never raises. A value that JSON cannot carry is still a success, with a note on what is missing: the call has had
    its effect, and a model that read of a failure would repeat it.
    """
    if _is_awaitable(value):
        return _unawaited(tool, value)
    rendered, said = render(value), _said(tool, arguments or {}, value)
    if not rendered.lost:
        return Outcome(Result(shorten(clean(rendered.text), limit), said=said))
    _LOG.warning("result_not_json tool=%s places=%s", tool.name, len(rendered.lost))
    note = _lost_note(tool, rendered)
    text = shorten(clean(rendered.text), max(limit - len(note.encode()) - 2, 0))
    return Outcome(Result(f"{text}\n\n{note}", said=said))


def _said(tool: Tool, arguments: Mapping[str, Any], value: Any) -> str:
    """Return what the tool's own summary says of a call; '' where it has none, or fails: the call has not."""
    if tool.summary is None or tool.private is True:
        return ""
    given = {name: argument for name, argument in arguments.items() if name != tool.signature.context_parameter}
    try:
        return " ".join(clean(str(tool.summary(given, value))).split())[:LONGEST_SAID]
    except BaseException as exc:  # noqa: BLE001 - the project's own code
        _LOG.warning("summary_failed tool=%s error=%s", tool.name, type(exc).__name__)
        return ""


def tool_failure(tool: Tool, exc: BaseException) -> Outcome:
    """Return the error result for what a tool raised: a ToolError's own text, of all else only the class name."""
    if isinstance(exc, ToolError):
        return failure(exc.code, exc.message, exc.recovery)
    _LOG.warning("tool_failed tool=%s error=%s at=%s", tool.name, type(exc).__name__, _raised_at(exc))
    return failure("tool_failed", f"The tool failed with {type(exc).__name__}.", _PARTLY[tool.effect])


def timeout_failure(tool: Tool, timeout: float, *, began: bool = True) -> Outcome:
    """Return the error result of a call that overran; a write that had begun is uncertain."""
    if tool.effect == "write" and began:
        return unknown_failure(f"timed out after {timeout:g} s")
    return failure("timed_out", f"timed out after {timeout:g} s", "Ask for less at once, or go on without it.")


def unknown_failure(reason: str) -> Outcome:
    """Return the error result of a write that began and of which nobody knows whether it took effect."""
    return failure(
        "outcome_unknown",
        f"{reason}; it is not known whether it took effect",
        "Do not repeat it. Check whether it took effect if another tool can tell, and tell the user.",
        uncertain=True,
    )


def unknown_tool_failure(name: str, names: Sequence[str]) -> Outcome:
    """Return the error result of a call to a tool that is not there."""
    listed = ", ".join(names[:NAMES_LISTED]) or "none"
    return failure("unknown_tool", f"There is no tool {name[:LONGEST_CODE]!r}.", f"Use one of: {listed}.")


def clean(text: str) -> str:
    """Return ``text`` as UTF-8 and PostgreSQL can hold it: lone surrogates and NUL replaced."""
    return text.encode("utf-8", "replace").decode().replace("\x00", "\ufffd")


def _bounded(text: object) -> str:
    return clean(str(text))[:LONGEST_MESSAGE]


def _is_awaitable(value: Any) -> bool:
    try:
        return isawaitable(value)
    except BaseException:  # noqa: BLE001 - even isinstance runs code of the project: __class__ may be a property
        return False


def _unawaited(tool: Tool, value: Any) -> Outcome:
    """Return the error result of a sync tool that returned something to await; closed, so that nothing warns of it."""
    if iscoroutine(value):
        value.close()
    message = "The tool returned a coroutine that nobody awaits: declare it with async def."
    return failure("tool_failed", message, _PARTLY[tool.effect])


def _lost_note(tool: Tool, rendered: Rendered) -> str:
    done = "The call took effect; do not repeat it." if tool.effect == "write" else "The call succeeded."
    places = ", ".join(clean(place) for place in rendered.lost[:MOST_PLACES])
    rest = len(rendered.lost) - MOST_PLACES
    more = f" and {rest} more" if rest > 0 else ""
    return f"Note: {done} JSON cannot carry this part of its result: {places}{more}."


def _raised_at(exc: BaseException) -> str:
    frames = traceback.extract_tb(exc.__traceback__)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "?"
