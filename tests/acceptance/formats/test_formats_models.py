"""Histories of one model read by another, ids as servers give them, and usage as they count it."""

import asyncio
from collections.abc import Callable
from itertools import product

import pytest
from formats_stage import KEY, MODELS, PATIENCE, Stage, call

from roundelay_worker.loop.history import AssistantText, Exchange, History, Result, UserText
from roundelay_worker.providers.anthropic.provider import AnthropicProvider
from roundelay_worker.providers.base import ModelRequest, Patience, Provider, ToolSpec
from roundelay_worker.providers.chat.provider import ChatProvider
from roundelay_worker.providers.google.provider import GoogleProvider
from roundelay_worker.providers.responses.provider import OpenAIProvider
from roundelay_worker.providers.transport import HttpTransport
from roundelay_worker.testing.fake_llm import FakeLLM, script

pytestmark = [pytest.mark.services]
FORMATS = tuple(MODELS)
OTHERS = {
    "openai": "openai:another-thinker",
    "chat": "chat:plain-model",
    "anthropic": "anthropic:claude-opus-5",
    "google": "google:gemini-2.5-flash",
    "mistral": "chat:mistral-large",
    "deepseek": "chat:deepseek-reasoner",
}
OK = {"text": "It is done."}
THINK = {"thinking": "deep thought", "text": "I look.", "calls": [call("add", a=1, b=2), call("weather", city="Faro")]}


def test_a_conversation_goes_on_with_any_other_model(stage: Stage):
    pairs = list(product(FORMATS, OTHERS))

    def ask(model: str, pair, *steps, turn: str, **options):
        name = f"{'-'.join(pair)}-{turn}"
        return stage.ask(model, *steps, name=name, conversation_id="-".join(pair), **options)

    capped = {pair: ask(pair[0], pair, THINK, turn="1", closing={"text": "Go on?"}, max_rounds=1) for pair in pairs}
    on = {pair: ask(OTHERS[pair[1]], pair, THINK, OK, turn="2") for pair in pairs}
    back = {pair: ask(pair[0], pair, THINK, OK, turn="3") for pair in pairs}

    for pair in pairs:
        assert (pair, capped[pair].wait(PATIENCE).status) == (pair, "round_limit")
        assert (pair, on[pair].wait(PATIENCE).text) == (pair, "It is done.")
        assert (pair, back[pair].wait(PATIENCE).text) == (pair, "It is done.")
        first = stage.requests(f"{'-'.join(pair)}-2")[0].raw.decode()
        assert "Faro" in first, "what was found before the limit is in the context"
        assert "gAAAAABf" not in first, "and its reasoning is not"
    mended = {"deepseek": ["reasoning_content"], "mistral": ["call_id"]}
    for pair in pairs:
        assert (pair, stage.refused(f"{'-'.join(pair)}-1", f"{'-'.join(pair)}-3")) == (pair, [])
        # Found out by whichever came first, and known to those after it.
        assert set(stage.refused(f"{'-'.join(pair)}-2")) <= set(mended.get(pair[1], []))


PROVIDERS: dict[str, Callable[[str, str, HttpTransport], Provider]] = {
    "openai": lambda model, url, transport: OpenAIProvider(model, url, KEY, transport),
    "chat": lambda model, url, transport: ChatProvider(model, f"{url}/v1", KEY, transport),
    "anthropic": lambda model, url, transport: AnthropicProvider(model, url, KEY, transport),
    "google": lambda model, url, transport: GoogleProvider(model, url, KEY, transport),
}
SPECS = (
    ToolSpec("add", "Add.", {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}),
    ToolSpec("weather", "Look.", {"type": "object", "properties": {"city": {"type": "string"}}}),
)
REPAIRS = {"deepseek": {"add:reasoning_content"}, "mistral": {"ids:nine"}}
"""What these servers make one find out; a worker finds it by one refusal."""
ODD_IDS = ("call_0", "call_0", "functions.add:0", "x" * 120)


def test_a_run_begun_with_one_model_is_finished_by_any_other(fake: FakeLLM):
    """Another model takes over in the middle: foreign blocks are dropped, ids are made fit."""
    odd = {
        "thinking": "deep thought",
        "text": "I look.",
        "calls": [{"name": "add", "arguments": {"a": n, "b": 1}, "id": wire_id} for n, wire_id in enumerate(ODD_IDS)],
    }
    steps = (THINK, odd, {**odd, "calls": odd["calls"][:2]}, OK)

    async def run() -> dict[tuple[str, str], str]:
        async with HttpTransport() as transport:
            return {
                (first, second): await crossed(transport, first, second) for first, second in product(FORMATS, OTHERS)
            }

    async def crossed(transport: HttpTransport, first: str, second: str) -> str:
        history: History = (
            UserText("Hello."),
            AssistantText("Hello yourself."),
            UserText(f"Please. {script(*steps, name=f'{first}-by-{second}')}"),
        )
        for model in (MODELS[first], MODELS[first], OTHERS[second], OTHERS[second]):
            wire, _, name = model.partition(":")
            provider = PROVIDERS[wire](name, fake.url, transport)
            repairs = frozenset(REPAIRS.get(second, ()) if model == OTHERS[second] else ())
            request = ModelRequest("Be careful.", history, SPECS, "auto", repairs=repairs)
            turn = await provider.ask(request, lambda _: None, Patience())
            results = tuple(Result(f"result {n}") for n in range(len(turn.calls)))
            history = (*history, Exchange(turn, results))
        return turn.text

    texts = asyncio.run(run())

    assert set(texts.values()) == {"It is done."}
    ours = [refused.refusal.message for refused in fake.refusals if "-by-" in refused.request.name]
    assert ours == []


@pytest.mark.parametrize("ids", [("", ""), ("call_0", "call_0"), ("x" * 200, "y" * 200), ("functions.add:0", "a b")])
def test_ids_of_any_kind_run_each_call_once_and_are_accepted_back(stage: Stage, ids: tuple[str, str]):
    step = {"calls": [{"name": "add", "arguments": {"a": n, "b": 1}, "id": wire_id} for n, wire_id in enumerate(ids)]}
    name = f"ids-{ids[0][:10]}"

    answers = stage.answers(step, {**step, "calls": step["calls"][::-1]}, step, OK, name=name)

    for wire, answer in answers.items():
        assert (wire, answer.text, answer.rounds, answer.usage.tool_calls) == (wire, "It is done.", 3, 6)
        assert stage.refused(f"{wire}-{name}") == []


@pytest.mark.parametrize("model", ["google:gemini-2.5-flash", "chat:mistral-large", "chat:fake", "openai:gpt-5"])
def test_models_of_older_or_stricter_rules_run_the_same_loop(stage: Stage, model: str):
    answer = stage.answer(model, THINK, THINK, OK, name=model)

    assert (answer.text, answer.rounds) == ("It is done.", 2)
    assert set(stage.refused(model)) <= ({"call_id"} if "mistral" in model else set())


@pytest.mark.parametrize("flag", ["", "-no-stream"])
def test_tokens_are_counted_with_what_was_cached_and_what_was_thought(stage: Stage, flag: str):
    usage = {"input": 1000, "output": 50, "cached": 400, "reasoning": 20}
    name = f"usage{flag}"

    answers = stage.answers({**THINK, "usage": usage}, {**OK, "usage": usage}, name=name, flag=flag)

    for wire, answer in answers.items():
        spent = answer.usage
        assert (wire, spent.input_tokens, spent.output_tokens, spent.cached_tokens) == (wire, 2000, 100, 800)
        assert (spent.reasoning_tokens, spent.tool_calls) == (40, 2)
        assert spent.calls_without_usage == spent.model_calls - 2


def test_a_server_that_tells_no_tokens_is_counted_as_such(stage: Stage):
    for wire, answer in stage.answers({**THINK, "usage": None}, {**OK, "usage": None}, name="untold").items():
        assert (wire, answer.usage.calls_without_usage, answer.usage.model_calls) == (wire, 2, 2)


def test_a_budget_of_tokens_is_reserved_before_each_request_and_kept(stage: Stage):
    step = {"calls": [call("fill", size=4_000)]}
    most = 20_000

    answers = stage.answers(
        step, name="budget", closing=OK, max_total_tokens=most, max_rounds=50, model_options={"max_output_tokens": 1000}
    )

    for wire, answer in answers.items():
        spent = answer.usage.input_tokens + answer.usage.output_tokens
        assert (wire, answer.status) == (wire, "token_limit")
        assert answer.text == "It is done." or "the token limit for this answer was reached" in answer.text
        assert most // 2 < spent <= most * 1.02
        assert answer.rounds >= 2


def test_the_texts_of_an_answered_conversation_are_context_for_any_model(stage: Stage):
    first = {
        wire: stage.answer(wire, THINK, OK, name=f"{wire}-talk", conversation_id=f"{wire}-talk") for wire in FORMATS
    }
    second = {
        wire: stage.answer(OTHERS[wire], OK, name=f"{wire}-talk-on", conversation_id=f"{wire}-talk") for wire in FORMATS
    }

    for wire in FORMATS:
        assert first[wire].text == second[wire].text == "It is done."
        sent = stage.requests(f"{wire}-talk-on")[0].raw.decode()
        assert "It is done." in sent
        assert "tool_result" not in sent.replace("tool_results", "")
        assert stage.refused(f"{wire}-talk-on") == []
