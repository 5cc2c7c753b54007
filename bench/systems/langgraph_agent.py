"""LangGraph with its PostgreSQL checkpointer: the graph of its guide (model, tools, back), in the web process."""

import asyncio
import os

import uvloop
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from psycopg import AsyncConnection
from psycopg.rows import DictRow, dict_row
from psycopg_pool import AsyncConnectionPool
from pydantic import SecretStr

from bench import tools
from bench.system import InProcess
from bench.systems.lines import serve_lines

ENDED = """SELECT count(*) FROM (SELECT DISTINCT ON (thread_id) thread_id, checkpoint FROM checkpoints
WHERE thread_id = ANY(%s) ORDER BY thread_id, checkpoint_id DESC) last
WHERE NOT EXISTS (SELECT FROM jsonb_object_keys(checkpoint->'channel_values') name WHERE name LIKE 'branch:%%')"""


class LangGraph(InProcess):
    """LangGraph's library; its server product is not part of it."""

    name = "langgraph"
    label = "LangGraph + checkpointer"
    note = 'AsyncPostgresSaver on a pool of 20, durability "async" (the default), ChatOpenAI; in-process, no queue'
    packages = ("langgraph", "langgraph-checkpoint-postgres", "langchain-openai", "openai", "psycopg")
    ended_query = ENDED

    def prepare(self) -> None:
        """Make the checkpointer's tables."""
        with PostgresSaver.from_conn_string(self.place.database_url) as saver:
            saver.setup()

    def environment(self) -> dict[str, str]:
        """Switch tracing off, which needs an account."""
        return super().environment() | {"LANGSMITH_TRACING": "false"}


@tool
async def lookup(topic: str, size: int) -> str:
    """Look up the notes on a topic."""
    return tools.lookup(topic, size)


def build(saver: AsyncPostgresSaver) -> CompiledStateGraph[MessagesState, None, MessagesState, MessagesState]:
    """Return the graph."""
    model = ChatOpenAI(model="mock", base_url=os.environ["BENCH_MODEL_URL"], api_key=SecretStr("mock"))

    bound = model.bind_tools([lookup])

    async def ask(state: MessagesState) -> dict[str, list[BaseMessage]]:
        return {"messages": [await bound.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", ask)
    graph.add_node("tools", ToolNode([lookup]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    return graph.compile(checkpointer=saver)


async def main() -> None:
    """Answer the messages on standard input."""
    pool: AsyncConnectionPool[AsyncConnection[DictRow]] = AsyncConnectionPool(
        os.environ["BENCH_DATABASE_URL"],
        max_size=20,
        timeout=300,
        kwargs={"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row},
        open=False,
    )
    async with pool:
        graph = build(AsyncPostgresSaver(pool))

        async def answer(name: str, text: str) -> None:
            config = RunnableConfig(configurable={"thread_id": name}, recursion_limit=1_000)
            await graph.ainvoke({"messages": [HumanMessage(text)]}, config)

        await serve_lines(answer)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
