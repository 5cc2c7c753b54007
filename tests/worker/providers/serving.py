"""A server on a real socket that answers each request by a script, and a client that asks it."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from roundelay_worker.loop.history import Turn, UserText
from roundelay_worker.providers.base import ModelFailure, ModelRequest, Patience
from roundelay_worker.providers.chat.provider import ChatProvider
from roundelay_worker.providers.transport import HttpTransport

Answering = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
TEXT = b'data: {"choices":[{"index":0,"delta":{"content":"Hi"}}]}\n\n'
EMPTY = b'data: {"choices":[{"index":0,"delta":{"content":""}}]}\n\n'
STOP = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
DONE = b"data: [DONE]\n\n"
REQUEST = ModelRequest(system="", history=(UserText("Hello"),))
QUICK = Patience(connect=2.0, idle=0.3)


def chunk(part: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(part), part)


END = b"0\r\n\r\n"
WHOLE = HEAD + chunk(TEXT) + chunk(STOP) + chunk(DONE) + END


def plain(status: str, body: bytes, headers: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n{headers}\r\n".encode() + body


class Served:
    """A server that answers each request by a function, and notes what it sees."""

    def __init__(self) -> None:
        self.connections = 0
        self.requests = 0
        self.hung_up = asyncio.Event()
        self.port = 0


@asynccontextmanager
async def serving(answer: Answering | bytes, context: ssl.SSLContext | None = None):
    seen = Served()

    tasks: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line[:15] == b"content-length:")
                await reader.readexactly(length)
                seen.requests += 1
                if isinstance(answer, bytes):
                    writer.write(answer)
                else:
                    await answer(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            seen.hung_up.set()
        finally:
            writer.transport.abort()

    def begun(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.ensure_future(connected(reader, writer)))

    server = await asyncio.start_server(begun, "127.0.0.1", 0, backlog=512, ssl=context)
    seen.port = server.sockets[0].getsockname()[1]
    try:
        yield seen
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def ask(
    port: int, transport: HttpTransport, request: ModelRequest = REQUEST, shown: list[str] | None = None
) -> Turn:
    provider = ChatProvider("m", f"http://127.0.0.1:{port}/v1", "key", transport)
    return await provider.ask(request, (shown if shown is not None else []).append, QUICK)


def asked(answer: Answering | bytes, request: ModelRequest = REQUEST, shown: list[str] | None = None) -> Turn:
    async def once() -> Turn:
        async with serving(answer) as server, HttpTransport() as transport, asyncio.timeout(20):
            return await ask(server.port, transport, request, shown)

    return asyncio.run(once())


def failed(answer: Answering | bytes) -> ModelFailure:
    with pytest.raises(ModelFailure) as caught:
        asked(answer)
    return caught.value
