"""A Chat Completions server that costs next to nothing a request and remembers when each one came and was answered.

The model's part is played from the request alone: the conversation and its script from the mark in the first
user text, the round from the number of assistant turns. Times are ``time.monotonic()``, which all processes of a
machine share. Besides the model's route it serves ``/counts``, ``/wait/{finished}``, ``/records`` and ``/reset``.
"""

import asyncio
import sys
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from time import monotonic

import orjson
import uvloop

from bench.script import Conversation
from bench.tools import NAME

PLAIN = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"cache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n"
)
CHUNK_HEAD = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "mock"}
PLAIN_HEAD = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "mock"}
USAGE = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}


@dataclass
class Ledger:
    """What came and went: per conversation a list of (round, arrived, first text sent, answered)."""

    records: dict[str, list[tuple[int, float, float, float]]] = field(default_factory=lambda: defaultdict(list))
    calls: int = 0
    finished: int = 0
    waiting: list[tuple[int, "ModelProtocol"]] = field(default_factory=list)

    def note(self, conversation: Conversation, turn: int, arrived: float, first: float) -> None:
        """Record an answered request, and wake those who wait for that many finished conversations."""
        self.records[conversation.id].append((turn, arrived, first, monotonic()))
        self.calls += 1
        if turn >= conversation.script.rounds:
            self.finished += 1
            self.wake()

    def wake(self) -> None:
        """Answer the waiters whose number is reached."""
        due = [protocol for number, protocol in self.waiting if number <= self.finished]
        self.waiting = [(number, protocol) for number, protocol in self.waiting if number > self.finished]
        for protocol in due:
            protocol.send_json(self.counts())

    def counts(self) -> dict[str, int]:
        """Return the numbers of calls and of finished conversations."""
        return {"calls": self.calls, "finished": self.finished}

    def reset(self) -> None:
        """Forget everything."""
        self.records.clear()
        self.calls = self.finished = 0


LEDGER = Ledger()


def call_of(conversation: Conversation, turn: int) -> dict[str, object]:
    """Return the tool call of a round; arguments differ by round, as those of a model that gets on do."""
    arguments = orjson.dumps({"topic": f"week {turn}", "size": conversation.script.result_bytes}).decode()
    return {
        "id": f"call_{conversation.id}_{turn}",
        "type": "function",
        "function": {"name": NAME, "arguments": arguments},
    }


def plain_reply(conversation: Conversation, turn: int) -> bytes:
    """Return a whole reply."""
    if turn < conversation.script.rounds:
        message = {"role": "assistant", "content": None, "tool_calls": [call_of(conversation, turn)]}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    else:
        message = {"role": "assistant", "content": "You sold more than last month."}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
    body = orjson.dumps(PLAIN_HEAD | {"choices": [choice], "usage": USAGE})
    return PLAIN % (len(body), body)


def event(delta: Mapping[str, object], finish: str | None = None) -> bytes:
    """Return one server-sent event with a piece of a reply."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + orjson.dumps(CHUNK_HEAD | {"choices": [choice]}) + b"\n\n"


def chunk(payload: bytes) -> bytes:
    """Return one HTTP chunk."""
    return b"%x\r\n%b\r\n" % (len(payload), payload)


def stream_end(finish: str) -> bytes:
    """Return the last events of a streamed reply."""
    usage = b"data: " + orjson.dumps(CHUNK_HEAD | {"choices": [], "usage": USAGE}) + b"\n\n"
    return event({}, finish) + usage + b"data: [DONE]\n\n"


class ModelProtocol(asyncio.Protocol):
    """One keep-alive connection; requests on it come one after the other."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]
        self.buffer = bytearray()
        self.arrived = 0.0
        self.target = ""
        self.needed = 0
        self.head_end = 0

    def data_received(self, data: bytes) -> None:
        """Collect a request and answer it when it is whole."""
        if not self.buffer:
            self.arrived = monotonic()
        self.buffer += data
        if not self.needed and not self.read_head():
            return
        if len(self.buffer) >= self.needed:
            body = self.buffer[self.head_end : self.needed]
            del self.buffer[: self.needed]
            self.needed = 0
            if body:
                self.answer(body)
            else:
                self.control(self.target)

    def read_head(self) -> bool:
        """Find out how long the request is; False while its head is not whole."""
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return False
        head = bytes(self.buffer[:end]).lower()
        at = head.find(b"\r\ncontent-length:")
        length = int(head[at + 17 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
        self.target = head.split(b" ", 2)[1].decode()
        self.head_end = end + 4
        self.needed = self.head_end + length
        return True

    def answer(self, body: bytearray) -> None:
        """Play the model's part, after the think time."""
        conversation = Conversation.find(body)
        if conversation is None:
            self.transport.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
            return
        turn = body.count(b'"assistant"')
        streamed = b'"stream":true' in body or b'"stream": true' in body
        reply = self.stream if streamed else self.reply
        if conversation.script.think_ms:
            delay = conversation.script.think_ms / 1000
            asyncio.get_running_loop().call_later(delay, reply, conversation, turn, self.arrived)
        else:
            reply(conversation, turn, self.arrived)

    def reply(self, conversation: Conversation, turn: int, arrived: float) -> None:
        """Send a whole reply."""
        if self.transport.is_closing():
            return
        self.transport.write(plain_reply(conversation, turn))
        LEDGER.note(conversation, turn, arrived, monotonic())

    def stream(self, conversation: Conversation, turn: int, arrived: float) -> None:
        """Send a streamed reply: tool calls at once, the answer piece by piece."""
        if self.transport.is_closing():
            return
        if turn < conversation.script.rounds:
            delta = {"role": "assistant", "content": None, "tool_calls": [{"index": 0, **call_of(conversation, turn)}]}
            self.transport.write(STREAM_HEAD + chunk(event(delta) + stream_end("tool_calls")) + b"0\r\n\r\n")
            LEDGER.note(conversation, turn, arrived, monotonic())
        else:
            self.transport.write(STREAM_HEAD + chunk(event({"role": "assistant", "content": ""})))
            self.piece(conversation, turn, arrived, monotonic(), conversation.script.pieces)

    def piece(self, conversation: Conversation, turn: int, arrived: float, first: float, left: int) -> None:
        """Send one piece of the answer and see to the next."""
        if self.transport.is_closing():
            return
        text = chunk(event({"content": "You sold more than last month. "}))
        if left > 1:
            self.transport.write(text)
            delay = conversation.script.piece_ms / 1000
            asyncio.get_running_loop().call_later(delay, self.piece, conversation, turn, arrived, first, left - 1)
        else:
            self.transport.write(text + chunk(stream_end("stop")) + b"0\r\n\r\n")
            LEDGER.note(conversation, turn, arrived, first)

    def control(self, target: str) -> None:
        """Serve the benchmark itself."""
        if target.startswith("/wait/"):
            LEDGER.waiting.append((int(target[6:]), self))
            LEDGER.wake()
        elif target == "/records":
            self.send_json(LEDGER.records)
        else:
            if target == "/reset":
                LEDGER.reset()
            self.send_json(LEDGER.counts())

    def send_json(self, value: object) -> None:
        """Send a value to the benchmark."""
        body = orjson.dumps(value)
        self.transport.write(PLAIN % (len(body), body))

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a waiter that went away."""
        del exc
        LEDGER.waiting = [entry for entry in LEDGER.waiting if entry[1] is not self]


async def serve(port: int) -> None:
    """Serve until killed."""
    server = await asyncio.get_running_loop().create_server(ModelProtocol, "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
