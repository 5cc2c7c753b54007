"""The checks of ``roundelay doctor``: of the settings, Redis, the broker, and the model; each returns findings."""

import os
import shutil
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import redis
from kombu.connection import Connection
from redis.exceptions import RedisError

from roundelay_worker.cli.connecting import PATIENCE, connect_redis
from roundelay_worker.cli.findings import Finding, fault, note, ok
from roundelay_worker.settings import Settings, unknown_names
from roundelay_worker.tools.loading import UNUSABLE, SetupFailed, load_tools

OLDEST_REDIS: Final = (6, 2)
_MEGABYTE: Final = 1_048_576
_LOW_SPACE: Final = 256 * _MEGABYTE
_OWN_ADDRESSES: Final = {
    "openai": "https://api.openai.com",
    "anthropic": "https://api.anthropic.com",
    "google": "https://generativelanguage.googleapis.com",
}
_KEYS: Final = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY", "google": "GEMINI_API_KEY"}


def settings_findings(settings: Settings, env: Mapping[str, str]) -> Iterator[Finding]:
    """Look for misspelt variables, a missing model, a full disk."""
    for sentence in unknown_names(env):
        yield note("settings", sentence, "remove or rename it")
    if settings.model is None:
        yield note(
            "settings",
            "ROUNDELAY_MODEL is not set",
            "set it where the workers start, unless every submit names its model",
        )
    if settings.home.exists() and (free := shutil.disk_usage(settings.home).free) < _LOW_SPACE:
        yield fault("settings", f"{free // _MEGABYTE} MiB are free in {settings.home}", "make room")
    yield ok("settings", f"read; prefix {settings.prefix}")


def tool_findings(settings: Settings) -> Iterator[Finding]:
    """Import the tool modules as a worker does: after its setup, and from the working folder too."""
    if (here := os.getcwd()) not in sys.path:  # noqa: PTH109  # sys.path holds strings
        sys.path.insert(0, here)
    try:
        registry = load_tools(settings.setup, settings.tool_modules, settings.builtin_tools)
    except SetupFailed as exc:
        yield fault("tools", str(exc), "mend what it names")
    except UNUSABLE as exc:
        yield fault("tools", str(exc), "mend what it names, or take it out of the setting")
    else:
        yield ok("tools", ", ".join(registry.names()) or "none; models are offered no tool")


def redis_findings(settings: Settings) -> Iterator[Finding]:
    """Look at Redis: reachable, new enough, keeping what it is told, evicting nothing."""
    try:
        with connect_redis(settings) as connection:
            found: dict[str, Any] = {**connection.info()}
    except (RedisError, OSError) as exc:
        yield fault("redis", f"does not answer ({type(exc).__name__})", _mend_redis(exc))
        return
    yield from _version(found)
    yield from _eviction(found)
    yield from _persistence(found)


def _mend_redis(exc: Exception) -> str:
    if isinstance(exc, redis.AuthenticationError):
        return "put the right user and password into ROUNDELAY_REDIS_URL"
    return "check ROUNDELAY_REDIS_URL and that the server runs; a `roundelay up` that was killed is started anew"


def _version(found: Mapping[str, Any]) -> Iterator[Finding]:
    name = found.get("server_name", "redis")
    version = str(found.get("valkey_version") or found.get("redis_version", "0"))
    if tuple(int(part) for part in version.split(".")[:2] if part.isdecimal()) < OLDEST_REDIS:
        yield fault("redis", f"{name} {version} is too old", "use Valkey, or Redis 6.2 or newer")
    else:
        yield ok("redis", f"{name} {version} answers")


def _eviction(found: Mapping[str, Any]) -> Iterator[Finding]:
    policy = found.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        mend = "set maxmemory-policy noeviction: what is evicted was somebody's message"
        yield fault("redis", f"maxmemory-policy is {policy}", mend)
    used, most = int(found.get("used_memory", 0)), int(found.get("maxmemory", 0))
    if most and used > most * 0.8:
        yield note("redis", f"{used // _MEGABYTE} of {most // _MEGABYTE} MiB are used", "give it more memory")


def _persistence(found: Mapping[str, Any]) -> Iterator[Finding]:
    if not int(found.get("aof_enabled", 0)):
        mend = "set appendonly yes: what is not yet in the database is lost when Redis restarts"
        yield fault("redis", "append-only persistence is off", mend)
    elif found.get("aof_last_write_status", "ok") != "ok":
        yield fault("redis", "the last write to its append-only file failed", "look at its disk and its log")
    else:
        yield ok("redis", "keeps what it is told (append-only)")


def broker_findings(settings: Settings) -> Iterator[Finding]:
    """Reach the broker."""
    if settings.broker_url == settings.redis_url:
        yield ok("broker", "is the same Redis")
        return
    connection: Any = Connection(settings.broker_url, connect_timeout=PATIENCE)
    try:
        connection.ensure_connection(max_retries=1, timeout=PATIENCE)
    except Exception as exc:  # noqa: BLE001  # every transport has errors of its own
        mend = "check ROUNDELAY_BROKER_URL and that the broker runs"
        yield fault("broker", f"does not answer ({type(exc).__name__})", mend)
    else:
        yield ok("broker", "answers")
    finally:
        connection.release()


def model_findings(settings: Settings) -> Iterator[Finding]:
    """Look at the model's key and address; nothing is asked of the model, so nothing is spent."""
    if settings.model is None or settings.model.startswith("demo:"):
        yield ok("model", settings.model or "none by default")
        return
    provider = settings.model.partition(":")[0]
    yield from _credentials(provider, settings)
    yield from _reachability(provider, settings)


def _credentials(provider: str, settings: Settings) -> Iterator[Finding]:
    endpoint = settings.endpoint(provider)
    name = _KEYS.get(provider, "ROUNDELAY_CHAT_API_KEY")
    key = endpoint.api_key.get_secret_value() if endpoint.api_key else ""
    if any(letter.isspace() or not letter.isprintable() for letter in key) or key.strip("\"'") != key:
        yield fault("model", f"{name} has blanks, quotes or control characters in it", "paste the key again")
    elif key:
        yield ok("model", f"{settings.model} with a key of {len(key)} characters")
    elif provider == "chat" and settings.chat_base_url:
        yield ok("model", f"{settings.model} without a key (fine for a server of your own)")
    else:
        yield fault("model", f"{settings.model} needs a key", f"set {_KEYS.get(provider, 'OPENAI_API_KEY')}")


def _reachability(provider: str, settings: Settings) -> Iterator[Finding]:
    address = settings.endpoint(provider).base_url or _OWN_ADDRESSES.get(provider, _OWN_ADDRESSES["openai"])
    host = urlsplit(address).hostname
    if answers(address):
        yield ok("model", f"{host} answers")
    else:
        yield fault("model", f"{host} cannot be reached", "check the base URL, the network, and a proxy's settings")


def answers(address: str) -> bool:
    """Return whether an HTTP server answers there, whatever it says; no key is sent."""
    request = urllib.request.Request(address, method="HEAD")  # noqa: S310  # settings allow http and https only
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE):  # noqa: S310
            return True
    except urllib.error.HTTPError as exc:
        exc.close()
        return True
    except OSError:
        return False
