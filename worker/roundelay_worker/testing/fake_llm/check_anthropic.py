"""What Anthropic's Messages API refuses, rule by rule, in its own words: the conversation."""

import re
from collections.abc import Iterator, Mapping

from roundelay_worker.testing.fake_llm import check_anthropic_options as options
from roundelay_worker.testing.fake_llm import models, seals
from roundelay_worker.testing.fake_llm.anthropic_request import THINKING, Request, blocks, essence
from roundelay_worker.testing.fake_llm.errors import anthropic as refused
from roundelay_worker.testing.fake_llm.refusal import USUAL, Json, Refusal, Rules, first, is_list_of_objects, lowered
from roundelay_worker.testing.fake_llm.script import MARK

_KEYS: dict[str, frozenset[str]] = {
    "text": frozenset({"text", "citations", "cache_control"}),
    "image": frozenset({"source", "cache_control"}),
    "document": frozenset({"source", "title", "context", "citations", "cache_control"}),
    "thinking": frozenset({"thinking", "signature"}),
    "redacted_thinking": frozenset({"data"}),
    "tool_use": frozenset({"id", "name", "input", "caller", "cache_control"}),
    "tool_result": frozenset({"tool_use_id", "content", "is_error", "cache_control"}),
}
_BY_ROLE = {"tool_use": "assistant", "thinking": "assistant", "redacted_thinking": "assistant", "tool_result": "user"}
_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")


def check(body: Json, headers: Mapping[str, str], rules: Rules = USUAL) -> Refusal | None:
    """Return what the Messages API would refuse a request with, None if it would be answered."""
    return first(Request(body, lowered(headers), rules), _RULES)


def _shape(request: Request) -> Iterator[Refusal]:
    messages = request.body["messages"]
    if not is_list_of_objects(messages) or not messages:
        yield refused("no_messages", "messages: at least one message is required")
        return
    for number, message in enumerate(messages):
        role, content = message.get("role"), message.get("content")
        if role == "system":
            yield refused("role", "role 'system' is not supported on this model")
        if role not in {"user", "assistant"}:
            yield refused("role", f"messages.{number}.role: Input should be 'user' or 'assistant'")
        if not isinstance(content, str) and not is_list_of_objects(content):
            yield refused("content", f"messages.{number}.content: Input should be a valid list")
        elif not content:
            yield refused("empty_content", f"messages.{number}: all messages must have non-empty content")
        for place, block in enumerate(blocks(message)):
            yield from _block(block, str(role), f"messages.{number}.content.{place}")
    if messages[0]["role"] != "user":
        yield refused("first_role", 'messages: first message must use the "user" role')


def _block(block: Json, role: str, place: str) -> Iterator[Refusal]:
    kind = block.get("type")
    if not isinstance(kind, str):
        yield refused("block_type", f"{place}.type: Field required")
        return
    known = _KEYS.get(kind)
    if known is not None:
        for name in block.keys() - known - {"type"}:
            yield refused("unknown_field", f"{place}.{kind}.{name}: Extra inputs are not permitted")
    if _BY_ROLE.get(kind, role) != role:
        yield refused("block_role", f"{place}: `{kind}` blocks can only be in `{_BY_ROLE[kind]}` messages")
    if kind == "text":
        yield from _text(block)
    elif kind == "tool_use":
        yield from _tool_use(block, place)
    elif kind == "tool_result":
        yield from _tool_result(block, place)
    elif kind == "thinking" and not isinstance(block.get("signature"), str):
        yield refused("no_signature", f"{place}.thinking.signature: Field required")


def _text(block: Json) -> Iterator[Refusal]:
    text = block.get("text")
    if not isinstance(text, str) or not text:
        yield refused("empty_text", "messages: text content blocks must be non-empty")
    elif not text.strip():
        yield refused("blank_text", "messages: text content blocks must contain non-whitespace text")


def _tool_use(block: Json, place: str) -> Iterator[Refusal]:
    identifier = block.get("id")
    if not isinstance(identifier, str) or not _ID.fullmatch(identifier):
        yield refused("call_id", f"{place}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
    if not isinstance(block.get("input"), dict):
        yield refused("call_input", f"{place}.tool_use.input: Input should be a valid dictionary")
    if not isinstance(block.get("name"), str) or not _NAME.fullmatch(block["name"]):
        yield refused("call_name", f"{place}.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")


def _tool_result(block: Json, place: str) -> Iterator[Refusal]:
    content = block.get("content", "")
    if not isinstance(block.get("tool_use_id"), str):
        yield refused("result_id", f"{place}.tool_result.tool_use_id: Field required")
    if content == [] or not (isinstance(content, str) or is_list_of_objects(content)):
        yield refused("result_content", f"{place}.tool_result.content: Input should be a valid string or list")
    elif isinstance(content, list):
        for part in content:
            if part.get("type") == "text":
                yield from _text(part)
    if not isinstance(block.get("is_error", False), bool):
        yield refused("is_error", f"{place}.tool_result.is_error: Input should be a valid boolean")


def _pairs(request: Request) -> Iterator[Refusal]:
    seen: set[str] = set()
    open_calls: list[str] = []
    for number, role, content in request.turns:
        if role == "user":
            yield from _results(number, content, open_calls)
            open_calls = []
            continue
        open_calls = [block["id"] for block in content if block["type"] == "tool_use"]
        for identifier in open_calls:
            if identifier in seen:
                yield refused("duplicate_id", f"messages.{number}: `tool_use` ids must be unique")
            seen.add(identifier)
    if open_calls:
        yield _unanswered(request.turns[-1][0], open_calls)


def _results(number: int, content: list[Json], calls: list[str]) -> Iterator[Refusal]:
    asked, answered, other = set(calls), set[str](), False
    for place, block in enumerate(content):
        if block["type"] != "tool_result":
            other = True
            continue
        identifier = block["tool_use_id"]
        if identifier not in asked:
            yield refused(
                "result_without_call",
                f"messages.{number}.content.{place}: unexpected `tool_use_id` found in `tool_result` blocks:"
                f" {identifier}. Each `tool_result` block must have a corresponding `tool_use` block in the previous"
                " message.",
            )
        if identifier in answered:
            yield refused(
                "duplicate_result",
                f"each tool_use must have a single result. Found multiple `tool_result` blocks with id: {identifier}",
            )
        answered.add(identifier)
        if other:
            yield _unanswered(number - 1, [identifier], "results_first")
    missing = [identifier for identifier in calls if identifier not in answered]
    if missing:
        yield _unanswered(number - 1, missing)


def _unanswered(number: int, missing: list[str], rule: str = "unanswered_call") -> Refusal:
    return refused(
        rule,
        f"messages.{number}: `tool_use` ids were found without `tool_result` blocks immediately after:"
        f" {', '.join(missing)}. Each `tool_use` block must have a corresponding `tool_result` block in the next"
        " message.",
    )


def _ends(request: Request) -> Iterator[Refusal]:
    for number, message in enumerate(request.body["messages"]):
        if message["role"] == "assistant" and blocks(message)[-1]["type"] in THINKING:
            yield refused(
                "ends_in_thinking",
                f"messages.{number}: The final block in an assistant message cannot be `thinking`.",
            )
    _, role, content = request.turns[-1]
    paused = any(block["type"].startswith("server_tool_use") for block in content)
    if role == "assistant" and not paused and models.claude_generation(request.model) >= (4, 6):
        yield refused(
            "prefill",
            "This model does not support assistant message prefill. The conversation must end with a user message.",
        )


def _reasoning(request: Request) -> Iterator[Refusal]:
    said = [place for place, (_, role, run) in enumerate(request.turns) if role == "user" and _is_said(run)]
    active = said[-1] if said else -1
    for place, (number, role, content) in enumerate(request.turns):
        if role == "assistant":
            yield from _signatures(request, number, content)
            if place > active and not request.rules.stripped and request.thinking != "disabled":
                yield from _left_out(request, number, content)


def _is_said(run: list[Json]) -> bool:
    if all(block["type"] != "tool_result" for block in run):
        return True
    return any(MARK in block["text"] for block in run if block["type"] == "text")


def _signatures(request: Request, number: int, content: list[Json]) -> Iterator[Refusal]:
    for place, block in enumerate(content):
        if block["type"] not in THINKING:
            continue
        seal = seals.read(block.get("signature", block.get("data")))
        if seal is None or seal.format != "anthropic":
            if not request.rules.foreign:
                yield refused(
                    "signature", f"messages.{number}.content.{place}: Invalid `signature` in `thinking` block"
                )
            continue
        start = place - seal.place
        turn = [essence(each) for each in content[max(start, 0) : start + seal.size]]
        if start < 0 or seals.digest(turn) != seal.turn:
            yield refused(
                "changed_turn",
                f"messages.{number}.content.{place}: `thinking` or `redacted_thinking` blocks in the latest assistant"
                " message cannot be modified. These blocks must remain as they were in the original response.",
            )


def _left_out(request: Request, number: int, content: list[Json]) -> Iterator[Refusal]:
    marked = f"toolu_{seals.mark('anthropic', request.model)}"
    thought = False
    for place, block in enumerate(content):
        thought = thought or block["type"] in THINKING
        if block["type"] == "tool_use" and block["id"].startswith(marked) and not thought:
            yield refused(
                "thinking_left_out",
                f"messages.{number}.content.{place}.type: Expected `thinking` or `redacted_thinking`, but found"
                " `tool_use`. When `thinking` is enabled, a final `assistant` message must start with a thinking"
                " block (preceeding the lastmost set of `tool_use` and `tool_result` blocks).",
            )


_RULES = (
    options.door,
    options.envelope,
    options.model,
    _shape,
    _pairs,
    _ends,
    options.tools,
    options.choice,
    options.thinking,
    _reasoning,
    options.cache,
)
