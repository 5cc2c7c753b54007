"""What a test does to the services behind a deployment's back."""

import asyncio
import io
from contextlib import redirect_stdout
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
from celery import Celery

from roundelay.names import messages_queue
from roundelay_worker.cli import healthz
from roundelay_worker.cli.parser import parser
from roundelay_worker.cli.store_checks import store_findings
from roundelay_worker.settings import Settings


def create_database(server: str, name: str) -> str:
    """Make an empty database on a PostgreSQL server; return its URL."""
    postgres_at(server, f'CREATE DATABASE "{name}"')
    return urlunsplit(urlsplit(server)._replace(path=f"/{name}"))


def postgres_at(url: str, statement: str, *arguments: Any) -> list[Any]:
    """Run one statement and return its rows."""

    async def run() -> list[Any]:
        connection = await asyncpg.connect(url)
        try:
            return list(await connection.fetch(statement, *arguments))
        finally:
            await connection.close()

    return asyncio.run(run())


def send(place: Any, name: str, arguments: list[Any], task_id: str | None = None) -> None:
    """Send a task as anybody could."""
    with Celery(set_as_current=False, broker=place.env.get("ROUNDELAY_BROKER_URL", place.redis_url)) as app:
        app.conf.task_ignore_result = True
        app.send_task(name, args=arguments, task_id=task_id, queue=messages_queue(place.prefix))


def health(place: Any) -> tuple[int, str]:
    """Return what a probe sees: the exit code, and the reason."""
    with redirect_stdout(io.StringIO()) as said:
        code = healthz.run(parser().parse_args(["healthz"]), place.env)
    return code, said.getvalue().partition(":")[0].strip()


def faults(place: Any) -> str:
    """Return what ``roundelay doctor`` would have mended in the database."""
    found = asyncio.run(store_findings(Settings.from_env(place.env)))
    return "\n".join(finding.text for finding in found if finding.verdict == "fault")


def postgres_rows(url: str, question: str) -> list[Any]:
    """Return the rows of one question."""

    async def ask() -> list[Any]:
        connection = await asyncpg.connect(url)
        try:
            return await connection.fetch(question)
        finally:
            await connection.close()

    return asyncio.run(ask())
