"""The checks against recorded exchanges of the real services: both agree on what is answered and what is refused."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from roundelay_worker.testing.fake_llm import CHECKS, Rules

FOLDER = os.environ.get("ROUNDELAY_RECORDINGS", "")
FORMATS = {
    "anthropic": ("anthropic", {"x-api-key": "k", "anthropic-version": "2023-06-01"}),
    "gemini": ("gemini", {"x-goog-api-key": "k"}),
    "openai-chat": ("chat", {"authorization": "Bearer k"}),
    "openai-responses": ("responses", {"authorization": "Bearer k"}),
}
STRICTER = {
    ("openai-chat/stream-args-null.json", 1): "that server takes an empty assistant message, most do not",
}
NOT_IN_THE_BODY = {
    "gemini/error-400-context-vertex.json": "the text that was too long is not in the recording",
    "gemini/error-400-stream-json.json": "a bad key; keys are not recorded",
    "gemini/error-429-retryinfo.json": "a quota",
    "openai-chat/deepseek-error-400-context.json": "the text that was too long is not in the recording",
    "openai-chat/error-401-stream.json": "a bad key; keys are not recorded",
    "openai-chat/groq-tool_use_failed.json": "the model's own mistake",
    "openai-chat/mistral-error-401-detail.json": "a bad key; keys are not recorded",
    "openai-chat/ollama-cloud-error-400-context.json": "the text that was too long is not in the recording",
    "openai-chat/openrouter-error-400-context.json": "the text that was too long is not in the recording",
    "openai-responses/error-400-model.json": "a model that does not exist; the fake does not know which do",
    "openai-responses/xai-error-string.json": "a bad key; keys are not recorded",
}


def exchanges(*, answered: bool) -> list[Any]:
    """Return (place, format, headers, body, response) of the exchanges that were answered, or refused."""
    found = []
    for path in sorted(Path(FOLDER).glob("*/*.json")) if FOLDER else ():
        name = f"{path.parent.name}/{path.name}"
        wire, headers = FORMATS[path.parent.name]
        for number, exchange in enumerate(json.loads(path.read_text())["exchanges"]):
            body, request = exchange["request"].get("body"), exchange["request"]
            if not body or (exchange["response"]["status"] == 200) is not answered:
                continue
            if wire == "gemini":
                body["model"] = request["path"].rpartition("/models/")[2].partition(":")[0]
            found.append(pytest.param((name, number), wire, headers, body, exchange["response"], id=f"{name}-{number}"))
    return found


pytestmark = pytest.mark.skipif(not FOLDER, reason="ROUNDELAY_RECORDINGS is not set")


@pytest.mark.parametrize(("place", "wire", "headers", "body", "response"), exchanges(answered=True))
def test_what_the_service_answered_is_accepted(place, wire, headers, body, response):
    refusal = CHECKS[wire](body, headers, Rules(foreign=True))
    assert (refusal is None) is (place not in STRICTER)


@pytest.mark.parametrize(("place", "wire", "headers", "body", "response"), exchanges(answered=False))
def test_what_the_service_refused_for_its_shape_is_refused_in_the_same_words(place, wire, headers, body, response):
    refusal = CHECKS[wire](body, headers, Rules(foreign=True))
    if place[0] in NOT_IN_THE_BODY:
        assert refusal is None
        return
    assert refusal is not None
    assert refusal.status == response["status"]
    assert refusal.message == response["body"]["error"]["message"]
