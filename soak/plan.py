"""What is asked, and what the model answers: all of it from a seed, so that a run can be repeated."""

import random
from dataclasses import dataclass
from typing import Any, Final

from roundelay_worker.testing.fake_llm import script

Json = dict[str, Any]

MODELS: Final = ("chat:gpt-4o", "openai:gpt-5", "anthropic:claude-sonnet-4-5", "google:gemini-3-pro")
LIMIT: Final = 10
"""Rounds of tools that a message may have; a few ask for more, and are told to close."""
MOST_MESSAGES: Final = 9
"""Messages of one conversation."""
TOOLS: Final = {
    "read_async": 30,
    "read_sync": 14,
    "read_isolated": 1,
    "read_failing": 3,
    "write_async": 14,
    "write_sync": 12,
    "write_isolated": 2,
    "write_overrun": 1,
    "write_verified": 4,
    "write_again_async": 10,
    "write_again_sync": 8,
    "write_again_isolated": 1,
}
"""How often each tool is asked for, in parts of a hundred."""
FAULTS: Final[tuple[Json, ...]] = (
    {"error": "rate_limited", "retry_after": 0.4},
    {"error": "rate_limited", "retry_after": 2},
    {"error": "rate_limited"},
    {"error": "overloaded"},
    {"error": "unavailable", "retry_after": 1},
    {"error": "server_error"},
    {"error": "gateway"},
    {"text": "This will not", "cut": True},
    {"text": "This will not be the answer, since the line is cut.", "cut": 2},
    {"text": "Nor will this", "cut": "clean"},
    {"in_stream_error": "overloaded", "text": "Half of"},
    {"finish": "empty"},
)


@dataclass(frozen=True, slots=True)
class Message:
    """What a user will send: ``cancel_after`` seconds it is called back; ``waits`` for its answer before the next."""

    number: int
    conversation: str
    user: str
    name: str
    text: str
    model: str
    rounds: int
    cancel_after: float | None
    waits: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """All conversations, each with its messages in order."""

    conversations: tuple[tuple[Message, ...], ...]

    @property
    def messages(self) -> tuple[Message, ...]:
        """All messages."""
        return tuple(message for conversation in self.conversations for message in conversation)


def make_plan(messages: int, longest: int, seed: int) -> Plan:
    """Return the plan of a seed; ``longest`` is the most rounds of a usual message."""
    dice = random.Random(seed)
    conversations: list[tuple[Message, ...]] = []
    made = 0
    while made < messages:
        size = min(dice.randint(1, min(MOST_MESSAGES, 2 * longest)), messages - made)
        conversations.append(_conversation(dice, len(conversations), made, size, longest))
        made += size
    return Plan(tuple(conversations))


def last_message(number: int, conversation: str, user: str) -> Message:
    """Return what is sent to a conversation at the very end, when all is quiet."""
    name = f"soak-{number:06d}"
    steps = ({"calls": [_call(random.Random(number), name, 0, 0, "read_async")]}, {"text": "Still here."})
    return Message(number, conversation, user, name, script(*steps, name=name), MODELS[0], 1, None, waits=True)


def _conversation(dice: random.Random, number: int, first: int, size: int, longest: int) -> tuple[Message, ...]:
    usual = dice.choice(MODELS)
    return tuple(_message(dice, f"c{number:05d}", first + place, usual, longest) for place in range(size))


def _message(dice: random.Random, conversation: str, number: int, usual: str, longest: int) -> Message:
    name = f"soak-{number:06d}"
    rounds = LIMIT + 2 if longest == LIMIT and dice.random() < 0.03 else dice.randint(1, longest)
    steps = [_round(dice, name, place) for place in range(rounds)]
    steps.append(_perhaps_faulty(dice, _spoken(dice, {"text": f"That was {name}, in {rounds} rounds."})))
    return Message(
        number=number,
        conversation=conversation,
        user=f"u{sum(map(ord, conversation)) % 7}",
        name=name,
        text=f"Please do this. {script(*steps, name=name)}",
        model=usual if dice.random() < 0.85 else dice.choice(MODELS),
        rounds=rounds,
        cancel_after=dice.uniform(0, 12) if dice.random() < 0.05 else None,
        waits=dice.random() < 0.4,
    )


def _round(dice: random.Random, name: str, place: int) -> Json:
    chosen = dice.choices(list(TOOLS), list(TOOLS.values()), k=dice.choice((1, 1, 1, 2, 2, 3)))
    calls = [_call(dice, name, place, position, each) for position, each in enumerate(chosen)]
    return _perhaps_faulty(dice, _spoken(dice, {"calls": calls}))


def _call(dice: random.Random, name: str, place: int, position: int, chosen: str) -> Json:
    seconds = dice.uniform(0.6, 1.6) if chosen == "write_overrun" else dice.choice((0, 0, 0.02, 0.1, 0.3, 1.0, 2.5))
    return {"name": chosen, "arguments": {"token": f"{name}/{place}/{position}", "seconds": round(seconds, 2)}}


def _spoken(dice: random.Random, step: Json) -> Json:
    """Return a step with the time that a model takes, and now and then with what it thinks or says beside its calls."""
    spoken = {**step, "delay": round(dice.expovariate(3), 2)}
    if dice.random() < 0.3:
        spoken["thinking"] = "Let me see what there is to do."
    if "calls" in step and dice.random() < 0.3:
        spoken["text"] = "I am looking into it."
    if dice.random() < 0.1:
        spoken["pace"] = 0.05
    return spoken


def _perhaps_faulty(dice: random.Random, step: Json) -> Json:
    if dice.random() >= 0.1:
        return step
    return {**dice.choice(FAULTS), "times": 1, "then": step}
