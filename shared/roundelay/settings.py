"""Where the client finds Redis: arguments, the environment, or what ``roundelay up`` wrote down."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from roundelay._core.urls import SCHEMES, kombu_url, redis_url
from roundelay.errors import NotConfigured
from roundelay.messages import DEFAULT_MAX_MESSAGE_BYTES
from roundelay.names import DEFAULT_PREFIX

ADDRESSES: Final = "addresses.json"
DEFAULT_ANSWER_TTL: Final = 86_400


@dataclass(frozen=True, slots=True)
class Settings:
    """The addresses and limits of a client; ``answer_ttl`` is in seconds."""

    redis_url: str
    broker_url: str
    prefix: str = DEFAULT_PREFIX
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
    answer_ttl: int = DEFAULT_ANSWER_TTL

    def __post_init__(self) -> None:
        object.__setattr__(self, "redis_url", redis_url(self.redis_url))
        object.__setattr__(self, "broker_url", broker_of(self.broker_url))
        if not re.fullmatch(r"[A-Za-z0-9._:-]{1,64}", self.prefix):
            raise NotConfigured("the prefix is of 1 to 64 letters, digits and . _ : -")
        if self.max_message_bytes < 1 or self.answer_ttl < 1:
            raise NotConfigured("max_message_bytes and answer_ttl are at least 1")

    def __repr__(self) -> str:
        """Show no URL: it may hold a password."""
        return f"Settings(prefix={self.prefix!r})"


def broker_of(url: str) -> str:
    """Return the URL by which Celery reaches a broker: of Redis in Kombu's words, of any other as it is."""
    is_redis = url.partition("://")[0] in SCHEMES
    return kombu_url(redis_url(url, "the broker URL")) if is_redis else url


def read_settings(environ: Mapping[str, str]) -> Settings:
    """Read ``ROUNDELAY_*``; without a Redis URL there, what ``roundelay up`` wrote to ``ROUNDELAY_HOME``."""
    found = {name: value.strip() for name, value in environ.items()}
    if not found.get("ROUNDELAY_REDIS_URL"):
        found = _written_addresses(environ) | {name: value for name, value in found.items() if value}
    return Settings(
        redis_url=found["ROUNDELAY_REDIS_URL"],
        broker_url=found.get("ROUNDELAY_BROKER_URL") or found["ROUNDELAY_REDIS_URL"],
        prefix=found.get("ROUNDELAY_PREFIX") or DEFAULT_PREFIX,
        max_message_bytes=read_max_message_bytes(found),
        answer_ttl=_number(found, "ROUNDELAY_ANSWER_TTL", DEFAULT_ANSWER_TTL),
    )


def read_max_message_bytes(environ: Mapping[str, str]) -> int:
    """Read how large a submission may be."""
    return _number(environ, "ROUNDELAY_MAX_MESSAGE_BYTES", DEFAULT_MAX_MESSAGE_BYTES)


def home(environ: Mapping[str, str]) -> Path:
    """Return the folder in which ``roundelay up`` keeps what it runs."""
    return Path(environ.get("ROUNDELAY_HOME") or "~/.roundelay").expanduser()


def _written_addresses(environ: Mapping[str, str]) -> dict[str, str]:
    path = home(environ) / ADDRESSES
    try:
        written = json.loads(path.read_text("utf-8"))
        redis_url = str(written["redis_url"])
    except FileNotFoundError:
        raise NotConfigured(
            f"no Redis is known: set ROUNDELAY_REDIS_URL, or start everything with `roundelay up` (which writes {path})"
        ) from None
    except (OSError, ValueError, KeyError, TypeError):
        raise NotConfigured(
            f"{path} cannot be read as the addresses of `roundelay up`; set ROUNDELAY_REDIS_URL"
        ) from None
    names = {"broker_url": "ROUNDELAY_BROKER_URL", "prefix": "ROUNDELAY_PREFIX"}
    found = {ours: str(written[theirs]) for theirs, ours in names.items() if written.get(theirs)}
    return {"ROUNDELAY_REDIS_URL": redis_url, **found}


def _number(found: Mapping[str, str], name: str, default: int) -> int:
    value = found.get(name) or str(default)
    if not value.isdecimal():
        raise NotConfigured(f"{name} is a whole number")
    return int(value)
