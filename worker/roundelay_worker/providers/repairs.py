"""Which single change to a request may mend a refusal; names as in ``base.Repair``."""

import re
from typing import Final

from roundelay_worker.providers.base import Repair
from roundelay_worker.providers.reported import Reported

_OVERFLOW_WORDS: Final = frozenset(
    {
        "context_length_exceeded",
        "model_context_window_exceeded",
        "exceed_context_size_error",
        "too_many_prompt_tokens",
    }
)
_OVERFLOW: Final = re.compile(
    r"prompt is too long|exceed context limit|exceeds the context window|context[_ ]length[_ ]exceeded"
    r"|maximum context length|input token count.{0,80}exceeds the maximum|maximum prompt length is \d+"
    r"|reduce the length of the (?:messages|input)|exceeds the available context size"
    r"|greater than the context length|exceeded model token limit|too large for model with \d+ maximum"
    r"|prompt too long; exceeded max|context window exceeds limit|input is too long for requested model"
    r"|range of input length should be|string_above_max_length|input context (?:is )?too long",
    re.IGNORECASE,
)
_TOO_LARGE: Final = re.compile(r"request too large for|payload size exceeds the limit", re.IGNORECASE)
_REASONING_WORDS: Final = frozenset({"invalid_encrypted_content"})
_REASONING: Final = re.compile(
    r"invalid `?signature`?|(?:corrupted|invalid) thought signature|thought signature is not valid"
    r"|missing a thought_signature"
    r"|encrypted content\b.{0,2000}?\bcould not be|`(?:redacted_)?thinking` blocks|expected `thinking`"
    r"|items are not persisted when|without its required (?:following item|'reasoning' item)",
    re.IGNORECASE | re.DOTALL,
)
_REASONING_FIELD: Final = re.compile(
    r"(?:messages|input)\W.{0,40}\b(?:reasoning|reasoning_content|reasoning_details)\b"
    r"|reasoning_(?:content|details)\b.{0,60}(?:not support|unsupported|not permitted|not allowed|unknown|unexpected)",
    re.IGNORECASE,
)
_SYSTEM_ROLE: Final = re.compile(
    r"\brole\b.{0,60}(?:not support|unsupported|invalid|unknown|not allowed)|(?:unsupported|unknown|unexpected|invalid)"
    r"(?: value)?.{0,30}\brole\b|developer instruction is not enabled",
    re.IGNORECASE,
)
_AFTER_TOOL: Final = re.compile(r"role '?user'? after role '?tool|expected last role user or tool", re.IGNORECASE)
_NINE: Final = re.compile(r"call id was .{0,200}with a length of 9", re.IGNORECASE | re.DOTALL)
_ANSWER_REASONING: Final = re.compile(r"reasoning_content.{0,60}must be passed back", re.IGNORECASE)
_NULL_CONTENT: Final = re.compile(
    r"content type: <nil>|content.{0,60}(?:must|should) (?:be|contain) a (?:valid )?string|content.{0,40}\bnull\b",
    re.IGNORECASE,
)
_MAX_TOKENS: Final = re.compile(r"\bmax_?(?:completion_|output_?)?tokens\b", re.IGNORECASE)
_TOO_MANY_TOKENS: Final = re.compile(r"too large|too high|at most|less than|exceed|maximum|range", re.IGNORECASE)
_STREAMING: Final = re.compile(
    r"stream(?:ing)? (?:is |mode )?(?:not|un)\W?support|not support stream(?:ing)?\b(?!_)|to stream this model",
    re.IGNORECASE,
)
_ENCRYPTED_REFUSED: Final = re.compile(
    r"encrypted content is not supported|\binclude\b.{0,30}not support", re.IGNORECASE
)
_REFUSED_WORDS: Final = frozenset({"unsupported_parameter", "unknown_parameter", "extra_forbidden"})
_REFUSED: Final = re.compile(
    r"(?:unsupported|unrecognized|unknown|unexpected|extra)\s+(?:request\s+)?"
    r"(?:parameter|argument|field|name|keyword argument|key)\w*(?: supplied)?:?\s+['\"`]?(?P<a>[a-z_][\w.\[\]]*)"
    r"|(?P<b>[a-z_][\w.\[\]]*)['\"`]?:? (?:extra inputs are|is|was|are) (?:currently )?"
    r"(?:not (?:supported|allowed|permitted)|unsupported|deprecated)"
    r"|(?P<c>[a-z_][\w.\[\]]*):? extra inputs are not permitted"
    r"|not support (?:the )?(?:parameter |field )?['\"`]?(?P<d>[a-z_]\w*)"
    r"|(?P<e>[a-z_]\w*)['\"`]? may only be set",
    re.IGNORECASE,
)
_LISTED: Final = re.compile(
    r"(?:not support|unsupported|unknown|unrecognized|unexpected|invalid)[^\[\]]{0,60}?"
    r"(?:parameters?|params?|arguments?|fields?|keys?)\b[^\[\]\n]{0,30}?[:=]?\s*[\[({]([^\])}]{1,400})[\])}]",
    re.IGNORECASE,
)
"""Gateways refuse several at once, as a list."""
_NAME: Final = re.compile(r"[a-zA-Z_]\w*")
_THINKING_REFUSED: Final = re.compile(
    r"thinking[_ ](?:level|budget|mode)|thinking (?:is not enabled|can't be disabled)", re.IGNORECASE
)
_REASONING_NAMES: Final = frozenset(
    {"reasoning", "reasoning_effort", "effort", "thinking", "output_config", "thinkingconfig", "thinking_config"}
    | {"thinking_level", "thinkinglevel", "thinking_budget", "thinkingbudget"}
)
_OPTIONAL: Final = frozenset(
    {"temperature", "include", "stream_options", "parallel_tool_calls", "prompt_cache_key", "store", "strict"}
    | {"tool_choice", "cache_control", "user", "metadata", "service_tier"}
)


def is_overflow(reported: Reported) -> bool:
    """Say whether the request outgrew the model's window."""
    return bool(reported.words & _OVERFLOW_WORDS) or bool(_OVERFLOW.search(reported.text))


def is_too_large(reported: Reported) -> bool:
    """Say whether the request is above a size that no waiting changes."""
    return "request_too_large" in reported.words or bool(_TOO_LARGE.search(reported.text))


def repair_for(reported: Reported) -> Repair:
    """Return the change that may mend a refused request, '' if none is known."""
    text = reported.text
    if reported.words & _REASONING_WORDS or _REASONING.search(text) or _REASONING_FIELD.search(text):
        return "drop_reasoning"
    for pattern, repair in (
        (_ANSWER_REASONING, "add:reasoning_content"),
        (_AFTER_TOOL, "role:bridge"),
        (_NINE, "ids:nine"),
        (_ENCRYPTED_REFUSED, "drop:include"),
        (_NULL_CONTENT, "content:empty"),
    ):
        if pattern.search(text):
            return repair
    return _role(reported) or _limit(reported) or _stream(reported) or _parameter(reported)


def _role(reported: Reported) -> Repair:
    about_role = reported.param.endswith("role") or _SYSTEM_ROLE.search(reported.text)
    if not about_role:
        return ""
    if "system" in reported.text:
        return "role:system"
    return "role:user" if "developer" in reported.text.lower() else ""


def _limit(reported: Reported) -> Repair:
    if not (_MAX_TOKENS.search(reported.param) or _MAX_TOKENS.search(reported.text)):
        return ""
    if "instead" in reported.text or reported.words & _REFUSED_WORDS or _REFUSED.search(reported.text):
        return "rename:max_tokens"
    return "drop:max_output_tokens" if _TOO_MANY_TOKENS.search(reported.text) else ""


def _stream(reported: Reported) -> Repair:
    return "no_stream" if reported.param == "stream" or _STREAMING.search(reported.text) else ""


def _parameter(reported: Reported) -> Repair:
    """Drop what was refused: by the parameter the error names, else by the one its sentence names."""
    if ("effort" in reported.text and "not support" in reported.text) or _THINKING_REFUSED.search(reported.text):
        return "drop:reasoning_effort"
    if name := _neutral(reported.param):
        return f"drop:{name}"
    for found in _LISTED.finditer(reported.text):
        if name := next(filter(None, map(_neutral, _NAME.findall(found[1]))), ""):
            return f"drop:{name}"
    for found in _REFUSED.finditer(reported.text):
        if name := _neutral(next(group for group in found.groups() if group)):
            return f"drop:{name}"
    return ""


def _neutral(path: str) -> str:
    """Return the optional parameter that a path such as ``tools[0].strict`` is about, '' if it is none."""
    parts = [part for part in re.split(r"[.\[\]]+", path.lower()) if part]
    if any(part in _REASONING_NAMES for part in parts):
        return "reasoning_effort"
    return next((part for part in (*parts[:1], *parts[-1:]) if part in _OPTIONAL), "")
