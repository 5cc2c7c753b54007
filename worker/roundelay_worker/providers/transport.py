"""One HTTP client for a process: an event loop's shared pool of connections, and the edge where foreign errors end.

It speaks aiohttp itself. Measured on two cores, 1,000 requests at once against a local server, 33 events a reply,
CPU of the client per request: httpx over aiohttp's pool 0.53 ms, aiohttp alone 0.28 ms (with uvloop 0.53 and 0.26),
httpx's own pool some 20 ms. Also httpx-aiohttp reports a dropped connection as a timeout while connecting.
A whole ``ChatProvider.ask`` (18 KB written, 33 events read) came to 0.57 to 0.66 ms beside 0.32 for aiohttp alone.

Silence is what ``Patience.idle`` bounds: no bytes, pieces that bring nothing, and the same piece over and over.
Pings, comments and reasoning are life. A redirect is followed only within its origin, and only one that repeats the
request (307, 308): any other would carry the key elsewhere, or lose the body.
"""

import asyncio
import io
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final, Self

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError
from yarl import URL

from roundelay_worker.loop.history import Turn
from roundelay_worker.providers.base import ModelFailure, Patience
from roundelay_worker.providers.failures import EndsAsTurn, classify
from roundelay_worker.providers.reading import Alive, Nothing, Piece, Reader, TextPiece, cut_off

MAX_REPLY_BYTES: Final = 128 * 1024 * 1024
"""A reply above this is given up."""

MAX_ERROR_BYTES: Final = 256 * 1024
"""So much of an error's body is read."""

REPEATS_THAT_ARE_SILENCE: Final = 15
"""The same piece this many times in a row brings nothing any more."""

WHOLE_IDLE_SECONDS: Final = 600.0
"""A reply that comes in one piece is silent until it is done; the caller bounds the attempt long before this."""

_KEEP_IDLE_SECONDS: Final = 30.0
_HEADER_BYTES: Final = 64 * 1024
_LARGE_BODY: Final = 1024 * 1024
"""From here on aiohttp wants a file, so that it writes in parts."""
_OK: Final = range(200, 300)
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_REPEATS: Final = frozenset({307, 308})
_MOST_REDIRECTS: Final = 4
_FOR_GOOD: Final = frozenset({401, 403, 407})
_READ_ERRORS: Final = (aiohttp.ClientError, HttpProcessingError, OSError)


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A POST of JSON; headers and body hold secrets and users' words, so they have no repr."""

    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


class Pulse:
    """Tells life from silence in what a reader brings."""

    def __init__(self) -> None:
        self._last: Piece | None = None
        self._repeats = 0

    def beats(self, pieces: Iterable[Piece]) -> bool:
        """Say whether one of the pieces is a sign of life."""
        beats = [self._beat(piece) for piece in pieces]
        return any(beats)

    def _beat(self, piece: Piece) -> bool:
        if isinstance(piece, Alive):
            return True
        if isinstance(piece, Nothing) or not (piece.text if isinstance(piece, TextPiece) else piece.mark):
            return False
        self._repeats = self._repeats + 1 if piece == self._last else 1
        self._last = piece
        return self._repeats < REPEATS_THAT_ARE_SILENCE


class _Parts:
    """A reply's bytes as they come; raises ModelFailure above the size that is taken."""

    def __init__(self, content: aiohttp.StreamReader, limit: int) -> None:
        self._parts = content.iter_any()
        self._left = limit

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        part = await anext(self._parts)
        self._left -= len(part)
        if self._left < 0:
            raise ModelFailure("provider_error", "The model server's reply is too large to be one.")
        return part


class HttpTransport:
    """The shared client: made once in a process, opened at its first request, closed by ``close`` or ``async with``.

    It serves the event loop of its first request only. ``trust_env`` makes it read proxies from the environment.
    """

    def __init__(
        self,
        *,
        ssl_context: ssl.SSLContext | None = None,
        trust_env: bool = False,
        max_reply_bytes: int = MAX_REPLY_BYTES,
    ) -> None:
        self._ssl_context = ssl_context
        self._trust_env = trust_env
        self._max_reply_bytes = max_reply_bytes
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections; a later request opens the client again."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def stream(
        self, request: HttpRequest, reader: Reader, on_text: Callable[[str], None], patience: Patience
    ) -> Turn:
        """Send a request and feed the reply to the reader as it comes; raise only ModelFailure, or be cancelled."""
        try:
            async with self._reply(request, patience.connect, patience.idle) as (response, silence):
                parts = _Parts(response.content, self._max_reply_bytes)
                await _until_whole(parts, silence, reader, on_text, patience.idle)
                if reader.linger is not None:
                    await _rest(parts, silence, reader, on_text)
                return reader.finish()
        except EndsAsTurn as end:
            return end.turn

    async def whole(self, request: HttpRequest, read: Callable[[bytes], Turn], patience: Patience) -> Turn:
        """Send a request whose reply comes in one piece; raise only ModelFailure, or be cancelled."""
        idle = max(patience.idle, WHOLE_IDLE_SECONDS)
        try:
            async with self._reply(request, patience.connect, idle) as (response, silence):
                received: list[bytes] = []
                async for part in _Parts(response.content, self._max_reply_bytes):
                    received.append(part)
                    silence.reschedule(_now() + idle)
                return read(b"".join(received))
        except EndsAsTurn as end:
            return end.turn

    @asynccontextmanager
    async def _reply(
        self, request: HttpRequest, connect: float, idle: float
    ) -> AsyncIterator[tuple[aiohttp.ClientResponse, asyncio.Timeout]]:
        """Give the reply of a request that was accepted, with the timer of its silence; close it at once otherwise."""
        silence = asyncio.timeout(connect + idle)
        with _foreign_errors(silence):
            async with silence:
                response = await self._post(request, connect)
                try:
                    silence.reschedule(_now() + idle)
                    if response.status not in _OK:
                        raise classify(response.status, response.headers, await _error_body(response), request.body)
                    yield response, silence
                finally:
                    response.close()

    async def _post(self, request: HttpRequest, connect: float) -> aiohttp.ClientResponse:
        url = URL(request.url)
        for _ in range(_MOST_REDIRECTS):
            response = await self._sent(request, url, connect)
            if response.status not in _REDIRECTS:
                return response
            response.close()
            elsewhere = _target(url, response)
            if elsewhere is None or response.status not in _REPEATS:
                raise _moved(response.status)
            url = elsewhere
        raise _moved(response.status)

    async def _sent(self, request: HttpRequest, url: URL, connect: float) -> aiohttp.ClientResponse:
        timeout = aiohttp.ClientTimeout(total=None, connect=connect)
        body = request.body if len(request.body) < _LARGE_BODY else io.BytesIO(request.body)
        try:
            return await self._opened().post(
                url, headers=request.headers, data=body, timeout=timeout, allow_redirects=False
            )
        except aiohttp.ConnectionTimeoutError as exc:
            raise _unreachable("did not answer in time") from exc
        except aiohttp.ClientConnectorCertificateError as exc:
            raise ModelFailure("model_unreachable", "The model server's certificate cannot be verified.") from exc
        except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError, ValueError) as exc:
            raise ModelFailure("bad_request", "The base URL or the API key of the model is malformed.") from exc
        except aiohttp.ClientHttpProxyError as exc:
            text = f"The proxy refused the connection to the model server ({exc.status}): check HTTPS_PROXY."
            raise ModelFailure("model_unreachable", text, retryable=exc.status not in _FOR_GOOD) from exc
        except aiohttp.ClientResponseError as exc:
            if "content-encoding" in exc.message.lower():
                raise _compressed() from exc
            raise _unreachable("sent what is no HTTP") from exc
        except (aiohttp.ClientError, OSError) as exc:
            raise _unreachable("cannot be reached, or broke the connection off before it replied") from exc

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            # Made here and not at import: SSL_CERT_FILE and SSL_CERT_DIR are read when a context is made.
            context = self._ssl_context if self._ssl_context is not None else ssl.create_default_context()
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, ssl=context, keepalive_timeout=_KEEP_IDLE_SECONDS),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"accept-encoding": "identity"},
                trust_env=self._trust_env,
                max_line_size=_HEADER_BYTES,
                max_field_size=_HEADER_BYTES,
            )
        return self._session


async def _until_whole(
    parts: _Parts,
    silence: asyncio.Timeout,
    reader: Reader,
    on_text: Callable[[str], None],
    idle: float,
) -> None:
    """Feed the reader until the reply ends or its terminal value has come."""
    pulse = Pulse()
    async for part in parts:
        pieces = reader.feed(part)
        _show(pieces, on_text)
        if reader.linger is not None:
            return
        if pulse.beats(pieces):
            silence.reschedule(_now() + idle)


async def _rest(parts: _Parts, silence: asyncio.Timeout, reader: Reader, on_text: Callable[[str], None]) -> None:
    """Take what comes after the terminal value, for as long as it is worth; however it ends, the turn is whole."""
    silence.reschedule(None)
    with suppress(*_READ_ERRORS):
        async with asyncio.timeout(reader.linger) as worth:
            async for part in parts:
                _show(reader.feed(part), on_text)
                worth.reschedule(min(worth.when() or 0.0, _now() + (reader.linger or 0.0)))


def _show(pieces: Iterable[Piece], on_text: Callable[[str], None]) -> None:
    for piece in pieces:
        if isinstance(piece, TextPiece) and piece.text:
            on_text(piece.text)


async def _error_body(response: aiohttp.ClientResponse) -> bytes:
    """Read what comes of an error's body: an error without its sentence is still that error."""
    received = bytearray()
    with suppress(*_READ_ERRORS):
        async for part in response.content.iter_any():
            received += part
            if len(received) >= MAX_ERROR_BYTES:
                break
    return bytes(received)


@contextmanager
def _foreign_errors(silence: asyncio.Timeout) -> Iterator[None]:
    """Turn what aiohttp, TLS and sockets raise into a ModelFailure."""
    try:
        yield
    except _READ_ERRORS as exc:
        if "content-encoding" in str(exc).lower():
            raise _compressed() from exc
        if silence.expired():
            raise ModelFailure("model_stalled", "The model server fell silent.", retryable=True) from exc
        raise cut_off() from exc


def _target(url: URL, response: aiohttp.ClientResponse) -> URL | None:
    """Return where a redirect leads, None if that is no address of the same origin."""
    try:
        target = url.join(URL(response.headers.get("location", "")))
        return target if target.origin() == url.origin() and target != url else None
    except ValueError:
        return None


def _moved(status: int) -> ModelFailure:
    text = f"The model server redirects to another address ({status}): set the base URL to where it is."
    return ModelFailure("bad_request", text)


def _compressed() -> ModelFailure:
    text = "The model server, or a proxy before it, compressed its reply in a way that was not asked for (br, zstd)."
    return ModelFailure("provider_error", text)


def _unreachable(what: str) -> ModelFailure:
    return ModelFailure("model_unreachable", f"The model server {what}.", retryable=True)


def _now() -> float:
    return asyncio.get_running_loop().time()
