"""Servers on this machine for a tool that fetches, and the ways it is asked."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Self

import pytest

from roundelay_worker import ToolError
from roundelay_worker.tools.builtin.fetching import Fetcher, FetchPolicy

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def answering(body: bytes, content_type: str = "text/plain", status: str = "200 OK", *headers: str) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = [f"HTTP/1.1 {status}", f"Content-Type: {content_type}", f"Content-Length: {len(body)}", *headers]
        writer.write("\r\n".join([*head, "Connection: close", "", ""]).encode() + body)
        await writer.drain()
        writer.close()

    return serve


class Server:
    """A server on this machine that counts who came."""

    def __init__(self, serve: Serve, tls: ssl.SSLContext | None = None) -> None:
        self._serve = serve
        self._tls = tls
        self.visits: list[str] = []
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.visits.append(str(writer.get_extra_info("peername")[0]))
        try:
            await self._serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


def policy_for(server: Server, **changes: object) -> FetchPolicy:
    return replace(FetchPolicy(ports=frozenset({80, 443, server.port}), allow_loopback=True), **changes)


def fetch_from(serve: Serve, path: str = "/", **changes: object):
    async def scenario():
        async with Server(serve) as server:
            return await Fetcher(policy_for(server, **changes)).fetch(f"http://127.0.0.1:{server.port}{path}")

    return asyncio.run(scenario())


def refusal(work: Callable[[], object]) -> ToolError:
    with pytest.raises(ToolError) as refused:
        work()
    return refused.value
