"""Calls that a server failed to parse and passed on as text.

Only what stands where a call would stand counts: a block that begins on its own line, outside a code fence,
and runs to the end of the text; so an answer that explains such a block does not.
"""

import re
from collections.abc import Collection
from typing import Any, Final

import orjson

_MARKS: Final = re.compile(
    r"""^[ \t]*(?:
        <tool_call>\s*(?:\{|<|\w)                   # Hermes, Qwen, GLM
      | <function=[\w.\-]+>                         # Qwen3-Coder
      | <function_calls>\s*<invoke\b
      | \[TOOL_CALLS\]\s*[\[\{\w]                   # Mistral
      | <\|python_tag\|>                            # Llama
      | <\|tool_calls?_section_begin\|>             # Kimi
      | <\uff5c(?:tool▁calls▁begin|DSML\uff5c)               # DeepSeek
      | <\|(?:start\|>assistant|channel\|>)         # harmony, gpt-oss
    )""",
    re.VERBOSE | re.MULTILINE,
)
_AFTER: Final = re.compile(
    r"(?:</?(?:tool_call|function|parameter|function_calls|invoke)[^>]*>|\}|\]|<\|[\w▁|]+\|>|<?/?[\uff5c][^>]*>|\s)*\Z"
)
_SECTION_ENDS: Final = (
    "</tool_call>",
    "</function>",
    "</function_calls>",
    "<|tool_calls_section_end|>",
    "<\uff5ctool▁calls▁end\uff5c>",
    "\uff5cDSML\uff5cfunction_calls>",
)
_NAME_KEYS: Final = ("name", "function", "tool")
_ARGUMENT_KEYS: Final = frozenset({"arguments", "parameters", "args", "input"})


def has_leaked_calls(text: str, tool_names: Collection[str]) -> bool:
    """Return whether the text holds calls in a model's raw syntax; never so when no tools were declared."""
    if not tool_names or not text:
        return False
    return _is_bare_call(text.strip(), tool_names) or _has_block(text)


def _has_block(text: str) -> bool:
    """Return whether a mark begins a block outside code fences that nothing follows but its own end.

    A text may be full of marks: fences are counted on from the mark before, and the end of the text is judged once.
    """
    last, closes = _last_end(text)
    counted, fences = 0, 0
    for mark in _MARKS.finditer(text):
        fences += text.count("```", counted, mark.start())
        counted = mark.start()
        if fences % 2 == 0 and (closes or mark.start() > last):
            return True
    return False


def _last_end(text: str) -> tuple[int, bool]:
    """Return where the last end of a block stands (-1: nowhere), and whether only ends of others follow it."""
    ends = [(at + len(end), at) for end in _SECTION_ENDS if (at := text.rfind(end)) >= 0]
    past, last = max(ends, default=(0, -1))
    return last, last >= 0 and bool(_AFTER.match(text, past))


def _is_bare_call(text: str, tool_names: Collection[str]) -> bool:
    """Say whether the text is nothing but the JSON of calls to declared tools."""
    if not text.startswith(("{", "[")):
        return False
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    calls = value if isinstance(value, list) else [value]
    return bool(calls) and all(_names_a_tool(call, tool_names) for call in calls)


def _names_a_tool(call: Any, tool_names: Collection[str]) -> bool:
    if not isinstance(call, dict) or not _ARGUMENT_KEYS & call.keys():
        return False
    return any(isinstance(name := call.get(key), str) and name in tool_names for key in _NAME_KEYS)
