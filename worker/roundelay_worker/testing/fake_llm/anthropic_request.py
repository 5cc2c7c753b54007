"""A Messages request as the checks look at it."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from roundelay_worker.testing.fake_llm import seals
from roundelay_worker.testing.fake_llm.refusal import Json, Rules

THINKING = frozenset({"thinking", "redacted_thinking"})


@dataclass(frozen=True)
class Request:
    """Body, headers in lower case, rules; and what several checks derive from them."""

    body: Json
    headers: dict[str, str]
    rules: Rules

    @cached_property
    def model(self) -> str:
        """The model's name."""
        return str(self.body.get("model", ""))

    @cached_property
    def tools(self) -> list[Json]:
        """The declared tools; an empty list and none are the same."""
        return self.body.get("tools") or []

    @cached_property
    def turns(self) -> list[tuple[int, str, list[Json]]]:
        """Messages of one role in a row, merged: (number of the first, role, blocks)."""
        merged: list[tuple[int, str, list[Json]]] = []
        for number, message in enumerate(self.body["messages"]):
            if merged and merged[-1][1] == message["role"]:
                merged[-1][2].extend(blocks(message))
            else:
                merged.append((number, message["role"], list(blocks(message))))
        return merged

    @cached_property
    def thinking(self) -> str:
        """The type of thinking that is asked for, '' if none is named."""
        asked = self.body.get("thinking")
        return str(asked.get("type", "")) if isinstance(asked, dict) else ""


def blocks(message: Json) -> list[Json]:
    """Return the content of a message as blocks."""
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def essence(block: Json) -> Any:
    """Return what must not change of a block: everything but ids, signatures and marks for the cache."""
    return [
        block["type"],
        seals.bound_name(block.get("name")),
        block.get("input"),
        block.get("text"),
        block.get("thinking"),
    ]
