"""FakeLLM: the server in a thread of its own, as a context manager."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from threading import Event, Thread
from typing import Any, Self

from aiohttp import web

from roundelay_worker.testing.fake_llm.director import Director
from roundelay_worker.testing.fake_llm.ledger import Disconnected, Ledger, Recorded, Refused
from roundelay_worker.testing.fake_llm.refusal import USUAL, Rules
from roundelay_worker.testing.fake_llm.script import Script, Step
from roundelay_worker.testing.fake_llm.server import Server

_PATIENCE = 10.0


class FakeLLM:
    """A scripted model server for all four wire formats, as strict as the services themselves.

    A context manager, sync or async. ``port`` 0 takes a free one. ``default`` is the list of steps for texts without a
    script. ``strict=False`` skips the checks, for benches. ``keep`` bounds the requests held in memory.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        rules: Rules = USUAL,
        default: Sequence[Mapping[str, Any]] = ({"text": "ok"},),
        strict: bool = True,
        keep: int = 1000,
    ) -> None:
        self._host = host
        self._port = port
        self._ledger = Ledger(keep)
        script = Script("default", tuple(Step.read(step) for step in default))
        self._server = Server(Director(self._ledger, rules, script, strict=strict), self._ledger)
        self._started = Event()
        self._fault: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread = Thread(target=self._run, name="fake-llm", daemon=True)

    @property
    def url(self) -> str:
        """The base URL, without a trailing slash or version."""
        return f"http://{self._host}:{self._port}"

    @property
    def requests(self) -> tuple[Recorded, ...]:
        """The requests that are kept, oldest first."""
        return self._ledger.requests()

    @property
    def refusals(self) -> tuple[Refused, ...]:
        """The requests that broke a rule, oldest first."""
        return self._ledger.refusals()

    @property
    def disconnects(self) -> tuple[Disconnected, ...]:
        """The clients that hung up before they had the whole reply, oldest first."""
        return self._ledger.disconnects()

    @property
    def open(self) -> int:
        """How many replies are under way."""
        return self._ledger.open()

    @property
    def total(self) -> int:
        """How many requests came in all, also those no longer kept."""
        return self._ledger.total()

    def count(self, name: str, step: int | str | None = None) -> int:
        """Return how many requests came for the script ``name``, or for its step (a number, or ``"closing"``)."""
        return self._ledger.count(name, step)

    def wait(self, condition: Callable[[], bool], timeout: float = 10.0) -> bool:
        """Wait until a condition on this fake holds; False if it does not within ``timeout`` seconds."""
        return self._ledger.wait(condition, timeout)

    def reset(self) -> None:
        """Forget all requests, refusals, disconnects, counts and attempts."""
        self._ledger.reset()

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.wait(_PATIENCE)
        if self._fault is not None:
            raise self._fault
        return self

    def __exit__(self, *_: object) -> None:
        if self._loop is not None and self._stop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_PATIENCE)

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(self, *raised: object) -> None:
        await asyncio.to_thread(self.__exit__, *raised)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except OSError as fault:
            self._fault = fault
            self._started.set()

    async def _serve(self) -> None:
        runner = web.AppRunner(
            self._server.application(), handler_cancellation=True, access_log=None, shutdown_timeout=0.05
        )
        await runner.setup()
        try:
            site = web.TCPSite(runner, self._host, self._port, backlog=1024)
            await site.start()
            self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
            self._port = runner.addresses[0][1]
            self._started.set()
            await self._stop.wait()
        finally:
            await runner.cleanup()
