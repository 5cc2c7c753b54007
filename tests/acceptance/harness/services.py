"""Services that a test may hurt."""

import asyncio
from urllib.parse import urlsplit, urlunsplit

import asyncpg


def create_database(server: str, name: str) -> str:
    """Make an empty database on a PostgreSQL server; return its URL."""

    async def create() -> None:
        connection = await asyncpg.connect(server)
        try:
            await connection.execute(f'CREATE DATABASE "{name}"')
        finally:
            await connection.close()

    asyncio.run(create())
    return urlunsplit(urlsplit(server)._replace(path=f"/{name}"))
