"""pydantic-ai made durable by DBOS: a workflow a message, a step a model request, the read tool as a step."""

import os
import subprocess
import sys
from pathlib import Path
from threading import Event

from dbos import DBOS, DBOSClient, DBOSConfig
from pydantic_ai import Agent
from pydantic_ai.durable_exec.dbos import DBOSDurability
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import UsageLimits

from bench import tools
from bench.script import Conversation
from bench.system import Place, System

QUEUE = "messages"
POLLING_SECONDS = 0.1
"""DBOS ships with 1 s; a tenth brings the first model request forward."""

MODEL_URL = os.environ.get("BENCH_MODEL_URL", "http://127.0.0.1/v1")

model = OpenAIChatModel("mock", provider=OpenAIProvider(base_url=MODEL_URL, api_key="mock"))
agent = Agent(model, name="bench", capabilities=[DBOSDurability()])


@agent.tool_plain
@DBOS.step()
async def lookup(topic: str, size: int) -> str:
    """Look up the notes on a topic."""
    return tools.lookup(topic, size)


@DBOS.workflow()
async def answer(text: str) -> str:
    """Run the agent on one message."""
    result = await agent.run(text, usage_limits=UsageLimits(request_limit=1_000))
    return result.output


def main(number: str) -> None:
    """Serve the queue."""
    config = DBOSConfig(
        name="bench",
        application_version="1",
        executor_id=number,
        system_database_url=os.environ["BENCH_DATABASE_URL"].replace("postgresql://", "postgresql+psycopg://"),
        sys_db_pool_size=20,
        log_level="WARNING",
    )
    DBOS(config=config)
    DBOS.launch()
    DBOS.register_queue(
        QUEUE, worker_concurrency=int(os.environ["BENCH_CONCURRENCY"]), polling_interval_sec=POLLING_SECONDS
    )
    Event().wait()


class Dbos(System):
    """pydantic-ai on DBOS."""

    name = "dbos"
    label = "pydantic-ai + DBOS"
    note = f"DBOSDurability, the tool as a step, DBOS queue polled every {POLLING_SECONDS} s (default: 1 s), pool of 20"
    packages = ("dbos", "pydantic-ai-slim", "openai")
    ended_query = "SELECT count(*) FROM dbos.workflow_status WHERE status = 'SUCCESS' AND workflow_uuid = ANY(%s)"
    client_import = "from dbos import DBOSClient"

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._client: DBOSClient | None = None

    @property
    def client(self) -> DBOSClient:
        """Return the client, connected at its first use."""
        if self._client is None:
            url = self.place.database_url.replace("postgresql://", "postgresql+psycopg://")
            self._client = DBOSClient(system_database_url=url)
        return self._client

    def prepare(self) -> None:
        """Make DBOS's tables, with its own command."""
        url = self.place.database_url.replace("postgresql://", "postgresql+psycopg://")
        program = str(Path(sys.executable).with_name("dbos"))
        subprocess.run([program, "migrate", "--sys-db-url", url], check=True, capture_output=True)

    def commands(self) -> list[list[str]]:
        """Return one program per process."""
        program = [sys.executable, "-m", "bench.systems.dbos_agent"]
        return [[*program, str(number)] for number in range(self.place.processes)]

    def submit(self, conversation: Conversation) -> None:
        """Enqueue the workflow as a web app does."""
        options = {"queue_name": QUEUE, "workflow_name": "answer", "workflow_id": conversation.id, "app_version": "1"}
        self.client.enqueue(options, conversation.text)  # type: ignore[arg-type]

    def close(self) -> None:
        """End the workers and the client."""
        if self._client is not None:
            self._client.destroy()
        super().close()


if __name__ == "__main__":
    main(sys.argv[1])
