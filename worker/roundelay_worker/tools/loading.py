"""What a worker process does before it may take messages: the project's set-up, then its tools."""

from collections.abc import Sequence

from roundelay_worker.providers.schema import SchemaRefused, check_tools
from roundelay_worker.tools.declare.signature import InvalidTool
from roundelay_worker.tools.registry import Registry, ToolModuleFailed, UnknownBuiltIn
from roundelay_worker.tools.setting_up import SetupNotFound, call_setup, in_one_line


class SetupFailed(Exception):
    """``ROUNDELAY_SETUP`` raised, or is no function; the text is one line that names it and says what came of it."""


UNUSABLE = (SetupFailed, ToolModuleFailed, InvalidTool, SchemaRefused, UnknownBuiltIn)
"""What ``load_tools`` raises: each says in one line what to mend, and comes again at every start until then."""


def load_tools(setup: str | None, modules: Sequence[str], built_in: Sequence[str] = ()) -> Registry:
    """Call the set-up, import the tools, and see that every provider would take them; raise one of ``UNUSABLE``."""
    if setup:
        _set_up(setup)
    registry = Registry.load(modules, built_in)
    check_tools(registry.specs())
    return registry


def _set_up(setup: str) -> None:
    try:
        call_setup(setup)
    except SetupNotFound as exc:
        raise SetupFailed(str(exc)) from exc
    except (Exception, SystemExit) as exc:
        raise SetupFailed(f"ROUNDELAY_SETUP: {setup} failed: {in_one_line(exc)}") from exc
