"""The tools of a worker: those of the project's modules, and the built-in ones."""

import importlib
from collections.abc import Callable, Iterable, Sequence
from types import MappingProxyType, ModuleType
from typing import Any, Final, Self

from roundelay_worker.providers.base import ToolSpec
from roundelay_worker.tools.builtin.calculator import calculator
from roundelay_worker.tools.builtin.convert_units import convert_units
from roundelay_worker.tools.builtin.current_time import current_time
from roundelay_worker.tools.builtin.fetch_url import make_fetch_url
from roundelay_worker.tools.builtin.fetching import Fetcher, FetchPolicy
from roundelay_worker.tools.builtin.lookup import lookup
from roundelay_worker.tools.declare.declared import Tool, tool_of, tools_in
from roundelay_worker.tools.declare.signature import InvalidTool
from roundelay_worker.tools.setting_up import in_one_line

ALL: Final = "all"
"""What ``ROUNDELAY_BUILTIN_TOOLS`` may say instead of every name."""


class ToolModuleFailed(Exception):
    """A module of ``ROUNDELAY_TOOL_MODULES`` cannot be imported or declares no tool; the text says what to mend."""


class UnknownBuiltIn(ValueError):
    """``ROUNDELAY_BUILTIN_TOOLS`` names what is no built-in tool; the text says which there are."""


class Registry:
    """Tools by name, always in the order of their names: what is sent to a model is the same in every process.

    ``spare`` tools are there when asked for ``with_spare`` only: the built-in ones that no setting turned on.
    """

    def __init__(self, tools: Iterable[Tool], spare: Iterable[Tool] = ()) -> None:
        named: dict[str, Tool] = {}
        for declared in tools:
            other = named.setdefault(declared.name, declared)
            if other is not declared:
                raise InvalidTool(
                    f"two tools are named {declared.name}: {other.place} and {declared.place}; rename one"
                )
        self._tools = MappingProxyType(dict(sorted(named.items())))
        self._all = MappingProxyType(dict(sorted({**{tool.name: tool for tool in spare}, **named}.items())))

    @classmethod
    def load(
        cls, modules: Sequence[str], built_in: Sequence[str] = (), fetch_policy: FetchPolicy | None = None
    ) -> Self:
        """Import ``modules`` and return their tools and the ``built_in`` ones that are named (or ``all``).

        A project's own name goes before a built-in one. Raises ToolModuleFailed for a module that cannot be used,
        InvalidTool for a wrong declaration, UnknownBuiltIn for a name that is none.
        """
        there = {tool.name: tool for tool in built_in_tools(fetch_policy or FetchPolicy())}
        if strangers := sorted(set(built_in) - {*there, ALL}):
            raise UnknownBuiltIn(
                f"ROUNDELAY_BUILTIN_TOOLS: {', '.join(strangers)} is no built-in tool; there are "
                f"{', '.join(there)}, and {ALL} for all of them"
            )
        own = [tool for name in modules for tool in _tools_of(name)]
        taken = {tool.name for tool in own}
        chosen = [tool for name, tool in there.items() if name not in taken and {name, ALL} & set(built_in)]
        return cls([*chosen, *own], spare=there.values())

    def names(self, *, with_spare: bool = False) -> tuple[str, ...]:
        """Return the names of all tools, sorted."""
        return tuple(self._all if with_spare else self._tools)

    def get(self, name: str) -> Tool | None:
        """Return the tool of this name, a spare one too, or None."""
        return self._all.get(name)

    def specs(self) -> tuple[ToolSpec, ...]:
        """Return the declarations of all tools that are on, sorted by name."""
        return tuple(tool.spec for tool in self._tools.values())


def built_in_tools(fetch_policy: FetchPolicy) -> tuple[Tool, ...]:
    """Return the tools that come with the worker."""
    functions: tuple[Callable[..., Any], ...] = (
        calculator,
        convert_units,
        current_time,
        make_fetch_url(Fetcher(fetch_policy)),
        lookup,
    )
    return tuple(declared for declared in map(tool_of, functions) if declared is not None)


def _tools_of(name: str) -> tuple[Tool, ...]:
    """Import a module and return its tools; each isolated one is where its child process will look for it."""
    module = _imported(name)
    found = tools_in(module)
    if not found:
        raise ToolModuleFailed(f"ROUNDELAY_TOOL_MODULES: {name} holds no function decorated with @tool")
    for declared in found:
        if declared.isolated and declared not in tools_in(_imported(declared.module)):
            raise InvalidTool(
                f"{declared.place} is isolated: keep it under a name of its own module, {declared.module}"
            )
    return found


def _imported(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except InvalidTool:
        raise
    except (Exception, SystemExit) as exc:
        raise ToolModuleFailed(f"ROUNDELAY_TOOL_MODULES: {name} cannot be imported: {in_one_line(exc)}") from exc
