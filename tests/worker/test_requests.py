"""What the model is sent: the same state gives the same request, within its limits, and cheaply."""

import json
import time
from collections.abc import Callable
from dataclasses import replace

import orjson
import pytest

from roundelay.messages import ModelOptions, Submission, TextPart
from roundelay_worker.engine.model_request import estimated_tokens, model_request
from roundelay_worker.engine.session import Setup
from roundelay_worker.loop.effects import AskModel
from roundelay_worker.loop.history import AssistantText, Call, Entry, Exchange, Native, Result, Turn, UserText
from roundelay_worker.loop.state import State
from roundelay_worker.loop.texts import CLOSING_INSTRUCTION, NUDGES, REPEAT_NOTE, closing_instruction
from roundelay_worker.providers.anthropic.request import to_request
from roundelay_worker.providers.base import ModelFailure, ModelRequest, Patience, ToolSpec
from roundelay_worker.tools.run.sharing import share_bytes

LOOK = ToolSpec("look", "Looks.", {"type": "object", "properties": {"at": {"type": "string"}}})


class Silent:
    """A provider that is never asked."""

    origin = "none:none@none"

    async def ask(self, request: ModelRequest, on_text: Callable[[str], None], patience: Patience) -> Turn:
        raise AssertionError("nobody asks")


def setup_of(*context: Entry, text: str = "the question", **changes: object) -> Setup:
    message = Submission(message_id="m", conversation_id="c", content=(TextPart(text=text),))
    base = Setup(
        provider=Silent(),
        system="You help.",
        tools=(LOOK,),
        tool_names=("look",),
        submission=message,
        context=context,
        tool_result_bytes=65_536,
        most_request_bytes=19_000_000,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def round_of(*texts: str, note: str = "", native: Native | None = None) -> Exchange:
    calls = tuple(Call("look", f'{{"at": "{n}"}}') for n in range(len(texts)))
    return Exchange(Turn(calls=calls, native=native), tuple(map(Result, texts)), note)


def request_of(setup: Setup, *sequence: Exchange, **changes: object) -> ModelRequest:
    """Return the request that follows these rounds; ``repairs`` is the state's, all else the wanted turn's."""
    repairs = changes.pop("repairs", ())
    state = State(sequence=sequence, repairs=repairs)  # type: ignore[arg-type]
    wanted = replace(AskModel(len(sequence) + 1, 1, True, 8_192), **changes)  # type: ignore[arg-type]
    return model_request(state, setup, wanted, "u:c")


def results_of(request: ModelRequest) -> list[list[str]]:
    return [[result.text for result in entry.results] for entry in request.history if isinstance(entry, Exchange)]


def test_the_history_is_what_was_said_before_the_message_and_its_rounds() -> None:
    before = (UserText("hello"), AssistantText("hi"))
    first = round_of("found")
    request = request_of(setup_of(*before), first)
    assert request.history == (*before, UserText("the question"), first)


def test_an_ordinary_request_has_the_systems_prompt_the_tools_and_choice_auto() -> None:
    request = request_of(setup_of())
    assert (request.system, request.tools, request.tool_choice) == ("You help.", (LOOK,), "auto")
    assert (request.max_output_tokens, request.nudge) == (8_192, "")


def test_the_closing_instruction_is_added_to_the_system_prompt_of_that_request_only() -> None:
    setup, first = setup_of(), round_of("found")
    ordinary = request_of(setup, first)
    closing = request_of(setup, first, closing="round_limit")
    assert closing.system == "You help.\n\n" + closing_instruction("round_limit")
    assert closing.history == ordinary.history
    assert CLOSING_INSTRUCTION not in ordinary.system
    assert CLOSING_INSTRUCTION not in repr(closing.history) + closing.nudge


def test_tools_stay_declared_in_a_closing_request_and_the_choice_is_none() -> None:
    closing = request_of(setup_of(), closing="timed_out")
    assert (closing.tools, closing.tool_choice) == ((LOOK,), "none")


@pytest.mark.parametrize("closing", [None, "round_limit"])
def test_no_choice_is_sent_where_there_are_no_tools(closing: str | None) -> None:
    request = request_of(setup_of(tools=()), closing=closing)
    assert (request.tools, request.tool_choice) == ((), None)


def test_a_closing_request_keeps_the_system_prompt_byte_for_byte_in_front() -> None:
    setup = setup_of(system="\n  Indented.  ")
    assert request_of(setup, closing="round_limit").system.startswith("\n  Indented.  \n\n")
    assert request_of(setup_of(system=" "), closing="round_limit").system == closing_instruction("round_limit")


def test_the_options_of_the_submission_and_the_repairs_of_the_state_are_sent_along() -> None:
    setup = setup_of()
    options = ModelOptions(temperature=0.5, reasoning_effort="low")
    setup = replace(setup, submission=setup.submission.model_copy(update={"model_options": options}))
    request = request_of(setup, repairs=("drop_reasoning", "no_stream"), max_output_tokens=77, nudge="reply_cut")
    assert (request.temperature, request.reasoning_effort) == (0.5, "low")
    assert request.repairs == {"drop_reasoning", "no_stream"}
    assert (request.max_output_tokens, request.nudge) == (77, NUDGES["reply_cut"])


def test_an_unknown_nudge_says_nothing() -> None:
    assert request_of(setup_of(), nudge="unknown_finish").nudge == ""


def test_the_cache_key_is_stable_short_and_says_nothing_of_whom() -> None:
    def key(of: str) -> str:
        return model_request(State(), setup_of(), AskModel(1, 1, True, 1), of).cache_key

    assert key("jane.doe:c1") == key("jane.doe:c1") != key("jane.doe:c2")
    assert len(key("x" * 300)) == 32
    assert "jane" not in key("jane.doe:c1")


# Sharing


def test_all_results_of_one_round_share_their_bytes_the_record_keeps_the_full_text() -> None:
    first = round_of("a" * 5_000, "b" * 100, "c" * 5_000)
    request = request_of(setup_of(tool_result_bytes=2_048), first)
    ((long, short, other),) = results_of(request)
    assert short == "b" * 100
    assert len((long + short + other).encode()) <= 2_048
    assert "bytes left out" in long
    assert len(first.results[0].text) == 5_000


def test_each_round_has_its_own_share() -> None:
    request = request_of(setup_of(tool_result_bytes=2_048), round_of("a" * 2_048), round_of("b" * 2_048))
    assert results_of(request) == [["a" * 2_048], ["b" * 2_048]]


def test_results_of_the_message_before_are_shared_out_too() -> None:
    request = request_of(setup_of(UserText("go"), round_of("a" * 9_999), tool_result_bytes=1_024))
    assert len(results_of(request)[0][0].encode()) <= 1_024


def test_a_note_is_read_with_the_last_result_and_is_no_part_of_the_record() -> None:
    noted = round_of("one", "two", note=REPEAT_NOTE)
    request = request_of(setup_of(), noted)
    assert results_of(request) == [["one", f"two\n\n{REPEAT_NOTE}"]]
    assert noted.results[1].text == "two"


def test_a_note_to_an_error_goes_into_its_json_and_beside_what_is_none() -> None:
    error = Result('{"error": {"code": "é"}}', is_error=True)
    for result, expected in (
        (error, {"error": {"code": "é"}, "note": "hm"}),
        (Result('["a"]', is_error=True), '["a"]\n\nhm'),
        (Result("no JSON", is_error=True), "no JSON\n\nhm"),
    ):
        (entry,) = request_of(setup_of(), Exchange(Turn(calls=(Call("look"),)), (result,), "hm")).history[1:]
        assert isinstance(entry, Exchange)
        text = entry.results[0].text
        assert entry.results[0].is_error
        assert (json.loads(text) if isinstance(expected, dict) else text) == expected
        assert entry.note == ""


# After an overflow


def test_on_a_context_overflow_old_results_shrink_whole_results_at_a_time() -> None:
    kept = "k" * 200
    error = Exchange(Turn(calls=(Call("look"),)), (Result("e" * 500, is_error=True),))
    rounds = (round_of("a" * 201, kept), error, round_of("n" * 201))
    request = request_of(setup_of(UserText("go"), round_of("o" * 999)), *rounds, repairs=("shrink",))
    assert results_of(request) == [
        ["[This result was removed to make room: 999 characters.]"],
        ["[This result was removed to make room: 201 characters.]", kept],
        ["e" * 500],
        ["n" * 201],
    ]


def test_after_an_overflow_the_newest_results_share_an_eighth() -> None:
    request = request_of(setup_of(tool_result_bytes=8_000), round_of("a" * 900, "b" * 900), repairs=("shrink",))
    ((first, second),) = results_of(request)
    assert 900 < len((first + second).encode()) <= 1_000
    request = request_of(setup_of(tool_result_bytes=8_000), round_of("a" * 1_000), repairs=("shrink",))
    assert results_of(request) == [["a" * 1_000]]


def test_shrinking_keeps_pairs_and_what_a_call_came_to() -> None:
    doubtful = replace(round_of("x"), results=(Result("u" * 999, outcome="unknown"),))
    request = request_of(setup_of(), doubtful, round_of("new"), repairs=("shrink",))
    entry = request.history[1]
    assert isinstance(entry, Exchange)
    assert (entry.turn, entry.results[0].outcome) == (doubtful.turn, "unknown")


# The byte limit


def body_bytes(request: ModelRequest) -> int:
    return len(orjson.dumps(to_request(request, "claude", "x")["messages"]))


def test_over_the_byte_limit_the_oldest_whole_exchanges_go() -> None:
    context: tuple[Entry, ...] = (
        UserText("one"), round_of("1" * 20_000), AssistantText("1"),
        UserText("two"), round_of("2" * 20_000), AssistantText("2"),
        UserText("three"), AssistantText("3"),
    )  # fmt: skip
    first = round_of("found")
    whole = setup_of(*context, most_request_bytes=60_000)
    assert request_of(whole, first).history == (*context, UserText("the question"), first)
    request = request_of(replace(whole, most_request_bytes=30_000), first)
    assert request.history == (*context[3:], UserText("the question"), first)
    request = request_of(replace(whole, most_request_bytes=10_000), first)
    assert request.history == (*context[6:], UserText("the question"), first)
    request = request_of(replace(whole, most_request_bytes=750), first)
    assert request.history == (UserText("the question"), first)


def test_when_the_message_itself_outgrows_the_limit_its_oldest_rounds_go_by_pairs() -> None:
    rounds = tuple(round_of(str(n) * 9_000) for n in range(4))
    request = request_of(setup_of(UserText("old"), most_request_bytes=20_000), *rounds)
    assert request.history == (UserText("the question"), *rounds[2:])


def test_the_newest_alone_too_big_is_an_error_before_anything_is_sent() -> None:
    for setup, rounds in (
        (setup_of(text="x" * 5_000, most_request_bytes=4_000), ()),
        (setup_of(most_request_bytes=4_000), (round_of("small"), round_of("x" * 5_000))),
        (setup_of(text="x" * 3_800, most_request_bytes=4_000), (round_of("x"),)),
    ):
        with pytest.raises(ModelFailure) as caught:
            request_of(setup, *rounds)
        assert caught.value.code == "request_too_large"
        assert "x" * 9 not in caught.value.message
        assert not caught.value.retryable


@pytest.mark.parametrize("text", ["plain words ", "日本語", 'quotes " and \\ ', "\x01\x02\n", "\ud83d"])
def test_sizes_are_those_of_the_json_whatever_the_text_is_made_of(text: str) -> None:
    most = 15_000
    context = [entry for n in range(20) for entry in (UserText(str(n)), round_of(text * 300))]
    request = request_of(setup_of(*context, most_request_bytes=most))
    assert len(request.history) < 41
    assert 0.5 * most < body_bytes(request) <= most


def test_the_blocks_of_a_provider_count_as_what_is_sent() -> None:
    native = Native("x", json.dumps([{"type": "thinking", "thinking": "y" * 9_000, "signature": "s"}]))
    rounds = (round_of("1", native=native), round_of("2", native=native), round_of("3"))
    request = request_of(setup_of(most_request_bytes=10_500), *rounds)
    assert request.history == (UserText("the question"), *rounds[1:])


def test_a_paused_turn_goes_back_as_it_is() -> None:
    paused = Exchange(Turn("hm", finish="paused"))
    assert request_of(setup_of(), paused).history[1] is paused


# Estimates


def test_an_estimate_counts_tools_reasoning_and_texts_a_quarter_of_their_bytes() -> None:
    empty = estimated_tokens(request_of(setup_of(tools=(), system="")))
    tools = estimated_tokens(request_of(setup_of(tools=(replace(LOOK, description="d" * 4_000),), system="")))
    native = Native("x", "[" + "y" * 4_000 + "]")
    thought = estimated_tokens(request_of(setup_of(tools=(), system=""), round_of("", native=native)))
    spoken = estimated_tokens(request_of(setup_of(tools=(), system="s" * 4_000, text="日" * 4_000)))
    assert 0 < empty < 30
    assert 1_000 <= tools - empty < 1_050
    assert 1_000 <= thought - empty < 1_050
    assert 3_990 <= spoken - empty < 4_050


# Cost


def test_what_was_shown_once_is_the_same_object_in_every_later_request() -> None:
    setup = setup_of(UserText("before"), round_of("c" * 5_000), tool_result_bytes=1_024)
    rounds = [round_of("x" * 9_000, note="n"), round_of("short"), round_of("y" * 9_000)]
    first = request_of(setup, *rounds[:2]).history
    second = request_of(setup, *rounds).history
    assert all(mine is its for mine, its in zip(first, second, strict=False) if isinstance(mine, Exchange))
    assert first[4] is rounds[1]


def test_after_an_overflow_what_is_old_is_the_same_object_too() -> None:
    setup, rounds = setup_of(), [round_of("x" * 9_000) for _ in range(3)]
    request_of(setup, *rounds[:1])
    first = request_of(setup, *rounds[:2], repairs=("shrink",)).history
    second = request_of(setup, *rounds, repairs=("shrink",)).history
    assert first[1] is second[1]
    assert results_of(request_of(setup, *rounds[:1])) == [["x" * 9_000]]


def test_equal_exchanges_of_two_places_are_shown_each_for_itself() -> None:
    setup = setup_of(tool_result_bytes=1_024)
    a, b = round_of("x" * 5_000), round_of("x" * 5_000)
    history = request_of(setup, a, b).history
    assert history[1] == history[2]
    assert request_of(setup, a, b).history[2] is history[2]


def test_round_25_with_50_kb_results_costs_little_more_than_round_1() -> None:
    setup = setup_of(tool_result_bytes=40_000)
    rounds = [round_of("é" * 12_500, "x" * 25_000) for _ in range(25)]
    for n in range(1, 26):
        request_of(setup, *rounds[:n])

    def best(n: int) -> float:
        times = []
        for _ in range(20):
            began = time.perf_counter()
            request_of(setup, *rounds[:n])
            times.append(time.perf_counter() - began)
        return min(times)

    fresh = round_of("é" * 12_500, "x" * 25_000)
    began = time.perf_counter()
    for _ in range(20):
        share_bytes(fresh.results, 40_000)
    one_share = (time.perf_counter() - began) / 20
    assert best(25) < 25 * one_share
    assert best(25) < 0.005


def test_the_same_state_gives_the_same_request_in_another_process() -> None:
    rounds = (round_of("x" * 9_000, note="n"), round_of("y"))
    first = request_of(setup_of(tool_result_bytes=1_024), *rounds)
    again = request_of(setup_of(tool_result_bytes=1_024), *rounds)
    assert first == again
    assert to_request(first, "claude", "x") == to_request(again, "claude", "x")
