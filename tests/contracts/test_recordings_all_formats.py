"""What holds for every recorded reply, whatever its format: cuts change nothing, damage breaks nothing."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recorded import NEEDED, Recording, body_of, read, replies

from roundelay_worker.loop.history import Exchange, Result, UserText
from roundelay_worker.providers.anthropic import request as anthropic_request
from roundelay_worker.providers.anthropic.reply import MessageAssembly
from roundelay_worker.providers.base import ModelFailure, ModelRequest, ToolSpec
from roundelay_worker.providers.chat import request as chat_request
from roundelay_worker.providers.chat.reply import ChatAssembly
from roundelay_worker.providers.chat.servers import server_of
from roundelay_worker.providers.encoding import encode
from roundelay_worker.providers.google import request as google_request
from roundelay_worker.providers.google.reply import GenerationAssembly
from roundelay_worker.providers.reading import Assembly
from roundelay_worker.providers.responses import request as openai_request
from roundelay_worker.providers.responses.reply import ResponsesAssembly

pytestmark = NEEDED

ORIGIN = "recorded:model@https://example.org"
REQUEST = ModelRequest("", (), tools=(ToolSpec("look", "Looks.", {"type": "object", "properties": {}}),))
CHAT = chat_request.ChatTarget("m", ORIGIN, server_of("https://api.openai.com/v1"))
RESPONSES = openai_request.ResponsesTarget("m", ORIGIN)


@dataclass(frozen=True)
class Format:
    """How replies of one format are read, and requests written."""

    assembly: Callable[[ModelRequest, str], Assembly]
    to_request: Callable[[ModelRequest], dict[str, Any]]


FORMATS = {
    "anthropic": Format(MessageAssembly, lambda request: anthropic_request.to_request(request, "m", ORIGIN)),
    "gemini": Format(GenerationAssembly, lambda request: google_request.to_request(request, "gemini-3-pro", ORIGIN)),
    "openai-chat": Format(ChatAssembly, lambda request: chat_request.to_request(request, CHAT)),
    "openai-responses": Format(ResponsesAssembly, lambda request: openai_request.to_request(request, RESPONSES)),
}
SMALL: dict[str, list[Recording]] = {
    name: [r.values[0] for r in replies(name) if len(body_of(r.values[0])) < 40_000] for name in FORMATS
}
DAMAGE = st.one_of(
    st.binary(max_size=12),
    st.sampled_from([b"null", b"{}", b"[]", b'"', b"1e999", b"\\ud83d", b"[" * 2000, b"9" * 5000, b"NaN", b"true"]),
)
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy
ALL = pytest.mark.parametrize("name", FORMATS)


@ALL
@settings(PATIENT, max_examples=60)
@given(st.data())
def test_a_recorded_reply_reads_the_same_however_its_bytes_are_cut(name: str, data: st.DataObject) -> None:
    exchange = data.draw(st.sampled_from(SMALL[name]))
    body = body_of(exchange)
    cuts = tuple(data.draw(st.lists(st.integers(0, len(body)), max_size=40)))
    whole, shown = read(FORMATS[name].assembly(REQUEST, ORIGIN), body)

    assert read(FORMATS[name].assembly(REQUEST, ORIGIN), body, cuts) == (whole, shown)
    assert "sse" not in exchange["response"] or shown == whole.text


@ALL
@settings(PATIENT, max_examples=300)
@given(st.data())
def test_a_broken_reply_is_a_turn_or_a_failure_and_nothing_else(name: str, data: st.DataObject) -> None:
    body = bytearray(body_of(data.draw(st.sampled_from(SMALL[name]))))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at : at + data.draw(st.integers(0, 30))] = data.draw(DAMAGE)

    try:
        turn, _ = read(FORMATS[name].assembly(REQUEST, ORIGIN), bytes(body))
    except ModelFailure:
        return

    for call in turn.calls:
        assert isinstance(json.loads(call.arguments), dict)
    results = tuple(Result("ok") for _ in turn.calls)
    encode(FORMATS[name].to_request(ModelRequest("", (UserText("Hello"), Exchange(turn, results)))))
