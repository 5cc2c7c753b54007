"""The database's URL as managed services hand it out, made into one that asyncpg reads; never shown."""

import re
from typing import Final
from urllib.parse import parse_qsl, quote, unquote, urlencode

_PLACE: Final = re.compile(r"(?P<hosts>[^\s/?#@]*)/?(?P<name>[^?#\s]*)(?:\?(?P<query>[^#\s]*))?\Z")
_READ: Final = frozenset(
    {
        *("sslmode", "sslrootcert", "sslcert", "sslkey", "sslpassword", "sslcrl", "ssl_min_protocol_version"),
        *("ssl_max_protocol_version", "target_session_attrs", "host", "port", "user", "password", "passfile"),
        *("database", "dbname", "application_name", "options", "service", "servicefile", "krbsrvname"),
    }
)
_READ_OVER: Final = frozenset(
    {
        *("channel_binding", "connect_timeout", "keepalives", "keepalives_idle", "keepalives_interval"),
        *("keepalives_count", "tcp_user_timeout", "gssencmode", "sslcompression", "sslnegotiation", "sslsni"),
        *("requiressl", "client_encoding", "pool_timeout", "connection_limit", "schema", "sslaccept"),
        *("prepared_statement_cache_size", "statement_cache_size", "async_fallback", "replication"),
    }
)
"""Parameters of libpq and of other clients, for which asyncpg has no use or we have a value of our own."""


def database_url(url: str) -> str:
    """Return ``url`` as our driver reads it; raise ValueError with what to mend, and no part of it.

    ``pgbouncer=true`` stays: it tells the store that a pooler in transaction mode stands between.

    A driver behind the scheme (``postgresql+asyncpg``) is left out, a password may hold any character, encoded or not.
    """
    scheme, _, rest = url.partition("://")
    if scheme == "sqlite":
        return url
    if scheme.partition("+")[0] not in ("postgresql", "postgres"):
        raise ValueError("must begin with sqlite://, postgresql:// or postgres://")
    login, _, place = rest.rpartition("@")
    found = _PLACE.match(place)
    if found is None:
        raise ValueError("cannot be read: it is written postgresql://user:password@host:port/database")
    user, colon, password = login.partition(":")
    who = f"{_encoded(user)}{colon}{_encoded(password)}@" if login else ""
    query = _options(found["query"] or "")
    return f"postgresql://{who}{found['hosts']}/{found['name']}" + (f"?{urlencode(query)}" if query else "")


def _encoded(text: str) -> str:
    return quote(unquote(text) if re.search(r"%[0-9A-Fa-f]{2}", text) else text, safe="")


def _options(text: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for name, value in parse_qsl(text, keep_blank_values=True):
        if name == "ssl":
            options["sslmode"] = "require" if value.lower() in ("true", "1", "require") else value.lower()
        elif name == "pgbouncer":
            options |= {name: "true"} if value.lower() in ("true", "1") else {}
        elif name in _READ:
            options[name] = value
        elif name not in _READ_OVER:
            raise ValueError(f"has the parameter {name[:40]!r}, which is not known: take it out")
    return options
