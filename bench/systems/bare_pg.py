"""The bare loop with one upsert a round: durable state, but nobody who takes over."""

import asyncio
import os

import asyncpg
import orjson
import uvloop

from bench.system import InProcess
from bench.systems.bare import Messages, answer, session
from bench.systems.lines import serve_lines

TABLE = "CREATE TABLE runs (id text PRIMARY KEY, ended boolean NOT NULL, messages jsonb NOT NULL)"
UPSERT = """INSERT INTO runs (id, ended, messages) VALUES ($1, $2, $3)
ON CONFLICT (id) DO UPDATE SET ended = excluded.ended, messages = excluded.messages"""


class BarePg(InProcess):
    """One upsert a round."""

    name = "bare-pg"
    label = "bare loop + PostgreSQL"
    note = "the same with one asyncpg upsert a round; nothing resumes it after a crash"
    packages = ("aiohttp", "asyncpg", "uvloop")
    ended_query = "SELECT count(*) FROM runs WHERE ended AND id = ANY(%s)"

    def prepare(self) -> None:
        """Make the table."""
        asyncio.run(make_table(self.place.database_url))


async def make_table(url: str) -> None:
    """Make the table."""
    connection = await asyncpg.connect(url)
    await connection.execute(TABLE)
    await connection.close()


async def main() -> None:
    """Answer the messages on standard input."""
    async with session() as http, asyncpg.create_pool(os.environ["BENCH_DATABASE_URL"], max_size=10) as pool:

        async def save(name: str, messages: Messages) -> None:
            ended = not messages[-1].get("tool_call_id")
            await pool.execute(UPSERT, name, ended, orjson.dumps(messages).decode())

        await serve_lines(lambda name, text: answer(http, name, text, save))


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
