"""Law 8: the history of every state that can be reached is valid for all four wire formats.

The fake model server's checks refuse what the real services refuse. A state gives the request that is due in it, and
the one that a next message sends after it ("go on").
"""

import random
from collections.abc import Callable, Iterable
from dataclasses import replace

import orjson
import pytest
from wandering import TIMEOUT, wandered
from worlds import SOFT, WORLDS, World, explore

from roundelay.messages import Submission, TextPart
from roundelay.names import SOFT_STOPS
from roundelay_worker.engine.model_request import model_request
from roundelay_worker.engine.session import Setup
from roundelay_worker.loop.effects import AskModel
from roundelay_worker.loop.events import CancelAsked, Condemned, TimePassed
from roundelay_worker.loop.history import AssistantText, Entry, Exchange, Native, Turn, UserText
from roundelay_worker.loop.state import Asking, Ended, Failure, Running, State
from roundelay_worker.loop.step import step, todo
from roundelay_worker.providers.anthropic import request as anthropic_request
from roundelay_worker.providers.base import ModelRequest, Patience, ToolSpec
from roundelay_worker.providers.chat import request as chat_request
from roundelay_worker.providers.chat.servers import server_of
from roundelay_worker.providers.encoding import encode
from roundelay_worker.providers.google import request as google_request
from roundelay_worker.providers.responses import request as openai_request
from roundelay_worker.testing.fake_llm import CHECKS, Format

HEADERS: dict[Format, dict[str, str]] = {
    "chat": {"authorization": "Bearer key", "content-type": "application/json"},
    "responses": {"authorization": "Bearer key", "content-type": "application/json"},
    "anthropic": {"x-api-key": "key", "anthropic-version": "2023-06-01", "content-type": "application/json"},
    "gemini": {"x-goog-api-key": "key", "content-type": "application/json"},
}
TOOLS = tuple(ToolSpec(name, name, {"type": "object", "properties": {}}) for name in ("look", "put", "safe"))
OPENAI = chat_request.ChatTarget("gpt-5", "chat:gpt-5@u", server_of("https://api.openai.com/v1"))
MISTRAL = chat_request.ChatTarget("mistral-large-latest", "chat:m@u", server_of("https://api.mistral.ai/v1"))
RESPONSES = openai_request.ResponsesTarget("gpt-5", "openai:gpt-5@u")

WRITERS: dict[str, tuple[Format, Callable[[ModelRequest], dict[str, object]]]] = {
    "chat": ("chat", lambda request: chat_request.to_request(request, OPENAI)),
    "mistral": ("chat", lambda request: chat_request.to_request(request, MISTRAL)),
    "responses": ("responses", lambda request: openai_request.to_request(request, RESPONSES)),
    "anthropic": (
        "anthropic",
        lambda request: anthropic_request.to_request(request, "claude-sonnet-4-5", "anthropic:c@u"),
    ),
    "gemini": (
        "gemini",
        lambda request: {"model": "gemini-2.5-flash"} | google_request.to_request(request, "gemini-2.5-flash", "g:g@u"),
    ),
    "gemini 3": (
        "gemini",
        lambda request: {"model": "gemini-3-pro"} | google_request.to_request(request, "gemini-3-pro", "g:g@u"),
    ),
}
FOREIGN = Native("another:model@elsewhere", '[{"type": "thinking", "thinking": "", "signature": "of another"}]')


class Silent:
    """A provider that is never asked."""

    origin = "none:none@none"

    async def ask(self, request: ModelRequest, on_text: Callable[[str], None], patience: Patience) -> Turn:
        raise AssertionError("nobody asks")


def setup_of(*context: Entry) -> Setup:
    message = Submission(message_id="m", conversation_id="c", content=(TextPart(text="go on"),))
    return Setup(
        provider=Silent(),
        system="You help.",
        tools=TOOLS,
        tool_names=("look", "put", "safe"),
        submission=message,
        context=context,
        tool_result_bytes=1_024,
        most_request_bytes=1_000_000,
    )


SETUP = setup_of()


def due(state: State) -> ModelRequest | None:
    """Return the request that a state asks for, None where it asks for none."""
    if not isinstance(state.stage, Asking):
        return None
    (wanted,) = todo(state)
    assert isinstance(wanted, AskModel)
    return model_request(state, SETUP, wanted, "c")


def next_message(state: State) -> ModelRequest | None:
    """Return the first request of a message that follows an ended one, with all that this one left."""
    if not isinstance(state.stage, Ended) or state.stage.status == "refused":
        return None
    left = state.sequence if state.stage.status != "answered" else ()
    said = (AssistantText(state.stage.text),) if state.stage.status in SOFT_STOPS | {"answered"} else ()
    return model_request(State(), setup_of(UserText("do it"), *left, *said), AskModel(1, 1, True, 8_192), "c")


def refusals(requests: Iterable[ModelRequest | None]) -> dict[str, object]:
    """Return what the services refuse, the first of each kind; requests that are alike are checked once."""
    found: dict[str, object] = {}
    for request in {_kind(request): request for request in requests if request is not None}.values():
        for name, (wire, to_request) in WRITERS.items():
            sent = encode(to_request(request))
            body = orjson.loads(sent)
            if refusal := CHECKS[wire](body, HEADERS[wire] | {"content-length": str(len(sent))}):
                found.setdefault(f"{name}: {refusal.rule}", (refusal.message, body))
    return found


def _kind(request: ModelRequest) -> object:
    return request.history, request.tool_choice, request.repairs, request.nudge, request.system


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
def test_the_history_of_every_reachable_state_is_accepted_by_all_services(world: World) -> None:
    states = explore(world).states
    assert refusals(map(due, states)) == {}
    assert refusals(map(next_message, states)) == {}


def test_a_history_written_by_another_model_is_accepted_by_all_services() -> None:
    def foreign(exchange: Exchange) -> Exchange:
        return replace(exchange, turn=replace(exchange.turn, native=FOREIGN))

    states = [replace(s, sequence=tuple(map(foreign, s.sequence))) for s in explore(WORLDS[4]).states]
    assert refusals(map(due, states)) == {}
    assert refusals(map(next_message, states)) == {}


def test_after_ten_thousand_different_random_interruptions_what_is_sent_is_accepted_by_all_services() -> None:
    ends = (CancelAsked(1.0), Condemned(Failure("worker_lost", "lost"), 1.0), TimePassed(TIMEOUT), TimePassed(SOFT))
    dice = random.Random(20)
    sent: dict[object, ModelRequest] = {}
    while len(sent) < 10_000:
        for state in wandered(dice):
            interrupted = step(state, dice.choice(ends)).state
            assert not isinstance(interrupted.stage, Running)
            for request in (due(interrupted), next_message(interrupted)):
                if request is not None:
                    sent[_kind(request)] = request
    assert refusals(sent.values()) == {}


def test_the_checks_see_a_pair_that_is_torn() -> None:
    states = explore(WORLDS[4]).states
    state = next(s for s in states if isinstance(s.stage, Asking) and s.sequence and s.sequence[-1].turn.calls)
    request = due(state)
    assert request is not None
    for name, key in (("chat", "messages"), ("anthropic", "messages"), ("gemini", "contents"), ("responses", "input")):
        wire, to_request = WRITERS[name]
        body = to_request(request)
        whole = body[key]
        assert isinstance(whole, list)
        torn = [item for item in whole if not _is_result(item)]
        assert len(torn) == len(whole) - 1
        assert CHECKS[wire](body | {key: torn}, HEADERS[wire]) is not None


def _is_result(item: object) -> bool:
    text = str(item)
    return any(word in text for word in ("tool_call_id", "tool_result", "functionResponse", "function_call_output"))
