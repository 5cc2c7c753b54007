"""A TCP proxy that can stop forwarding without closing anything: the half-open sockets of a lost network."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit, urlunsplit

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Proxy:
    """Stands before one server; ``url`` is the server's with the proxy's address."""

    def __init__(self, url: str) -> None:
        self._server = urlsplit(url)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._writers: list[asyncio.StreamWriter] = []
        self._orphans: list[asyncio.StreamWriter] = []
        self._dark = False
        self._lost = asyncio.Event()
        self._listener = self._call(self._listen())
        port = self._listener.sockets[0].getsockname()[1]
        address = f"{self._server.netloc.rpartition('@')[0]}@127.0.0.1:{port}".removeprefix("@")
        self.url = urlunsplit(self._server._replace(netloc=address))

    def blackhole(self) -> None:
        """Forward nothing any more; what connects from now on is accepted, and never answered."""
        self._dark = True
        self._loop.call_soon_threadsafe(self._lose)

    def heal(self) -> None:
        """Forward what connects from now on; what was lost stays lost, though the server is told."""
        self._dark = False
        self._loop.call_soon_threadsafe(self._tell)

    def close(self) -> None:
        """Close everything."""
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _tell(self) -> None:
        while self._orphans:
            self._orphans.pop().close()

    def _lose(self) -> None:
        self._lost, lost = asyncio.Event(), self._lost
        lost.set()

    def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._serve, "127.0.0.1", 0)

    async def _close(self) -> None:
        self._listener.close()
        for writer in self._writers:
            writer.close()
        self._lose()
        await self._listener.wait_closed()
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()}, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        if self._dark:
            return
        with suppress(OSError):
            there = await asyncio.open_connection(self._server.hostname, self._server.port)
            self._writers.append(there[1])
            if await _forward((reader, writer), there, self._lost):
                self._orphans.append(there[1])
            else:
                writer.close()
                there[1].close()


async def _forward(here: Streams, there: Streams, lost: asyncio.Event) -> bool:
    """Forward both ways until a side closes; True if the connection was lost instead."""
    pumps = [asyncio.ensure_future(_pump(here[0], there[1])), asyncio.ensure_future(_pump(there[0], here[1]))]
    losing = asyncio.ensure_future(lost.wait())
    await asyncio.wait([*pumps, losing], return_when=asyncio.FIRST_COMPLETED)
    for task in (*pumps, losing):
        task.cancel()
    return lost.is_set()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await reader.read(65_536):
            writer.write(piece)
            await writer.drain()


@contextmanager
def proxied(url: str) -> Iterator[Proxy]:
    """Keep a proxy before the server at ``url``."""
    proxy = Proxy(url)
    try:
        yield proxy
    finally:
        proxy.close()
