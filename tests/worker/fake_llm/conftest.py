"""A small client of each format, written from the services' documentation and not from the fake or the adapters."""

import json
from dataclasses import dataclass, field
from typing import Any, ClassVar

import httpx
import pytest

from roundelay_worker.testing.fake_llm import FakeLLM

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
FORMATS = ("anthropic", "chat", "responses", "gemini")


@dataclass
class Turn:
    """A reply as the client understood it; ``items`` are the provider's own, to be sent back."""

    text: str = ""
    calls: list[tuple[str, str, Any]] = field(default_factory=list)
    items: list[Any] = field(default_factory=list)
    stop: Any = None
    usage: Any = None


def events(body: str) -> list[Any]:
    """Return the JSON of all server-sent events."""
    data = [line[6:] for line in body.splitlines() if line.startswith("data: ")]
    return [json.loads(each) for each in data if each != "[DONE]"]


class Anthropic:
    path = "/v1/messages"
    headers: ClassVar = {"x-api-key": "k", "anthropic-version": "2023-06-01"}

    def first(self, text: str) -> dict[str, Any]:
        tools = [{"name": name, "input_schema": SCHEMA} for name in ("add", "sub")]
        thinking = {"type": "adaptive", "display": "summarized"}
        return {
            "max_tokens": 5000,
            "messages": [{"role": "user", "content": text}],
            "tools": tools,
            "thinking": thinking,
        }

    def forbid(self, body: dict[str, Any]) -> None:
        body["tool_choice"] = {"type": "none"}

    def append(self, body: dict[str, Any], turn: Turn) -> None:
        results = [{"type": "tool_result", "tool_use_id": call[0], "content": "2"} for call in turn.calls]
        body["messages"] += [{"role": "assistant", "content": turn.items}, {"role": "user", "content": results}]

    def plain(self, body: Any) -> Turn:
        content = body["content"]
        text = "".join(block["text"] for block in content if block["type"] == "text")
        calls = [(block["id"], block["name"], block["input"]) for block in content if block["type"] == "tool_use"]
        return Turn(text, calls, content, body["stop_reason"], body.get("usage"))

    def streamed(self, body: str) -> Turn:
        blocks: dict[int, Any] = {}
        inputs: dict[int, str] = {}
        stop = usage = None
        for event in events(body):
            match event["type"]:
                case "content_block_start":
                    blocks[event["index"]] = event["content_block"]
                case "content_block_delta":
                    delta, block = event["delta"], blocks[event["index"]]
                    for key in ("text", "thinking", "signature"):
                        if delta["type"] == f"{key}_delta":
                            block[key] += delta[key]
                    if delta["type"] == "input_json_delta":
                        inputs[event["index"]] = inputs.get(event["index"], "") + delta["partial_json"]
                case "message_delta":
                    stop, usage = event["delta"]["stop_reason"], event.get("usage")
        for index, text in inputs.items():
            blocks[index]["input"] = json.loads(text or "{}")
        return self.plain({"content": list(blocks.values()), "stop_reason": stop, "usage": usage})


class Chat:
    path = "/v1/chat/completions"
    headers: ClassVar = {"authorization": "Bearer k"}

    def first(self, text: str) -> dict[str, Any]:
        functions = [{"name": name, "parameters": SCHEMA} for name in ("add", "sub")]
        tools = [{"type": "function", "function": function} for function in functions]
        return {"messages": [{"role": "user", "content": text}], "tools": tools}

    def forbid(self, body: dict[str, Any]) -> None:
        body["tool_choice"] = "none"

    def append(self, body: dict[str, Any], turn: Turn) -> None:
        results = [{"role": "tool", "tool_call_id": call[0], "content": "2"} for call in turn.calls]
        body["messages"] += [*turn.items, *results]

    def plain(self, body: Any) -> Turn:
        choice = body["choices"][0]
        return self._turn(choice["message"], choice["finish_reason"], body.get("usage"))

    def _turn(self, message: Any, stop: Any, usage: Any) -> Turn:
        calls = [
            (call["id"], call["function"]["name"], call["function"]["arguments"])
            for call in message.get("tool_calls", ())
        ]
        return Turn(message["content"] or "", calls, [message], stop, usage)

    def streamed(self, body: str) -> Turn:
        message: dict[str, Any] = {"role": "assistant", "content": None}
        calls: dict[int, Any] = {}
        details: dict[int, Any] = {}
        stop = usage = None
        for chunk in events(body):
            usage = chunk.get("usage") or usage
            for choice in chunk["choices"]:
                delta, stop = choice["delta"], choice["finish_reason"] or stop
                for key in ("content", "reasoning_content", "reasoning"):
                    if delta.get(key):
                        message[key] = (message.get(key) or "") + delta[key]
                for piece in delta.get("tool_calls", ()):
                    call = calls.setdefault(piece["index"], {"function": {"arguments": ""}})
                    function = piece.pop("function")
                    call["function"]["arguments"] += function.pop("arguments") or ""
                    call["function"].update(function)
                    call.update({key: value for key, value in piece.items() if key != "index"})
                for piece in delta.get("reasoning_details", ()):
                    detail = details.setdefault(piece["index"], {"text": ""})
                    detail["text"] += piece.pop("text", "")
                    detail.update(piece)
        if calls:
            message["tool_calls"] = list(calls.values())
        if details:
            message["reasoning_details"] = list(details.values())
        return self._turn(message, stop, usage)


class Responses:
    path = "/v1/responses"
    headers: ClassVar = {"authorization": "Bearer k"}

    def first(self, text: str) -> dict[str, Any]:
        tools = [{"type": "function", "name": name, "parameters": SCHEMA, "strict": False} for name in ("add", "sub")]
        wanted = {"store": False, "include": ["reasoning.encrypted_content"], "reasoning": {"summary": "auto"}}
        return {"input": [{"role": "user", "content": text}], "tools": tools, **wanted}

    def forbid(self, body: dict[str, Any]) -> None:
        body["tool_choice"] = "none"

    def append(self, body: dict[str, Any], turn: Turn) -> None:
        kept = [{key: value for key, value in item.items() if key not in {"id", "status"}} for item in turn.items]
        body["input"] += kept
        body["input"] += [{"type": "function_call_output", "call_id": call[0], "output": "2"} for call in turn.calls]

    def plain(self, body: Any) -> Turn:
        output = body["output"]
        parts = [part for item in output if item["type"] == "message" for part in item["content"]]
        text = "".join(part["text"] for part in parts if part["type"] == "output_text")
        calls = [
            (item["call_id"], item["name"], item["arguments"]) for item in output if item["type"] == "function_call"
        ]
        reason = (body["incomplete_details"] or {}).get("reason")
        return Turn(text, calls, output, reason or body["status"], body["usage"])

    def streamed(self, body: str) -> Turn:
        found = events(body)
        assert [event["sequence_number"] for event in found] == list(range(len(found)))
        done = [event["item"] for event in found if event["type"] == "response.output_item.done"]
        last = found[-1]["response"]
        assert last["output"] == done
        pieces = [event["delta"] for event in found if event["type"] == "response.output_text.delta"]
        turn = self.plain(last)
        assert "".join(pieces) == turn.text
        return turn


class Gemini:
    headers: ClassVar = {"x-goog-api-key": "k"}

    def first(self, text: str) -> dict[str, Any]:
        declared = [{"name": name, "parametersJsonSchema": SCHEMA} for name in ("add", "sub")]
        contents = [{"role": "user", "parts": [{"text": text}]}]
        thoughts = {"thinkingConfig": {"includeThoughts": True}}
        return {"contents": contents, "tools": [{"functionDeclarations": declared}], "generationConfig": thoughts}

    def forbid(self, body: dict[str, Any]) -> None:
        body["toolConfig"] = {"functionCallingConfig": {"mode": "NONE"}}

    def append(self, body: dict[str, Any], turn: Turn) -> None:
        results = [
            {"functionResponse": {"id": i, "name": name, "response": {"output": "2"}}} for i, name, _ in turn.calls
        ]
        body["contents"] += [{"role": "model", "parts": turn.items}, {"role": "user", "parts": results}]

    def plain(self, body: Any) -> Turn:
        return self._turn([body])

    def streamed(self, body: str) -> Turn:
        return self._turn(events(body))

    def _turn(self, chunks: list[Any]) -> Turn:
        parts: list[Any] = []
        stop: Any = None
        for chunk in chunks:
            for candidate in chunk.get("candidates", ()):
                parts += candidate["content"].get("parts", [])
                stop = candidate.get("finishReason", stop)
            stop = chunk.get("promptFeedback", {}).get("blockReason", stop)
        text = "".join(part.get("text", "") for part in parts if not part.get("thought"))
        found = [part["functionCall"] for part in parts if "functionCall" in part]
        calls = [(call.get("id", ""), call["name"], call["args"]) for call in found]
        return Turn(text, calls, parts, stop, chunks[-1].get("usageMetadata"))


CLIENTS = {"anthropic": Anthropic(), "chat": Chat(), "responses": Responses(), "gemini": Gemini()}


class Talker:
    """One conversation: ``body`` is the next request, ``ask`` sends it, ``answer`` appends turn and results."""

    def __init__(self, http: httpx.Client, wire: str, text: str, *, stream: bool = False, model: str = "fake") -> None:
        self.client: Any = CLIENTS[wire]
        self.wire, self.stream, self.model, self.http = wire, stream, model, http
        self.body = self.client.first(text)
        if wire != "gemini":
            self.body |= {"model": model, "stream": stream}
        if wire == "chat" and stream:
            self.body["stream_options"] = {"include_usage": True}

    @property
    def path(self) -> str:
        """Return path and query of the request."""
        verb = "streamGenerateContent?alt=sse" if self.stream else "generateContent"
        return f"/v1beta/models/{self.model}:{verb}" if self.wire == "gemini" else self.client.path

    def forbid_tools(self) -> None:
        """Make the next request one that may not call."""
        self.client.forbid(self.body)

    def send(self) -> httpx.Response:
        """Send the request and return the whole answer."""
        return self.http.post(self.path, json=self.body, headers=self.client.headers)

    def ask(self) -> Turn:
        """Send the request and return the turn."""
        answer = self.send()
        assert answer.status_code == 200, answer.text
        return self.client.streamed(answer.text) if self.stream else self.client.plain(answer.json())

    def answer(self, turn: Turn) -> None:
        """Append a turn as it came and a result for each of its calls."""
        self.client.append(self.body, turn)


@pytest.fixture(scope="session")
def served():
    with FakeLLM() as fake:
        yield fake


@pytest.fixture
def fake(served):
    served.reset()
    return served


@pytest.fixture(scope="session")
def http(served):
    with httpx.Client(base_url=served.url, timeout=20) as client:
        yield client


@pytest.fixture
def talk(fake, http):
    """Return how to begin a conversation: ``talk(wire, text, stream=..., model=...)``."""

    def begin(wire: str, text: str, **more: Any) -> Talker:
        return Talker(http, wire, text, **more)

    return begin


@pytest.fixture(params=FORMATS)
def wire(request):
    return request.param


@pytest.fixture(params=[False, True], ids=["plain", "stream"])
def stream(request):
    return request.param
