"""The texts that need no model: whole, bounded, in six languages, without anything for machines."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from playing import Play, asks, says
from worlds import WORLDS, explore

from roundelay_worker.loop.events import CancelAsked
from roundelay_worker.loop.history import Call, Exchange, Result, Turn
from roundelay_worker.loop.language import guess_language
from roundelay_worker.loop.moves import settled_error
from roundelay_worker.loop.state import Ended, Failure, Limits, State, ToolWords
from roundelay_worker.loop.step import step
from roundelay_worker.loop.summary import summary
from roundelay_worker.loop.surrogates import readable
from roundelay_worker.loop.texts import FAREWELLS, PHRASES, farewell, phrases

DONE = Exchange(Turn(calls=(Call("look", '{"at": "home"}'),)), (Result("three  keys\n and a coat"),))
ERROR = Exchange(Turn(calls=(Call("find"),)), (settled_error("tool_failed", "No such row.", "done"),))
UNDONE = Exchange(Turn(calls=(Call("put", '{"n": 1}'),)), (Result("Not executed: …", outcome="not_executed"),))
UNCERTAIN = Exchange(Turn(calls=(Call("pay"),)), (settled_error("outcome_unknown", "lost", "unknown"),))


WROTE = Exchange(Turn(calls=(Call("send_email", '{"to": "ana@example.com", "body": "x"}'),)), (Result("sent"),))
TOOLS = (
    ToolWords("look", "look", "read"),
    ToolWords("find", "find", "read"),
    ToolWords("send_email", "send an email", "write", ("body",)),
)


def test_a_summary_says_what_was_done_what_was_found_and_what_is_undone() -> None:
    state = State(sequence=(DONE, ERROR, WROTE, UNDONE, UNCERTAIN), tools=TOOLS)
    assert summary(state, "round_limit", "go_on") == (
        "I stopped before finishing: the step limit for this answer was reached.\n\n"
        "What was done:\n"
        "- send an email: to ana@example.com\n\n"
        "What was found:\n"
        "- look: three keys and a coat\n\n"
        "What may or may not have been done (please check):\n"
        "- pay\n\n"
        "What did not work:\n"
        "- find\n\n"
        "What was not done:\n"
        "- put: n 1\n\n"
        "Shall I go on?"
    )


def test_a_summary_of_nothing_says_so() -> None:
    assert summary(State(), "failed", "try_again") == (
        "Something went wrong and I could not finish this answer.\n\nNothing was done yet.\n\nPlease try again."
    )
    assert "Nothing was done yet." in summary(State(sequence=(UNDONE,)), "cancelled", "go_on")
    assert "Nothing was done yet." not in summary(State(sequence=(UNCERTAIN,)), "cancelled", "go_on")
    assert "Nothing was done yet." not in summary(State(sequence=(DONE,)), "cancelled", "go_on")


@pytest.mark.parametrize("language", PHRASES)
def test_fixed_texts_exist_in_each_language(language: str) -> None:
    assert PHRASES[language].keys() == PHRASES["en"].keys()
    assert all(text.strip() for text in PHRASES[language].values())
    state = State(language=language, sequence=(DONE, UNDONE, UNCERTAIN))
    for reason in ("round_limit", "token_limit", "timed_out", "no_progress", "failed", "cancelled"):
        text = summary(state, reason, "go_on")
        blocks = [PHRASES[language][key] for key in (reason, "done", "undone", "uncertain", "go_on")]
        assert all(block in text for block in blocks)


@pytest.mark.parametrize("language", PHRASES)
def test_a_soft_stop_without_a_closing_turn_is_told_in_the_language_of_the_message(language: str) -> None:
    play = Play([asks("look"), asks("look")], Limits(max_rounds=0), language=language)
    play.run()
    assert play.ended.text.startswith(PHRASES[language]["round_limit"])
    assert play.ended.text.endswith(PHRASES[language]["go_on"])


@pytest.mark.parametrize("language", PHRASES)
@pytest.mark.parametrize("code", FAREWELLS)
def test_a_failed_answer_ends_with_what_helps_against_its_failure(code: str, language: str) -> None:
    play = Play([Failure(code, "for the operator")], language=language)
    play.run()
    assert play.ended.text.endswith(PHRASES[language][farewell(code)])
    assert play.ended.text.count(PHRASES[language]["try_again"]) == (farewell(code) == "try_again")


def test_who_cannot_help_himself_is_not_told_to_try_again() -> None:
    told = {code: PHRASES["en"][farewell(code)] for code in FAREWELLS}
    assert {code for code, text in told.items() if "whoever runs this service has changed" in text} == {
        "credentials",
        "model_not_found",
        "tools_unsupported",
        "bad_request",
        "no_model",
        "unknown_provider",
        "unknown_tool",
    }
    assert "shorter message" in told["request_too_large"]
    assert "in a while" in told["quota"]
    assert farewell("a code of a later version") == "try_again"


@pytest.mark.parametrize("language", PHRASES)
def test_a_refusal_and_a_cancellation_are_told_in_the_language_of_the_message(language: str) -> None:
    refused = Play([Turn(finish="refused")], language=language)
    refused.run()
    assert refused.ended.text == PHRASES[language]["refused"]
    cancelled = Play([], language=language)
    cancelled.feed(cancelled.next_event())
    cancelled.feed(CancelAsked(1.0))
    assert cancelled.ended.text == PHRASES[language]["cancelled"]


def test_a_cancellation_after_some_rounds_says_what_was_done() -> None:
    play = Play([asks("look"), says("too late")])
    play.run(until=lambda state: state.rounds == 1)
    play.feed(CancelAsked(1.0))
    assert play.ended.text.startswith("This answer was cancelled.\n\nWhat was found:\n- look: found by look")
    assert "go on" not in play.ended.text


def test_a_language_may_have_a_region_and_an_unknown_one_is_english() -> None:
    assert phrases("pt-BR") is PHRASES["pt"]
    assert phrases("ES") is PHRASES["es"]
    assert phrases("ja") is PHRASES["en"]


def _calls(*results: Result, name: str = "look") -> Exchange:
    return Exchange(Turn(calls=tuple(Call(name, f'{{"n": {n}}}') for n in range(len(results)))), results)


def test_a_summary_tells_three_facts_and_counts_the_rest() -> None:
    state = State(sequence=(_calls(*(Result(f"fact {n}") for n in range(14))),), tools=TOOLS)
    text = summary(state, "failed")
    assert text.count("\n- look: fact") == 3
    assert "- More lookups: 11" in text


def test_a_summary_folds_no_write_and_says_nothing_twice() -> None:
    writes = (*(_calls(Result("sent"), name="send_email") for _ in range(2)), _calls(*[Result("ok")] * 30, name="put"))
    text = summary(State(sequence=writes, tools=TOOLS), "failed")
    assert "- send an email: n 0 (\u00d72)" in text
    assert text.count("\n- put: n ") == 30
    assert "more" not in text


@given(
    st.lists(st.tuples(st.text(), st.text(), st.booleans(), st.sampled_from(["done", "not_executed", "unknown"]))),
    st.sampled_from(["en", "pt", "es", "xx"]),
)
@settings(max_examples=150, deadline=None)
def test_a_summary_is_never_empty_and_bounded_whatever_tools_said(
    said: list[tuple[str, str, bool, str]], language: str
) -> None:
    sequence = tuple(
        Exchange(Turn(calls=(Call(name),)), (Result(text, error, outcome),))  # type: ignore[arg-type]
        for name, text, error, outcome in said
    )
    text = summary(State(language=language, sequence=sequence), "timed_out", "go_on")
    assert text.startswith(phrases(language)["timed_out"])
    assert text.endswith(phrases(language)["go_on"])
    assert len(text) < 300 * len(said) + 1_000


@pytest.mark.parametrize("text", ["plain words", '{"error": 5}', "[]", '{"error": {"message": "x"}}', "5"])
def test_the_text_of_an_error_is_for_the_model(text: str) -> None:
    state = State(sequence=(_calls(Result(text, is_error=True)),), tools=TOOLS)
    assert summary(state, "failed").endswith("What did not work:\n- look\n\nNothing was done yet.")


def test_no_end_shows_a_stack_trace_or_the_json_of_an_error() -> None:
    for world in WORLDS:
        for state in explore(world).states:
            if isinstance(state.stage, Ended):
                assert "Traceback" not in state.stage.text
                assert '"recovery"' not in state.stage.text


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("How much did I progress this month?", "en"),
        ("Write a poem", "en"),
        ("Say no", "en"),
        ("Send a photo to Ana", "en"),
        ("12 * 7 = ?", "en"),
        ("", "en"),
        ("東京の天気は?", "en"),
        ("Schick Ana eine E-Mail", "de"),
        ("Wie viele E-Mails habe ich heute bekommen?", "de"),
        ('Übersetze "the quick brown fox is here" ins Deutsche', "de"),
        ("Quel temps fait-il à Paris ?", "fr"),
        ("Che tempo fa a Roma?", "it"),
        ("Mostra as minhas faturas", "pt"),
        ("Procura o email do Pedro e responde", "pt"),
        ("Reserva una mesa para dos", "es"),
        ("Necesito ayuda con la cuenta", "es"),
        ("Quanto progredi este mês?", "pt"),
        ("Quais são as minhas horas de hoje?", "pt"),
        ("Faça uma lista de compras", "pt"),
        ("¿Cuánto avancé este mes?", "es"),
        ("Muéstrame las horas del equipo", "es"),
        ("hola", "es"),
    ],
)
def test_the_language_is_guessed_from_the_message_else_english(text: str, language: str) -> None:
    assert guess_language(text) == language


def test_what_is_too_short_to_tell_is_taken_for_what_was_spoken_before() -> None:
    assert guess_language("ok", ("Hello, who are you?", "Quanto progredi este mês?", "42")) == "pt"
    assert guess_language("ok") == "en"
    assert guess_language("```\nel la los las\n``` what is this?", ("Hola, ¿qué tal?",)) == "en"


def test_only_the_beginning_of_a_long_message_is_looked_at() -> None:
    assert guess_language("the cat is " * 1_000 + "¿qué? " * 10_000) == "en"


def test_an_answer_has_no_half_of_a_surrogate_pair() -> None:
    play = Play([says("a \ud83d b \ud83d\ude00")])
    play.run()
    assert play.ended.text == "a � b 😀"
    assert readable("é") == "é"
    assert readable("plain") == "plain"


def test_a_summary_has_no_half_of_a_surrogate_pair() -> None:
    play = Play([asks("look"), Turn(finish="refused")], Limits(max_rounds=1), tool=lambda call: Result("x\udc80"))
    play.run(until=lambda state: state.rounds == 1)
    ended = step(play.state, CancelAsked(1.0)).state.stage
    assert isinstance(ended, Ended)
    assert "look: x�" in ended.text


def test_an_error_result_has_the_one_shape_that_models_are_shown() -> None:
    result = settled_error("code", "é", "unknown", "try")
    assert json.loads(result.text) == {"error": {"code": "code", "message": "é", "recovery": "try"}}
    assert "é" in result.text
    assert (result.is_error, result.outcome) == (True, "unknown")
    assert json.loads(settled_error("c", "m", "done").text)["error"]["recovery"] == ""
