"""The tools of a worker: those of the project's modules, and the built-in ones."""

import importlib
from collections.abc import Callable, Iterable, Sequence
from types import MappingProxyType, ModuleType
from typing import Any, Self

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


class UnknownTools(LookupError):
    """A message names tools that this worker does not have; ``names`` are missing, ``known`` are there."""

    def __init__(self, names: Sequence[str], known: Sequence[str]) -> None:
        super().__init__(f"unknown tools: {', '.join(names)}; known are {', '.join(known)}")
        self.names = tuple(names)
        self.known = tuple(known)


class ToolModuleFailed(Exception):
    """A module of ``ROUNDELAY_TOOL_MODULES`` cannot be imported or declares no tool; the text says what to mend."""


class Registry:
    """Tools by name, always in the order of their names: what is sent to a model is the same in every process."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        named: dict[str, Tool] = {}
        for declared in tools:
            other = named.setdefault(declared.name, declared)
            if other is not declared:
                raise InvalidTool(
                    f"two tools are named {declared.name}: {other.place} and {declared.place}; rename one"
                )
        self._tools = MappingProxyType(dict(sorted(named.items())))

    @classmethod
    def load(cls, modules: Sequence[str], fetch_policy: FetchPolicy | None = None) -> Self:
        """Import ``modules`` and return their tools with the built-in ones; a project's own name goes before.

        Raises ToolModuleFailed for a module that cannot be used, InvalidTool for a wrong declaration.
        """
        own = [tool for name in modules for tool in _tools_of(name)]
        taken = {tool.name for tool in own}
        built_in = [tool for tool in built_in_tools(fetch_policy or FetchPolicy()) if tool.name not in taken]
        return cls([*built_in, *own])

    def names(self) -> tuple[str, ...]:
        """Return the names of all tools, sorted."""
        return tuple(self._tools)

    def get(self, name: str) -> Tool | None:
        """Return the tool of this name, or None."""
        return self._tools.get(name)

    def specs(self, names: Sequence[str] | None) -> tuple[ToolSpec, ...]:
        """Return the declarations of ``names`` (None: of all), sorted by name; raise UnknownTools."""
        wanted = self.names() if names is None else tuple(sorted(set(names)))
        unknown = [name for name in wanted if name not in self._tools]
        if unknown:
            raise UnknownTools(unknown, self.names())
        return tuple(self._tools[name].spec for name in wanted)


def built_in_tools(fetch_policy: FetchPolicy) -> tuple[Tool, ...]:
    """Return the tools that are always there."""
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
