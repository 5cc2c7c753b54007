"""A declared tool, as a value."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Final, Literal

from roundelay_worker.loop.history import Effect
from roundelay_worker.providers.base import ToolSpec
from roundelay_worker.tools.declare.signature import Signature

MARK: Final = "__roundelay_tool__"
"""The attribute of a decorated function that holds its Tool."""

ToolKind = Literal["async", "thread", "isolated"]
"""Where a tool runs: on the worker's event loop, in a thread of its own, in a child process of its own."""


@dataclass(frozen=True, slots=True)
class Verify:
    """The function that tells whether a write took effect, and which of the tool's arguments it takes."""

    function: Callable[..., Any]
    names: tuple[str, ...]
    context_parameter: str
    kind: ToolKind

    def arguments(self, arguments: Mapping[str, Any], context: Any) -> dict[str, Any]:
        """Return what to call ``function`` with."""
        chosen = {name: arguments[name] for name in self.names}
        return chosen | ({self.context_parameter: context} if self.context_parameter else {})


@dataclass(frozen=True, slots=True, eq=False)
class Tool:
    """What ``@tool`` made of a function. ``timeout`` is None where the tool sets none; ``place`` is for people."""

    name: str
    description: str
    function: Callable[..., Any] = field(repr=False)
    signature: Signature = field(repr=False)
    effect: Effect
    timeout: float | None
    kind: ToolKind
    idempotent: bool
    polling: bool
    verify: Verify | None = field(repr=False)
    title: str
    """What a person calls it."""
    summary: Callable[[dict[str, Any], Any], str] | None = field(repr=False)
    """Says of a call what a person should read, from its arguments and what the function returned."""
    private: bool | tuple[str, ...]
    """What is kept from people and readers: arguments and results, or these parameters and the results."""
    module: str
    place: str

    @property
    def isolated(self) -> bool:
        """Whether it runs in a child process."""
        return self.kind == "isolated"

    @property
    def spec(self) -> ToolSpec:
        """The tool as it is declared to a model."""
        return ToolSpec(self.name, self.description, self.signature.schema)


def tool_of(value: object) -> Tool | None:
    """Return the Tool that ``value`` was decorated into, or None."""
    declared = getattr(value, MARK, None) if callable(value) else None
    return declared if isinstance(declared, Tool) else None


def tools_in(module: ModuleType) -> tuple[Tool, ...]:
    """Return the tools among the names of ``module``, each once, in the order they stand there."""
    found = (tool_of(value) for value in vars(module).values())
    return tuple(dict.fromkeys(declared for declared in found if declared is not None))
