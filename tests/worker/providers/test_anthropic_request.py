"""What is asked of the Messages API; each rule of the service that broke someone's loop has its test here."""

import json
import re
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roundelay_worker.loop.history import (
    AssistantText,
    Call,
    Exchange,
    History,
    Native,
    Result,
    Turn,
    UserText,
)
from roundelay_worker.providers.anthropic.request import body_of, to_request
from roundelay_worker.providers.base import ModelRequest, ToolSpec

PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy
ORIGIN = "anthropic:claude@https://api.anthropic.com"
LOOK = ToolSpec("look", "Looks.", {"type": "object", "properties": {"at": {"type": "string"}}})
PING = ToolSpec("ping", "", {"type": "object", "properties": {}})
THOUGHT = {"type": "thinking", "thinking": "", "signature": "c2ln"}
REDACTED = {"type": "redacted_thinking", "data": "cmVk"}


def use(call_id: str, name: str = "look") -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": {}}


def said(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def own(*blocks: Any, results: tuple[Result, ...] | None = None, finish: Any = "complete") -> Exchange:
    """Return an exchange whose turn is of this model, as the reader makes it."""
    calls = tuple(Call(b["name"], "{}", b["id"]) for b in blocks if b["type"] == "tool_use")
    text = "".join(block.get("text", "") for block in blocks)
    turn = Turn(text, calls, finish, native=Native(ORIGIN, json.dumps(blocks)))
    return Exchange(turn, results if results is not None else tuple(Result("ok") for _ in calls))


def foreign(*calls: Call, text: str = "") -> Exchange:
    turn = Turn(text, calls, native=Native("chat:other@https://example.org", '{"tool_calls": []}'))
    return Exchange(turn, tuple(Result("ok") for _ in calls))


def asked(*history: Any, **options: Any) -> dict[str, Any]:
    options.setdefault("system", "Be brief.")
    return to_request(ModelRequest(history=tuple(history), **options), "claude", ORIGIN)


def messages(*history: Any, **options: Any) -> list[tuple[str, list[dict[str, Any]]]]:
    """Return the messages without the marks of the cache."""
    body = asked(*history, **options)
    return [
        (m["role"], [{k: v for k, v in b.items() if k != "cache_control"} for b in m["content"]])
        for m in body["messages"]
    ]


# Results


def test_all_results_of_a_turn_stand_in_one_message_in_the_order_of_the_calls_and_the_nudge_after_them():
    turn = own(
        said("Let me look."), use("a"), use("b"), results=(Result("one"), Result('{"error": {}}', is_error=True))
    )

    sent = messages(UserText("Hi"), turn, nudge="Look elsewhere.")

    assert sent[2:] == [
        (
            "user",
            [
                {"type": "tool_result", "tool_use_id": "a", "content": "one"},
                {"type": "tool_result", "tool_use_id": "b", "content": '{"error": {}}', "is_error": True},
                said("Look elsewhere."),
            ],
        )
    ]


def test_a_message_of_the_user_right_after_results_stands_behind_them():
    sent = messages(UserText("Hi"), own(use("a")), UserText("Go on"))

    assert [block["type"] for block in sent[2][1]] == ["tool_result", "text"]


def test_an_empty_result_is_sent_as_a_short_string():
    sent = messages(UserText("Hi"), own(use("a"), results=(Result(""),)))

    assert sent[2][1][0]["content"] == "(no output)"


# The model's own blocks


def test_own_blocks_go_back_byte_for_byte():
    raw = (
        '[ {"type":"thinking","thinking":"a\\u00e9\\/","signature":"x=="} ,{"n":1.10,"type":"new_kind"},'
        '{"type":"tool_use","id":"a","name":"look","input":{"at":1e2}}]'
    )
    turn = Turn("", (Call("look", '{"at":1e2}', "a"),), native=Native(ORIGIN, raw))
    request = ModelRequest("", (UserText("Hi"), Exchange(turn, (Result("ok"),))))

    assert raw[1:-1] in body_of(request, "claude", ORIGIN).decode()


@PATIENT
@given(st.text(), st.text(), st.text(alphabet=st.characters(codec="utf-8")))
def test_thinking_of_any_content_survives_storage_and_goes_back_unchanged(thinking, signature, unknown):
    blocks = ({"type": "thinking", "thinking": thinking, "signature": signature, unknown: [unknown]}, use("a"))
    exchange = own(*blocks)
    stored = json.loads(json.dumps(exchange.turn.native.blocks))
    restored = replace(exchange, turn=replace(exchange.turn, native=Native(ORIGIN, stored)))

    body = body_of(ModelRequest("", (UserText("Hi"), restored)), "claude", ORIGIN)

    assert exchange.turn.native.blocks[1:-1].encode() in body


@pytest.mark.parametrize("origin", ["anthropic:other@https://api.anthropic.com", "anthropic:claude@https://proxy"])
def test_blocks_of_another_model_or_address_are_rebuilt_without_reasoning(origin):
    turn = Turn("Looking.", (Call("look", '{"at": "x"}', "a"),), native=Native(origin, json.dumps([THOUGHT])))

    sent = messages(UserText("Hi"), Exchange(turn, (Result("ok"),)))

    assert sent[1][1] == [said("Looking."), {"type": "tool_use", "id": "a", "name": "look", "input": {"at": "x"}}]


def test_dropping_reasoning_drops_thinking_alone_and_keeps_what_the_server_did():
    server = {"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {}}
    history = (UserText("Hi"), own(THOUGHT, REDACTED, server, use("a")), own(THOUGHT, use("b")))

    sent = messages(*history, repairs=frozenset({"drop_reasoning"}))

    assert (sent[1][1], sent[3][1]) == ([server, use("a")], [use("b")])


def test_a_turn_of_nothing_but_thinking_vanishes_when_reasoning_is_dropped():
    sent = messages(UserText("Hi"), own(THOUGHT, finish="paused"), repairs=frozenset({"drop_reasoning"}))

    assert sent == [("user", [said("Hi")])]


# Pauses, and who speaks last


def test_a_paused_turn_goes_back_as_the_last_message_unchanged_and_without_a_nudge():
    paused = own(THOUGHT, said("Searching."), finish="paused")

    body = asked(UserText("Hi"), paused, tools=(LOOK,), tool_choice="auto", nudge="Quick.")

    assert body["messages"][-1] == {"role": "assistant", "content": [THOUGHT, said("Searching.")]}
    assert body["tools"]


def test_a_turn_that_goes_on_after_a_pause_shares_the_message_of_the_assistant():
    sent = messages(UserText("Hi"), own(said("One."), finish="paused"), own(said("Two."), use("a")))

    assert [role for role, _ in sent] == ["user", "assistant", "user"]
    assert sent[1][1] == [said("One."), said("Two."), use("a")]


def test_a_paused_turn_of_another_model_is_text_and_the_user_speaks_last():
    sent = messages(UserText("Hi"), Exchange(Turn("Searching.", finish="paused")))

    assert sent[1:] == [("assistant", [said("Searching.")]), ("user", [said("Please go on.")])]


def test_a_history_that_begins_with_the_model_gets_a_word_of_the_user_first():
    assert messages(own(use("a")))[0] == ("user", [said("Please go on.")])


def test_the_container_that_the_last_turn_ran_in_is_named_again():
    blocks = json.dumps({"container": "cont_2", "content": [said("On it.")]})
    paused = Exchange(Turn("On it.", finish="paused", native=Native(ORIGIN, blocks)))

    body = asked(UserText("Hi"), paused)

    assert body["container"] == "cont_2"
    assert body["messages"][-1]["content"] == [said("On it.")]


# Texts


@pytest.mark.parametrize("blank", ["", "  ", "\n\n"])
def test_blank_texts_are_never_sent(blank):
    sent = messages(UserText("Hi"), AssistantText(blank), UserText(blank), foreign(Call("look", "{}", "a"), text=blank))

    assert sent == [
        ("user", [said("Hi")]),
        ("assistant", [use("a")]),
        ("user", [{"type": "tool_result", "tool_use_id": "a", "content": "ok"}]),
    ]


def test_neighbours_of_one_role_share_a_message():
    sent = messages(UserText("Hi"), UserText("Are you there?"), AssistantText("Yes."), UserText("Good."))

    assert [(role, len(blocks)) for role, blocks in sent] == [("user", 2), ("assistant", 1), ("user", 1)]


def test_the_system_prompt_is_a_block_that_the_cache_can_be_marked_on():
    (block,) = asked(UserText("Hi"))["system"]

    assert block == {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}


def test_a_blank_system_prompt_is_left_out():
    assert "system" not in asked(UserText("Hi"), system=" ")


def test_halves_of_a_surrogate_pair_do_not_break_a_request():
    sent = messages(UserText("\ud83d\ude00 \ud83d"), own(use("a"), results=(Result("\udc80"),)), system="\udc80")

    assert sent[0][1] == [said("\U0001f600 \ufffd")]


# Ids and names


def test_an_id_that_comes_again_is_made_unique_on_both_sides():
    sent = messages(UserText("Hi"), own(THOUGHT, use("a"), use("a")), own(THOUGHT, use("a")))

    ids = [block["id"] for _, blocks in sent for block in blocks if block["type"] == "tool_use"]
    answered = [block["tool_use_id"] for _, blocks in sent for block in blocks if block["type"] == "tool_result"]
    assert len(set(ids)) == 3
    assert (ids[0], answered) == ("a", ids)
    assert sent[3][1][0] == THOUGHT


@PATIENT
@given(st.lists(st.lists(st.text(max_size=70), max_size=4), min_size=1, max_size=6))
def test_ids_of_any_kind_are_sent_as_the_service_takes_them_and_stay_while_the_history_grows(turns):
    history: History = (UserText("Hi"),)
    before: list[str] = []
    for wire_ids in turns:
        history = (*history, foreign(*(Call("look", "{}", wire_id) for wire_id in wire_ids)), UserText("On."))

        sent = [block for _, blocks in messages(*history) for block in blocks]

        ids = [block["id"] for block in sent if block["type"] == "tool_use"]
        assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", call_id) for call_id in ids)
        assert len(set(ids)) == len(ids)
        assert [block["tool_use_id"] for block in sent if block["type"] == "tool_result"] == ids
        assert ids[: len(before)] == before
        before = ids


def test_a_name_that_another_model_made_up_is_sent_in_letters_that_are_taken():
    sent = messages(UserText("Hi"), foreign(Call("functions.look up", "{}", "a"), Call("", "{}", "b")))

    assert [block["name"] for block in sent[1][1]] == ["functions_look_up", "unnamed"]


# Tools, choice, options


def test_tools_are_declared_with_an_object_and_without_an_empty_description():
    tools = asked(UserText("Hi"), tools=(LOOK, PING), tool_choice="auto")["tools"]

    assert [tool["name"] for tool in tools] == ["look", "ping"]
    assert tools[0]["input_schema"]["properties"] == {"at": {"type": "string"}}
    assert tools[1]["input_schema"]["type"] == "object"
    assert "description" not in tools[1]


@pytest.mark.parametrize("choice", ["auto", "none"])
def test_the_choice_is_sent_with_the_tools_which_stay_declared(choice):
    body = asked(UserText("Hi"), tools=(LOOK,), tool_choice=choice)

    assert (body["tool_choice"], len(body["tools"])) == ({"type": choice}, 1)


def test_no_choice_is_sent_without_tools_or_where_none_was_made():
    assert {"tools", "tool_choice"}.isdisjoint(asked(UserText("Hi"), tool_choice="none"))
    assert "tool_choice" not in asked(UserText("Hi"), tools=(LOOK,))


def test_nothing_is_sent_that_was_not_asked_for():
    assert set(asked(UserText("Hi"), system="")) == {"model", "max_tokens", "stream", "messages"}


@pytest.mark.parametrize(
    ("effort", "sent"),
    [
        ("high", {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}),
        ("minimal", {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}}),
        ("none", {"thinking": {"type": "disabled"}}),
        (None, {}),
    ],
)
def test_thinking_is_configured_only_when_an_effort_is_asked_for(effort, sent):
    body = asked(UserText("Hi"), reasoning_effort=effort)

    assert {name: body[name] for name in ("thinking", "output_config") if name in body} == sent


@pytest.mark.parametrize(
    ("repair", "missing"),
    [("drop:temperature", {"temperature"}), ("drop:reasoning_effort", {"thinking", "output_config"})],
)
def test_a_repair_drops_what_the_model_refused_and_nothing_else(repair, missing):
    options: dict[str, Any] = {"temperature": 0.5, "reasoning_effort": "high"}
    before = asked(UserText("Hi"), **options)

    after = asked(UserText("Hi"), **options, repairs=frozenset({repair}))

    assert set(before) - set(after) == missing


def test_without_streaming_the_reply_is_asked_for_in_one_piece():
    assert asked(UserText("Hi"))["stream"] is True
    assert asked(UserText("Hi"), repairs=frozenset({"no_stream"}))["stream"] is False


@pytest.mark.parametrize(("wanted", "sent"), [(100_000, 8192), (8192, 4096), (1000, 1000)])
def test_an_output_limit_that_was_too_high_becomes_one_that_any_model_takes(wanted, sent):
    assert asked(UserText("Hi"), max_output_tokens=wanted)["max_tokens"] == wanted
    repaired = asked(UserText("Hi"), max_output_tokens=wanted, repairs=frozenset({"drop:max_output_tokens"}))
    assert repaired["max_tokens"] == sent


# The cache


def growing() -> list[ModelRequest]:
    """Return the requests of a run of 25 rounds, each with many blocks."""
    history: History = (UserText("Hi"), AssistantText("Hello."), UserText("Look at all."))
    requests = []
    for number in range(25):
        requests.append(ModelRequest("Be brief.", history, (LOOK, PING), "auto"))
        history = (*history, own(THOUGHT, *(use(f"c{number}_{place}") for place in range(30))))
    return requests


def marks(value: Any) -> int:
    if isinstance(value, list):
        return sum(marks(item) for item in value)
    if not isinstance(value, dict):
        return 0
    return ("cache_control" in value) + sum(marks(item) for item in value.values())


def test_the_cache_has_four_marks_at_most_and_each_request_is_marked_where_the_last_one_was():
    bodies = [to_request(request, "claude", ORIGIN) for request in growing()]

    for before, after in pairwise(bodies):
        assert marks(after) == 4
        last = max(place for place, message in enumerate(before["messages"]) if marks(message))
        assert marks(after["messages"][last]["content"][-1]) == 1


def test_the_prefix_stays_the_same_bytes_but_for_the_marks():
    mark = b',"cache_control":{"type":"ephemeral"}'
    bodies = [body_of(request, "claude", ORIGIN).replace(mark, b"") for request in growing()]

    for before, after in pairwise(bodies):
        assert after.startswith(before.removesuffix(b"]}"))


def test_a_nudge_is_never_the_end_of_what_is_cached():
    content = asked(UserText("Hi"), own(use("a")), nudge="Look elsewhere.")["messages"][-1]["content"]

    assert [marks(block) for block in content] == [1, 0]


def test_the_closing_turn_reads_the_cache_of_the_tools_and_writes_none():
    body = asked(UserText("Hi"), own(use("a")), tools=(LOOK,), tool_choice="none")

    assert (marks(body["tools"]), marks(body["messages"]), marks(body["system"])) == (1, 0, 0)


def test_a_server_that_refuses_the_marks_gets_none():
    body = asked(UserText("Hi"), tools=(LOOK,), tool_choice="auto", repairs=frozenset({"drop:cache_control"}))

    assert marks(body) == 0
