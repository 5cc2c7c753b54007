"""Calls that leak into the visible text, as servers without a parser for their model let them through."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from roundelay_worker.testing.fake_llm.refusal import as_object
from roundelay_worker.testing.fake_llm.script import Leak, ScriptedCall

_BAR = "\uff5cDSML\uff5c"


def _qwen(name: str, arguments: Mapping[str, Any]) -> str:
    inner = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments.items())
    return f"<tool_call>\n<function={name}>\n{inner}</function>\n</tool_call>"


def _dsml(name: str, arguments: Mapping[str, Any]) -> str:
    inner = "".join(f'<{_BAR}parameter name="{key}">{value}</{_BAR}parameter>' for key, value in arguments.items())
    call = f'<{_BAR}invoke name="{name}">{inner}</{_BAR}invoke>'
    return f"<{_BAR}function_calls>{call}</{_BAR}function_calls>"


_STYLES: dict[Leak, Callable[[str, Mapping[str, Any]], str]] = {
    "hermes": lambda name, arguments: f"<tool_call>\n{_call(name, arguments)}\n</tool_call>",
    "qwen": _qwen,
    "mistral": lambda name, arguments: f"[TOOL_CALLS][{_call(name, arguments)}]",
    "llama": lambda name, arguments: f"<|python_tag|>{_call(name, arguments)}",
    "dsml": _dsml,
    "harmony": lambda name, arguments: (
        f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{json.dumps(arguments)}<|call|>"
    ),
}


def leaked(call: ScriptedCall, style: bool | Leak) -> str:
    """Return a call as text in a style; true means ``hermes``."""
    return _STYLES["hermes" if isinstance(style, bool) else style](call.name, as_object(call.arguments))


def _call(name: str, arguments: Mapping[str, Any]) -> str:
    return json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
