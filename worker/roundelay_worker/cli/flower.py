"""``roundelay flower``: Celery's web page, closed to everyone that has no business there.

Flower can end workers, and shows what tasks are called with (ids, in our case). On the loopback it is open
to this machine and read-only; on any other address it has a password, given or made.
"""

import ipaddress
import os
import secrets
import sys
from collections.abc import Mapping
from typing import Final

from roundelay_worker.cli.parser import Options
from roundelay_worker.cli.programs import celery, replace_by
from roundelay_worker.settings import Settings, SettingsError

AUTH: Final = "ROUNDELAY_FLOWER_AUTH"
_DOORS: Final = frozenset({"FLOWER_BASIC_AUTH", "FLOWER_UNAUTHENTICATED_API", "FLOWER_ADDRESS", "FLOWER_UNIX_SOCKET"})

_NICE: Final = 10
"""Flower works through three events a round; where workers want the whole machine, watching is to wait."""


def run(options: Options, env: Mapping[str, str]) -> int:
    """Become Flower."""
    Settings.from_env(env)
    auth = flower_auth(options.address, env)
    if auth and not env.get(AUTH):
        sys.stderr.write(f"roundelay flower: user and password for {options.address}: {auth} (set {AUTH} to choose)\n")
    os.nice(_NICE)
    return replace_by(flower_command(options.address, options.port), flower_env(env, auth))


def flower_auth(address: str, env: Mapping[str, str]) -> str:
    """Return ``user:password``, '' for none on the loopback; raise SettingsError for one that closes no door."""
    given = env.get(AUTH, "").strip()
    if not given:
        return "" if _is_loopback(address) else f"roundelay:{secrets.token_urlsafe(12)}"
    for pair in given.split(","):
        user, colon, password = pair.partition(":")
        if not (user and colon and password):
            raise SettingsError((f"{AUTH} must be user:password, or several with commas between them",))
    return given


def flower_command(address: str, port: int) -> list[str]:
    """Return the command; no password is in it, where every user of the machine could read it."""
    return celery("flower", f"--address={address}", f"--port={port}")


def flower_env(env: Mapping[str, str], auth: str) -> dict[str, str]:
    """Return the environment of Flower, which reads its options there; without a password it is read-only."""
    ours = {name: value for name, value in env.items() if name not in _DOORS}
    return {**ours, "FLOWER_BASIC_AUTH": auth} if auth else {"FLOWER_READ_ONLY": "true", **ours}


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"
