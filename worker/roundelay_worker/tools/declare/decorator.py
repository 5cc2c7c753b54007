"""``@tool``: turns a typed function into a tool, or says at import what to mend."""

import inspect
import math
import re
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any, TypeVar, get_type_hints, overload

from roundelay_worker.loop.history import Effect
from roundelay_worker.loop.plain import named
from roundelay_worker.tools.declare.declared import MARK, Tool, ToolKind, Verify
from roundelay_worker.tools.declare.docstrings import read_docstring
from roundelay_worker.tools.declare.signature import InvalidTool, Signature, is_context, read_signature

F = TypeVar("F", bound=Callable[..., Any])

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


@overload
def tool(function: F, /) -> F: ...


@overload
def tool(
    *,
    effect: Effect = "write",
    name: str = "",
    description: str = "",
    timeout: float | None = None,
    isolated: bool = False,
    idempotent: bool = False,
    polling: bool = False,
    verify: Callable[..., Any] | None = None,
    title: str = "",
    summary: Callable[[dict[str, Any], Any], str] | None = None,
    private: bool | Sequence[str] = False,
) -> Callable[[F], F]: ...


def tool(
    function: Any = None,
    /,
    *,
    effect: Effect = "write",
    name: str = "",
    description: str = "",
    timeout: float | None = None,
    isolated: bool = False,
    idempotent: bool = False,
    polling: bool = False,
    verify: Callable[..., Any] | None = None,
    title: str = "",
    summary: Callable[[dict[str, Any], Any], str] | None = None,
    private: bool | Sequence[str] = False,
) -> Any:
    """Make a typed function, sync or async, a tool; the function itself stays callable as before.

    The JSON schema comes from the signature, the description from the docstring (``Args`` describes the
    parameters). A parameter typed ToolContext is filled in by the worker. Raises InvalidTool at import.

    Args:
        function: the function, when used as a bare ``@tool``.
        effect: ``write`` (runs alone, at most once), or ``read`` (may run together with other reads, and again).
        name: what the model calls it; default: the function's name.
        description: what the model reads about it; default: the docstring.
        timeout: seconds for one call; default: the worker's ``tool_timeout``.
        isolated: run this sync function in a child process that is killed at its timeout.
        idempotent: this write may be repeated under the same ``idempotency_key`` without a second effect.
        polling: calling it again and again with the same result is no repetition.
        verify: tells whether a write of unknown outcome took effect. It takes any of the tool's parameters,
            by name, and a ToolContext, and returns True (it did), False (it did not), None (unknown), or the
            value that the tool would have returned.
        title: what a person calls it in answers and progress; default: the name in words.
        summary: says of a call what a person should read, from its arguments (by name) and what the function
            returned: "an email to ana@example.com". Default: the first plain fields. What it raises is logged only.
        private: keep arguments and results out of answers and of what readers see; a list of parameters keeps those
            and the result.
    """

    def declare(decorated: F) -> F:
        place = _place(decorated)
        _check(
            decorated,
            place,
            name=name or decorated.__name__,
            effect=effect,
            timeout=timeout,
            isolated=isolated,
            verify=verify,
        )
        described = read_docstring(decorated.__doc__)
        signature = read_signature(decorated, place, described.parameters)
        declared = Tool(
            name=name or decorated.__name__,
            description=description or described.text or decorated.__name__.replace("_", " "),
            function=decorated,
            signature=signature,
            effect=effect,
            timeout=timeout,
            kind="isolated" if isolated else _kind(decorated),
            idempotent=idempotent,
            polling=polling,
            verify=None if verify is None else _verify(verify, signature, place),
            title=title or named(name or decorated.__name__),
            summary=summary,
            private=_private(private, signature, place),
            module=decorated.__module__,
            place=place,
        )
        setattr(decorated, MARK, declared)
        return decorated

    return declare if function is None else declare(function)


def _place(function: Any) -> str:
    if not isinstance(function, FunctionType):
        raise InvalidTool(
            f"@tool takes a plain function, not {type(function).__name__}: decorate a def at module level"
        )
    return f"{function.__module__}.{function.__qualname__} (line {function.__code__.co_firstlineno})"


def _kind(function: Callable[..., Any]) -> ToolKind:
    return "async" if inspect.iscoroutinefunction(function) else "thread"


def _check(
    function: Callable[..., Any],
    place: str,
    *,
    name: str,
    effect: Effect,
    timeout: float | None,
    isolated: bool,
    verify: Callable[..., Any] | None,
) -> None:
    """Raise InvalidTool for the first of the options that cannot hold together."""
    local = "<locals>" in function.__qualname__
    owner = function.__qualname__.rpartition(".")[0]
    faults = {
        "is a method: a tool is a function of its own, move it to the top of a module": (
            bool(owner) and not owner.endswith("<locals>")
        ),
        f"is named {name!r}: use up to 64 ASCII letters, digits, _ and -, beginning with a letter or _": (
            not _NAME.fullmatch(name)
        ),
        f"has the effect {effect!r}: it is 'read' or 'write'": effect not in {"read", "write"},
        "has a timeout that is not a positive number of seconds": (
            timeout is not None and not (math.isfinite(timeout) and timeout > 0)
        ),
        "is a generator: return the whole value instead of yielding": (
            inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
        ),
        "is async and isolated: isolated tools are sync functions, remove async or isolated=True": (
            isolated and inspect.iscoroutinefunction(function)
        ),
        "is isolated and defined inside a function: move it to the top of a module, where a child process finds it": (
            isolated and local
        ),
        "is isolated in the main script: move it to a module that a child process can import": (
            isolated and function.__module__ == "__main__"
        ),
        "is a read with verify=: only a write has an outcome to verify": verify is not None and effect == "read",
    }
    for fault, found in faults.items():
        if found:
            raise InvalidTool(f"{place} {fault}")


def _verify(verify: Callable[..., Any], signature: Signature, place: str) -> Verify:
    """Return ``verify`` with what it takes; raise InvalidTool if it takes what the tool does not have."""
    if not isinstance(verify, FunctionType):
        raise InvalidTool(f"{place} has a verify= that is not a function: pass a def")
    hints = get_type_hints(verify, include_extras=True)
    parameters = tuple(inspect.signature(verify).parameters)
    context = next((name for name in parameters if is_context(hints.get(name))), "")
    names = tuple(name for name in parameters if name != context)
    for name in names:
        if name not in signature.names:
            raise InvalidTool(
                f"{place} has a verify= with the parameter {name}: it may take {_listed(signature.names)}"
            )
    return Verify(verify, names, context, _kind(verify))


def _private(private: bool | Sequence[str], signature: Signature, place: str) -> bool | tuple[str, ...]:
    """Return what is private; raise InvalidTool for a parameter that the tool does not have."""
    if isinstance(private, bool):
        return private
    names = (private,) if isinstance(private, str) else tuple(private)
    for name in names:
        if name not in signature.names:
            raise InvalidTool(f"{place} has private= with the parameter {name}: it has {', '.join(signature.names)}")
    return names


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join((*names, "a parameter typed ToolContext"))
