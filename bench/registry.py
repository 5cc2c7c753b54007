"""The systems by name; a module is imported only when its system takes part."""

from importlib import import_module

from bench.system import System

SYSTEMS = {
    "bare": "bench.systems.bare:Bare",
    "bare-pg": "bench.systems.bare_pg:BarePg",
    "celery-chain": "bench.systems.celery_chain:CeleryChain",
    "dbos": "bench.systems.dbos_agent:Dbos",
    "langgraph": "bench.systems.langgraph_agent:LangGraph",
    "roundelay": "bench.systems.ours:Roundelay",
}


def system(name: str) -> type[System]:
    """Return the adapter of that name."""
    module, _, kind = SYSTEMS[name].partition(":")
    found: type[System] = getattr(import_module(module), kind)
    return found
