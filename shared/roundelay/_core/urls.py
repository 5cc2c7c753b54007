"""URLs of Redis as services hand them out, and as people write them: read once, made canonical, never shown.

What others put into such a URL either works or is refused with what to mend. Options that are ours to set (time-outs,
the protocol) are read over; TLS is verified unless the URL says that it is not to be.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import parse_qsl, quote, unquote, urlencode

from roundelay.errors import NotConfigured

SCHEMES: Final = ("redis", "rediss", "unix")
_PLACE: Final = re.compile(
    r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[^\s:/?#\[\]@]*)(?::(?P<port>\d*))?(?:/(?P<path>[^?#\s]*))?(?:\?(?P<query>[^#\s]*))?\Z"
)
_OURS: Final = frozenset(
    {
        *("socket_timeout", "socket_connect_timeout", "socket_keepalive", "protocol", "max_connections", "timeout"),
        *("health_check_interval", "retry_on_timeout", "decode_responses", "encoding", "client_name"),
    }
)
"""Options of clients that are read over: we set what they set."""
_TLS: Final = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_check_hostname", "ssl_ca_path")
_VERIFY: Final = {
    "required": "required", "cert_required": "required",
    "optional": "optional", "cert_optional": "optional",
    "none": "none", "cert_none": "none",
}  # fmt: skip
_LAST_PORT: Final = 65_535


def redis_url(url: str, name: str = "the Redis URL") -> str:
    """Return ``url`` in the one form that all of our clients read; raise NotConfigured with what to mend.

    A password may hold any character, encoded or not: what stands before the last ``@`` is the login.
    """
    scheme, mark, rest = url.strip().partition("://")
    if not mark or scheme not in SCHEMES:
        raise NotConfigured(f"{name} must begin with redis://, rediss:// or unix://")
    login, _, place = rest.rpartition("@")
    found = _PLACE.match(place)
    if found is None:
        raise NotConfigured(f"{name} cannot be read: it is written {scheme}://user:password@host:port/database")
    if scheme == "unix":
        return f"unix://{_login(login)}{place}"
    port, database, query = _port(found["port"], name), found["path"] or "", _query(found["query"] or "", name)
    database = query.pop("db", database)
    if database and not database.isdecimal():
        raise NotConfigured(f"{name} names a database that is no number")
    options = dict(_options(scheme, query, name))
    where = f"{found['host'] or 'localhost'}{port}/{database or 0}"
    return f"{scheme}://{_login(login)}{where}" + (f"?{urlencode(options)}" if options else "")


def kombu_url(url: str) -> str:
    """Return how Celery's broker is told of a canonical Redis URL: it knows other words for a socket and for TLS."""
    scheme, _, rest = url.partition("://")
    place, _, query = rest.partition("?")
    options = dict(parse_qsl(query))
    if scheme == "unix":
        named = {("virtual_host" if key == "db" else key): value for key, value in options.items()}
        return f"redis+socket://{place}" + (f"?{urlencode(named)}" if named else "")
    if scheme == "rediss":
        options["ssl_cert_reqs"] = f"CERT_{options.get('ssl_cert_reqs', 'required').upper()}"
    return f"{scheme}://{place}" + (f"?{urlencode(options)}" if options else "")


def _login(login: str) -> str:
    if not login:
        return ""
    user, colon, password = login.partition(":")
    return f"{_encoded(user)}{colon}{_encoded(password)}@"


def _encoded(text: str) -> str:
    """Return a user or password encoded, whether or not it was: a ``%`` that encodes nothing stands for itself."""
    return quote(unquote(text) if re.search(r"%[0-9A-Fa-f]{2}", text) else text, safe="")


def _port(port: str | None, name: str) -> str:
    if not port:
        return "" if port is None else ":6379"
    if not 0 < int(port) <= _LAST_PORT:
        raise NotConfigured(f"{name} names a port that is none: ports are 1 to {_LAST_PORT}")
    return f":{port}"


def _query(text: str, name: str) -> dict[str, str]:
    query = dict(parse_qsl(text, keep_blank_values=True))
    if "db" in query and not query["db"].isdecimal():
        raise NotConfigured(f"{name} names a database that is no number")
    return query


def _options(scheme: str, query: Mapping[str, str], name: str) -> Iterator[tuple[str, str]]:
    for key, value in query.items():
        if key in _OURS:
            continue
        if key == "ssl_cert_reqs" and scheme == "rediss":
            verify = _VERIFY.get(value.lower())
            if verify is None:
                raise NotConfigured(f"{name}: ssl_cert_reqs is required, optional or none")
            yield key, verify
            if verify == "none":
                yield "ssl_check_hostname", "False"
        elif key in _TLS and scheme == "rediss":
            yield key, value
        else:
            known = ", ".join(("db", "ssl_cert_reqs", *_TLS))
            raise NotConfigured(f"{name} has the option {key[:40]!r}, which is not known; known are {known}")
