"""Fetches a page from the public internet, and from nowhere else.

Whatever a URL, a redirect or a name server says, the decision is taken at the last moment: when a socket
is made for the very address it will be connected to (``_guarded_socket``). Between the check and the
connection nothing is looked up again, so rebinding has no gap; TLS still verifies the host's name. The
checks before it only give better reasons.
"""

import asyncio
import contextlib
import re
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from roundelay_worker.tools.builtin.addresses import is_loopback, is_public
from roundelay_worker.tools.builtin.pages import Inflater, NotReadable, is_readable, to_text
from roundelay_worker.tools.context import ToolError
from roundelay_worker.tools.run.threads import Threads, in_thread

_REDIRECTS = {301, 302, 303, 307, 308}
_HOST = re.compile(r"[A-Za-z0-9._-]{1,253}|[0-9A-Fa-f:.]+(%[A-Za-z0-9]+)?")
_PIECE = 16_384
_HEADERS = {
    "User-Agent": "roundelay-fetch",
    "Accept": "text/html, text/*;q=0.9, application/json;q=0.9, application/xml;q=0.8",
    "Accept-Encoding": "gzip, deflate",
}


@dataclass(frozen=True, slots=True)
class FetchPolicy:
    """Where ``fetch_url`` may go and how much it may bring; times in seconds, sizes in bytes after inflating.

    ``allow_loopback`` is for tests and development: it lets the worker's own machine be reached.
    """

    ports: frozenset[int] = frozenset({80, 443})
    allow_loopback: bool = False
    max_bytes: int = 1_048_576
    max_redirects: int = 5
    seconds: float = 20.0


@dataclass(frozen=True, slots=True)
class Page:
    """A fetched page; ``url`` is where the redirects ended."""

    url: str
    content_type: str
    text: str
    truncated: bool


Lookup = Callable[[str, int], list[tuple[int, str]]]
"""Returns (address family, literal address) for a host and port; raises OSError. Called in a thread."""


def system_lookup(host: str, port: int) -> list[tuple[int, str]]:
    """Ask the operating system for the addresses of ``host``."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(family, str(address[0])) for family, _, _, _, address in found]


class Fetcher:
    """Fetches pages under one policy; may be used from any event loop."""

    def __init__(self, policy: FetchPolicy, lookup: Lookup = system_lookup) -> None:
        self._policy = policy
        self._lookup = lookup
        self._threads = Threads("roundelay-lookup")
        self._ssl: ssl.SSLContext | None = None

    async def fetch(self, url: str) -> Page:
        """Return the page at ``url``; raise ToolError with a reason for everything that is not to be had."""
        try:
            async with asyncio.timeout(self._policy.seconds), self._session() as session:
                return await self._follow(session, url)
        except TimeoutError as exc:
            raise ToolError(f"It took longer than {self._policy.seconds:g} s.", code="too_slow") from exc
        except NotReadable as exc:
            raise ToolError(f"The page cannot be read: {exc}.", code="not_readable") from exc
        except (aiohttp.ClientError, OSError, ValueError) as exc:
            raise _unreachable(exc) from exc

    def _session(self) -> aiohttp.ClientSession:
        self._ssl = self._ssl or ssl.create_default_context()
        connector = aiohttp.TCPConnector(
            resolver=_CheckedResolver(self._allows, self._lookup, self._threads),
            socket_factory=partial(_guarded_socket, self._allows),
            use_dns_cache=False,
            ssl=self._ssl,
            limit=1,
        )
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=_HEADERS,
            auto_decompress=False,
            trust_env=False,
            timeout=aiohttp.ClientTimeout(total=None),
        )

    async def _follow(self, session: aiohttp.ClientSession, url: str) -> Page:
        target = _parse(url)
        for _ in range(self._policy.max_redirects + 1):
            self._check(target)
            async with session.get(target, allow_redirects=False) as response:
                location = response.headers.get("Location", "")
                if response.status not in _REDIRECTS or not location:
                    return await self._read(response, target)
            target = target.join(_parse(location))
        raise ToolError(f"It redirects more than {self._policy.max_redirects} times.", code="too_many_redirects")

    def _check(self, url: URL) -> None:
        """Raise ToolError if the URL alone says that it may not be fetched."""
        if url.scheme not in {"http", "https"} or not _HOST.fullmatch(url.raw_host or ""):
            raise _refused("Only http and https URLs with a host can be fetched.")
        if url.user is not None or url.password is not None:
            raise _refused("URLs with a user name or password are not fetched.")
        if url.port not in self._policy.ports:
            raise _refused("Only the ports " + ", ".join(map(str, sorted(self._policy.ports))) + " can be reached.")
        if _is_literal(url.raw_host or "") and not self._allows(url.raw_host or ""):
            raise _refused("This address is not on the public internet.")

    def _allows(self, address: str) -> bool:
        return is_public(address) or (self._policy.allow_loopback and is_loopback(address))

    async def _read(self, response: aiohttp.ClientResponse, url: URL) -> Page:
        content_type = response.headers.get("Content-Type", "text/plain")
        if response.status >= 400:  # noqa: PLR2004 - HTTP's border between success and failure
            raise ToolError(f"The server answered {response.status}.", code="http_status")
        if not is_readable(content_type):
            raise NotReadable("it is not text")
        inflater = Inflater(response.headers.get("Content-Encoding", ""), self._policy.max_bytes)
        async for piece in response.content.iter_chunked(_PIECE):
            inflater.feed(piece)
            if inflater.full:
                break
        text = to_text(bytes(inflater.content), content_type)
        return Page(str(url.with_fragment(None)), content_type[:100], text, truncated=inflater.full)


class _CheckedResolver(AbstractResolver):
    """Looks names up once and refuses the host if any of its addresses is not allowed."""

    def __init__(self, allows: Callable[[str], bool], lookup: Lookup, threads: Threads) -> None:
        self._allows = allows
        self._lookup = lookup
        self._threads = threads

    async def resolve(
        self,
        host: str,
        port: int = 0,
        family: socket.AddressFamily = socket.AF_UNSPEC,  # noqa: ARG002 - aiohttp's
    ) -> list[ResolveResult]:
        """Return the addresses of ``host``; raise ToolError if one is not allowed, OSError if there is none."""
        found = await in_thread(self._threads, partial(_looked_up, self._lookup, host, port))
        if isinstance(found, OSError):
            raise found
        if not all(self._allows(address) for _, address in found):
            raise _refused("This host is not on the public internet.")
        return [
            ResolveResult(hostname=host, host=address, port=port, family=kind, proto=0, flags=socket.AI_NUMERICHOST)
            for kind, address in found
        ]

    async def close(self) -> None:
        """Hold nothing."""


def _looked_up(lookup: Lookup, host: str, port: int) -> list[tuple[int, str]] | OSError:
    try:
        return lookup(host, port)
    except Exception:  # noqa: BLE001 - a thread of ours has nobody else to tell
        return OSError("no such host")


def _guarded_socket(allows: Callable[[str], bool], address_info: Any) -> socket.socket:
    """Make the socket for an address, or refuse: what is checked here is what is connected to."""
    family, kind, protocol, _, address = address_info
    if not allows(address[0]):
        raise _refused("This address is not on the public internet.")
    return socket.socket(family, kind, protocol)


def _parse(url: str) -> URL:
    try:
        return URL(url.strip())
    except (ValueError, TypeError) as exc:
        raise _refused("This is not a URL.") from exc


def _is_literal(host: str) -> bool:
    with contextlib.suppress(OSError):
        socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host.partition("%")[0])
        return True
    return False


def _refused(reason: str) -> ToolError:
    return ToolError(reason, code="not_allowed", recovery="Do not try other spellings; use another public page.")


def _unreachable(exc: Exception) -> ToolError:
    certificate = isinstance(exc, aiohttp.ClientConnectorCertificateError)
    reason = "Its certificate does not fit its name." if certificate else "It could not be reached."
    return ToolError(reason, code="unreachable")
