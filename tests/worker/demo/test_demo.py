"""The demo provider: rules that ask for real tools in rounds, say what they found, and never vary."""

import asyncio
import json
from collections.abc import Callable
from itertools import pairwise

import pytest

from roundelay_worker.loop.history import AssistantText, Call, Entry, Exchange, Result, Turn, UserText
from roundelay_worker.providers.base import ModelRequest, Patience, Provider, ToolSpec
from roundelay_worker.providers.demo.provider import DemoProvider
from roundelay_worker.tools.registry import Registry
from roundelay_worker.tools.run.arguments import read_arguments
from roundelay_worker.tools.run.calling import call_here
from roundelay_worker.tools.run.results import Outcome

TOOLS = tuple(
    ToolSpec(name, "", {"type": "object"}) for name in ("calculator", "current_time", "convert_units", "lookup")
)
THREE_PARTS = "What is 12 * 7, how many miles are 42 km, and what time is it in Tokyo and Lisbon?"
ENDLESS = "count to 50 one by one with the calculator"

RESULTS = {
    "calculator": lambda call: str(
        sum(map(int, call["expression"].split(" + "))) if " + " in call["expression"] else 84
    ),
    "current_time": lambda call: json.dumps({"zone": call["zone"], "time": "2026-01-01T09:00:00+09:00"}),
    "convert_units": lambda call: "26.097590073968025 miles (rounded)",
    "lookup": lambda call: json.dumps({"name": call["country"], "capital": "Lisbon", "population_millions": 10.4}),
}


def run(call: Call) -> Result:
    return Result(RESULTS[call.name](json.loads(call.arguments)))


def ask(history: tuple[Entry, ...], *, tools: tuple[ToolSpec, ...] = TOOLS, closing: bool = False) -> Turn:
    pieces: list[str] = []
    choice = ("none" if closing else "auto") if tools else None
    request = ModelRequest("", history, tools, choice)
    turn = asyncio.run(DemoProvider().ask(request, pieces.append, Patience()))
    assert "".join(pieces) == turn.text
    return turn


def answer(
    question: str, *, rounds: int = 99, run: Callable[[Call], Result] = run, before: tuple[Entry, ...] = ()
) -> tuple[str, list[Exchange]]:
    """Play the loop: run what is asked for, up to ``rounds``, then ask for the closing turn."""
    done: list[Exchange] = []
    while (turn := ask((*before, UserText(question), *done))).calls:
        if len(done) == rounds:
            return ask((*before, UserText(question), *done), closing=True).text, done
        done.append(Exchange(turn, tuple(map(run, turn.calls))))
    return turn.text, done


def asked(done: list[Exchange]) -> list[list[str]]:
    return [[call.name for call in exchange.turn.calls] for exchange in done]


def test_it_is_a_provider():
    provider: Provider = DemoProvider("rules")

    assert provider.origin == "demo:rules@"


@pytest.mark.parametrize(
    ("question", "said"),
    [
        (THREE_PARTS, "12 * 7 = 84; 42 km = 26.0975… miles (rounded); in Tokyo it is 2026-01-01 09:00"),
        ("Quanto é 12 vezes 7, quantas milhas são 42,5 km e que horas são em Lisboa?", "em Lisboa são 2026"),
        ("¿Cuánto es 12 por 7, cuántas millas son 42 km y qué hora es en Madrid?", "en Madrid son 2026"),
    ],
)
def test_a_question_of_three_parts_takes_three_rounds_and_is_answered_in_its_language(question: str, said: str):
    text, done = answer(question)

    assert [names[0] for names in asked(done)] == ["calculator", "convert_units", "current_time"]
    assert said in text


def test_parts_of_one_kind_are_asked_for_together():
    _, done = answer("What time is it in Tokyo and in New York?")

    assert asked(done) == [["current_time", "current_time"]]
    assert [json.loads(call.arguments)["zone"] for call in done[0].turn.calls] == ["Asia/Tokyo", "America/New_York"]


def test_a_dependent_step_computes_with_what_was_found():
    text, done = answer("Look up the population of Portugal, divide it by 12 and then add 5")

    expressions = [json.loads(exchange.turn.calls[0].arguments).get("expression") for exchange in done]
    assert asked(done) == [["lookup"], ["calculator"], ["calculator"]]
    assert expressions == [None, "10.4 * 1000000 / 12", "84 + 5"]
    assert text.startswith("Population of Portugal: 10.4 million; divide it by 12 = 84")


@pytest.mark.parametrize(
    ("written", "computed"),
    [
        ("How much is 1,234.5 times 2?", "1234.5 * 2"),
        ("How much is 3.142 times 2?", "3.142 * 2"),
        ("Quanto é 1.234,5 vezes 2?", "1234.5 * 2"),
        ("Quanto é 1.500 vezes 2?", "1500 * 2"),
        ("What is 15% of 80?", "80 * 15 / 100"),
        ("What is the sum of 2 and 3?", "2 + 3"),
    ],
)
def test_numbers_are_read_as_their_language_writes_them(written: str, computed: str):
    call = ask((UserText(written),)).calls[0]

    assert json.loads(call.arguments) == {"expression": computed}


@pytest.mark.parametrize(
    ("question", "stopped", "go_on"),
    [
        (ENDLESS, "a limit of this answer was reached", "Shall I go on?"),
        ("conte até 50 um por um com a calculadora", "um limite desta resposta foi atingido", "Devo continuar?"),
        ("cuenta hasta 50 de uno en uno", "se alcanzó un límite de esta respuesta", "¿Quiere que continúe?"),
    ],
)
def test_a_closing_turn_says_what_was_found_what_is_undone_and_asks_whether_to_go_on(
    question: str, stopped: str, go_on: str
):
    text, done = answer(question, rounds=3)

    assert len(done) == 3
    assert stopped in text
    assert "2 + 1 = 3" in text
    assert "49 + 1" in text
    assert text.endswith(go_on)


@pytest.mark.parametrize("yes", ["Yes, please go on.", "Sim, continue", "sí, adelante"])
def test_going_on_continues_from_what_was_found_without_asking_for_it_again(yes: str):
    closing, done = answer(ENDLESS, rounds=3)
    pending = ask((UserText(ENDLESS), *done))
    unrun = Exchange(pending, (Result("Not executed: the step limit was reached.", outcome="not_executed"),))

    turn = ask((UserText(ENDLESS), *done, unrun, AssistantText(closing), UserText(yes)))

    assert json.loads(turn.calls[0].arguments) == {"expression": "3 + 1"}


def test_a_failed_call_is_told_and_the_rest_is_answered():
    error = json.dumps({"error": {"code": "x", "message": "No such zone.", "recovery": ""}})
    text, _ = answer("What is 2 + 3, and what time is it in Tokyo?", run=lambda call: Result(error, is_error=True))

    assert "Tokyo: that did not work (No such zone.)" in text


def test_a_tool_that_was_not_given_is_named_instead_of_asked_for():
    turn = ask((UserText("What is 2 + 3, and what time is it in Tokyo?"),), tools=())

    assert turn.calls == ()
    assert "I was not given the tool calculator" in turn.text


@pytest.mark.parametrize(
    "question",
    [
        THREE_PARTS,
        "What is the capital of Japan, what is the currency of Chile, 3 + 4, and what time is it in UTC?",
        "Look up the population of Portugal, divide it by 12 and then add 5",
        "Qual é a população do Brasil? Divida isso por 27. Que horas são em São Paulo?",
        "¿Cuál es la población de México? ¿Cuántas millas son 10 km? ¿Cuánto es 15% de 80?",
        "Quantas libras são 70 kg, quantos pés são 3 metros, quanto é 7 vezes 8 e que horas são em Lisboa?",
    ],
)
def test_what_it_asks_for_the_built_in_tools_can_do(question: str):
    registry = Registry.load((), ("all",))

    def really(call: Call) -> Result:
        found = registry.get(call.name)
        assert found is not None
        arguments = read_arguments(found, call)
        return arguments.result if isinstance(arguments, Outcome) else call_here(found, arguments, 10_000).result

    text, done = answer(question, run=really)

    assert len(done) == 3
    assert not [result for exchange in done for result in exchange.results if result.is_error], text


def test_it_says_plainly_what_it_is_where_no_rule_fits():
    turn = ask((UserText("Write me a poem"),))

    assert "no language model" in turn.text
    assert turn.calls == ()


def test_the_same_history_brings_the_same_turn():
    assert ask((UserText(THREE_PARTS),)) == ask((UserText(THREE_PARTS),))


def test_every_call_has_an_id_of_its_own():
    _, done = answer(THREE_PARTS)
    ids = sorted(call.wire_id for exchange in done for call in exchange.turn.calls)

    assert all(a != b for a, b in pairwise(ids))


def test_text_comes_in_small_pieces_and_slowly_if_asked():
    async def first_piece() -> bool:
        heard = asyncio.Event()
        request = ModelRequest("", (UserText("hello"),))
        asking = asyncio.create_task(DemoProvider("slow").ask(request, lambda _: heard.set(), Patience()))
        await heard.wait()
        running = not asking.done()
        asking.cancel()
        return running

    assert asyncio.run(asyncio.wait_for(first_piece(), 5))
