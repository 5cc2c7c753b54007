"""A hand-written chain on Celery: one task a round, state on PostgreSQL through SQLModel, progress through Redis.

What many teams run today, with the usual mistakes taken out: late acks, messages and rounds in a
threads pool, connections pooled and not held during the model call, one HTTP client a thread on a shared TLS
context (one shared httpx pool does not scale with open connections), no results backend, one commit a round.
"""

import json
import os
import ssl
import sys
import threading
from typing import Any

import httpx
import redis
from celery import Celery
from sqlalchemy import JSON, Column, Engine, insert, update
from sqlmodel import Field, Session, SQLModel, col, create_engine, select

from bench.script import Conversation
from bench.system import Place, System
from bench.tools import SCHEMA, lookup

DATABASE_URL = os.environ.get("BENCH_DATABASE_URL", "").replace("postgresql://", "postgresql+psycopg://")
REDIS_URL = os.environ.get("BENCH_REDIS_URL", "redis://127.0.0.1")
MODEL_URL = os.environ.get("BENCH_MODEL_URL", "")

app = Celery("celery_chain", broker=REDIS_URL)
app.conf.update(
    task_acks_late=True,
    task_ignore_result=True,
    worker_prefetch_multiplier=1,
    worker_send_task_events=False,
    broker_pool_limit=20,
    broker_connection_retry_on_startup=True,
    broker_transport_options={"visibility_timeout": 3_600},
)


class Message(SQLModel, table=True):
    """A user's message and how far it is."""

    id: str = Field(primary_key=True)
    text: str
    status: str = "queued"
    round: int = 0
    answer: str | None = None


class Entry(SQLModel, table=True):
    """One turn of the model or one tool result."""

    message_id: str = Field(primary_key=True, foreign_key="message.id")
    position: int = Field(primary_key=True)
    content: dict[str, Any] = Field(sa_column=Column(JSON, nullable=False))


POOL = {"pool_size": 20, "max_overflow": 0} if DATABASE_URL else {}

engine: Engine = create_engine(DATABASE_URL or "sqlite://", **POOL)
progress = redis.Redis(connection_pool=redis.BlockingConnectionPool.from_url(REDIS_URL, max_connections=20, timeout=60))
tls = ssl.create_default_context()
local = threading.local()


def http() -> httpx.Client:
    """Return the HTTP client of this thread."""
    if not hasattr(local, "http"):
        local.http = httpx.Client(base_url=MODEL_URL, verify=tls, timeout=300)
    client: httpx.Client = local.http
    return client


def load(message_id: str) -> tuple[int, list[dict[str, Any]]]:
    """Return the round that is due and the history so far."""
    with Session(engine) as session:
        message = session.get_one(Message, message_id)
        contents = session.exec(
            select(Entry.content).where(Entry.message_id == message_id).order_by(col(Entry.position))
        )
        return message.round, [{"role": "user", "content": message.text}, *contents]


def ask(history: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the model's next turn."""
    reply = http().post("/chat/completions", json={"model": "mock", "messages": history, "tools": [SCHEMA]})
    message: dict[str, Any] = reply.raise_for_status().json()["choices"][0]["message"]
    return message


def run(call: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a call."""
    result = lookup(**json.loads(call["function"]["arguments"]))
    return {"role": "tool", "tool_call_id": call["id"], "content": result}


def save(message_id: str, number: int, position: int, entries: list[dict[str, Any]], answer: str | None) -> None:
    """Save a turn with its results, in one commit."""
    status = "running" if answer is None else "answered"
    rows = [
        {"message_id": message_id, "position": position + place, "content": entry}
        for place, entry in enumerate(entries)
    ]
    with Session(engine) as session:
        session.execute(insert(Entry), rows)
        session.execute(
            update(Message).where(col(Message.id) == message_id).values(round=number + 1, status=status, answer=answer)
        )
        session.commit()


@app.task
def step(message_id: str, number: int) -> None:
    """Run one round and hand on to the next; a repeated task does nothing."""
    due, history = load(message_id)
    if due != number:
        return
    turn = ask(history)
    calls = turn.get("tool_calls") or []
    answer = None if calls else turn["content"]
    save(message_id, number, len(history), [turn, *map(run, calls)], answer)
    progress.publish(f"progress:{message_id}", json.dumps({"round": number, "answer": answer}))
    if answer is None:
        step.delay(message_id, number + 1)


class CeleryChain(System):
    """The hand-written chain."""

    name = "celery-chain"
    label = "Celery, by hand"
    note = "one task a round, SQLModel on psycopg, one httpx client a thread, threads pool, late acks, prefetch 1"
    packages = ("celery", "redis", "sqlmodel", "sqlalchemy", "psycopg", "httpx")
    ended_query = "SELECT count(*) FROM message WHERE status = 'answered' AND id = ANY(%s)"
    client_import = "import celery, redis; celery.Celery(broker='redis://').connection"

    def __init__(self, place: Place) -> None:
        self.engine = create_engine(place.database_url.replace("postgresql://", "postgresql+psycopg://"))
        self.app = Celery("celery_chain", broker=place.redis_url)
        super().__init__(place)

    def prepare(self) -> None:
        """Make the tables."""
        SQLModel.metadata.create_all(self.engine)

    def commands(self) -> list[list[str]]:
        """Return one worker per process, quiet and without gossip."""
        options = ["-P", "threads", "-c", str(self.place.concurrency), "-l", "WARNING"]
        quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
        program = [sys.executable, "-m", "celery", "-A", "bench.systems.celery_chain:app", "worker"]
        return [[*program, "-n", f"w{number}@bench", *options, *quiet] for number in range(self.place.processes)]

    def submit(self, conversation: Conversation) -> None:
        """Do what a web app does: insert the message, send its first task."""
        with Session(self.engine) as session:
            session.add(Message(id=conversation.id, text=conversation.text))
            session.commit()
        self.app.send_task("bench.systems.celery_chain.step", [conversation.id, 0])

    def close(self) -> None:
        """End the workers and the client's connections."""
        super().close()
        self.app.close()
        self.engine.dispose()
