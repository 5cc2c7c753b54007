"""What is asked of generateContent; each rule of the service that broke someone's loop has its test here."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roundelay_worker.loop.history import AssistantText, Call, Exchange, History, Native, Result, Turn, UserText
from roundelay_worker.providers.base import ModelRequest, ToolSpec
from roundelay_worker.providers.google.request import UNSIGNED, body_of, to_request

PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy
MODEL = "gemini-3-pro-preview"
ORIGIN = f"google:{MODEL}@https://generativelanguage.googleapis.com"
LOOK = ToolSpec("look", "Looks.", {"type": "object", "properties": {"at": {"type": "string"}}})
PING = ToolSpec("ping", "Pings.", {"type": "object", "properties": {}})


def called(name: str = "look", **more: Any) -> dict[str, Any]:
    return {"functionCall": {"name": name, "args": {}}, **more}


def own(*parts: dict[str, Any], results: tuple[Result, ...] | None = None) -> Exchange:
    """Return an exchange whose turn is of this model, as the reader makes it."""
    found = [part["functionCall"] for part in parts if "functionCall" in part]
    calls = tuple(Call(call["name"], "{}", call.get("id", "")) for call in found)
    turn = Turn("".join(p.get("text", "") for p in parts), calls, native=Native(ORIGIN, json.dumps(parts)))
    return Exchange(turn, results if results is not None else tuple(Result("ok") for _ in calls))


def foreign(*calls: Call, text: str = "") -> Exchange:
    turn = Turn(text, calls, native=Native("anthropic:other@https://example.org", "[]"))
    return Exchange(turn, tuple(Result("ok") for _ in calls))


def asked(*history: Any, model: str = MODEL, **options: Any) -> dict[str, Any]:
    options.setdefault("system", "Be brief.")
    return to_request(ModelRequest(history=tuple(history), **options), model, ORIGIN)


def contents(*history: Any, **options: Any) -> list[tuple[str, list[dict[str, Any]]]]:
    return [(content["role"], content["parts"]) for content in asked(*history, **options)["contents"]]


# Results


def test_ids_that_come_again_are_made_unique_and_all_else_of_the_part_stays():
    turn = own({"text": "Hm."}, called() | {"thoughtSignature": "s1"}, called("ping"))
    for part in (again := json.loads(turn.turn.native.blocks if turn.turn.native else ""))[1:]:
        part["functionCall"]["id"] = "same"
    first, second = own(*again), own(*again)

    sent = contents(UserText("Hi"), first, second)

    parts = [part for role, found in sent if role == "model" for part in found]
    ids = [part["functionCall"]["id"] for part in parts if "functionCall" in part]
    answered = [part["functionResponse"]["id"] for role, found in sent[1:] if role == "user" for part in found]
    assert ids[0] == "same"
    assert len(set(ids)) == 4
    assert answered == ids
    assert [part.get("thoughtSignature") for part in parts] == [None, "s1", None] * 2
    assert parts[0] == parts[3] == {"text": "Hm."}


def test_the_responses_to_a_turn_stand_alone_in_one_content_in_the_order_of_the_calls():
    turn = own(called(), called(), results=(Result("one"), Result("two")))

    sent = contents(UserText("Hi"), turn, nudge="Look elsewhere.")

    assert sent[2:] == [
        (
            "user",
            [
                {"functionResponse": {"name": "look", "response": {"output": "one"}}},
                {"functionResponse": {"name": "look", "response": {"output": "two"}}},
            ],
        ),
        ("user", [{"text": "Look elsewhere."}]),
    ]


def test_ids_go_back_where_the_call_had_one_and_only_there():
    first = {"functionCall": {"name": "look", "args": {}, "id": "x1"}, "thoughtSignature": "c2ln"}

    sent = contents(UserText("Hi"), own(first, called()))

    assert [part["functionResponse"].get("id") for part in sent[2][1]] == ["x1", None]


@pytest.mark.parametrize(
    ("text", "response"),
    [
        ('{"error": {"code": "timeout", "message": "m"}}', {"error": {"code": "timeout", "message": "m"}}),
        ('{"code": "timeout"}', {"error": {"code": "timeout"}}),
        ("it broke", {"error": "it broke"}),
    ],
)
def test_an_error_is_under_its_own_key(text, response):
    sent = contents(UserText("Hi"), own(called(), results=(Result(text, is_error=True),)))

    assert sent[2][1][0]["functionResponse"]["response"] == response


def test_a_result_that_looks_like_an_error_is_still_an_output():
    sent = contents(UserText("Hi"), own(called(), results=(Result('{"error": "in the log"}'),)))

    assert sent[2][1][0]["functionResponse"]["response"] == {"output": '{"error": "in the log"}'}


# The model's own parts


def test_own_parts_go_back_byte_for_byte_signatures_on_empty_texts_included():
    raw = (
        '[{"text": "a\\u00e9","thought": true},{"toolCall":{"n":1.50}}, '
        '{"functionCall":{"name":"look","args":{"n":1e2}},"thoughtSignature":"x\\/y=="},{"text":"","thoughtSignature":"z"}]'
    )
    turn = Turn("", (Call("look", '{"n":1e2}'),), native=Native(ORIGIN, raw))
    request = ModelRequest("", (UserText("Hi"), Exchange(turn, (Result("ok"),))))

    assert raw.encode() in body_of(request, MODEL, ORIGIN)


@PATIENT
@given(st.text(), st.dictionaries(st.text(), st.text()))
def test_signatures_and_unknown_fields_survive_storage_and_go_back_unchanged(signature, fields):
    exchange = own(called(**{**fields, "functionCall": called()["functionCall"], "thoughtSignature": signature}))
    stored = json.loads(json.dumps(exchange.turn.native.blocks))

    body = body_of(ModelRequest("", (UserText("Hi"), exchange)), MODEL, ORIGIN)

    assert stored.encode() in body


def test_calls_of_another_model_are_rebuilt_and_only_the_first_of_each_step_skips_the_check():
    history = (UserText("Hi"), foreign(Call("look", '{"at": "x"}', "a"), Call("ping", "{}", "b"), text="Looking."))

    sent = contents(*history, foreign(Call("ping", "{}", "c")))

    assert sent[1][1] == [
        {"text": "Looking."},
        {"functionCall": {"name": "look", "args": {"at": "x"}, "id": "a"}, "thoughtSignature": UNSIGNED},
        {"functionCall": {"name": "ping", "args": {}, "id": "b"}},
    ]
    assert sent[3][1][0]["thoughtSignature"] == UNSIGNED == "skip_thought_signature_validator"
    assert [part["functionResponse"]["id"] for part in sent[2][1]] == ["a", "b"]


@pytest.mark.parametrize("model", ["gemini-2.5-flash", "models/gemini-2.0-flash", "gemini-1.5-pro"])
def test_models_that_know_no_signatures_get_none(model):
    sent = contents(UserText("Hi"), foreign(Call("look", "{}", "a")), model=model)

    assert "thoughtSignature" not in sent[1][1][0]


def test_own_calls_lose_their_signatures_when_reasoning_is_dropped():
    signed = called(thoughtSignature="bad")

    sent = contents(UserText("Hi"), own({"text": "Hm", "thoughtSignature": "bad"}, signed), repairs={"drop_reasoning"})

    assert [part.get("thoughtSignature") for part in sent[1][1]] == [None, UNSIGNED]


# Order of contents


def test_neighbours_of_the_model_share_a_content_since_a_call_must_follow_the_user():
    sent = contents(UserText("Hi"), AssistantText("Hello."), foreign(Call("look", "{}", "a")))

    assert [role for role, _ in sent] == ["user", "model", "user"]


def test_the_user_speaks_first_and_last():
    assert contents(own(called()))[0] == ("user", [{"text": "Please go on."}])
    assert contents(UserText("Hi"), Exchange(Turn("Searching.", finish="paused")))[-1] == (
        "user",
        [{"text": "Please go on."}],
    )


def test_a_message_of_the_user_after_results_is_a_content_of_its_own():
    sent = contents(UserText("Hi"), own(called()), UserText("Go on"))

    assert [(role, len(parts)) for role, parts in sent] == [("user", 1), ("model", 1), ("user", 1), ("user", 1)]


def test_parts_without_content_are_never_sent():
    sent = contents(UserText("Hi"), AssistantText(" "), UserText(""), foreign(Call("look", "{}", "a"), text="\n"))

    assert all(part != {"text": ""} and part for _, parts in sent for part in parts)
    assert [role for role, _ in sent] == ["user", "model", "user"]


def test_halves_of_a_surrogate_pair_do_not_break_a_request():
    sent = contents(UserText("\ud83d\ude00 \ud83d"), own(called(), results=(Result("\udc80"),)), system="\udc80")

    assert sent[0][1] == [{"text": "\U0001f600 \ufffd"}]


# Tools, choice, options


def test_tools_are_declared_with_their_json_schema_and_without_one_where_there_are_no_parameters():
    (tools,) = asked(UserText("Hi"), tools=(LOOK, PING), tool_choice="auto")["tools"]

    look, ping = tools["functionDeclarations"]
    assert look["parametersJsonSchema"]["properties"] == {"at": {"type": "string"}}
    assert ping == {"name": "ping", "description": "Pings."}


@pytest.mark.parametrize(("choice", "mode"), [("auto", "AUTO"), ("none", "NONE")])
def test_the_mode_is_sent_with_the_declarations_which_stay(choice, mode):
    body = asked(UserText("Hi"), tools=(LOOK,), tool_choice=choice)

    assert body["toolConfig"] == {"functionCallingConfig": {"mode": mode}}
    assert body["tools"]


def test_no_mode_is_sent_without_declarations_or_where_no_choice_was_made():
    assert {"tools", "toolConfig"}.isdisjoint(asked(UserText("Hi"), tool_choice="none"))
    assert "toolConfig" not in asked(UserText("Hi"), tools=(LOOK,))


def test_the_system_prompt_stands_apart_and_a_blank_one_is_left_out():
    assert asked(UserText("Hi"))["systemInstruction"] == {"parts": [{"text": "Be brief."}]}
    assert set(asked(UserText("Hi"), system="")) == {"generationConfig", "contents"}


@pytest.mark.parametrize(
    ("model", "effort", "thinking"),
    [
        (MODEL, "high", {"thinkingLevel": "high"}),
        (MODEL, "none", {"thinkingLevel": "minimal"}),
        (MODEL, "max", {"thinkingLevel": "high"}),
        ("gemini-2.5-flash", "none", {"thinkingBudget": 0}),
        ("gemini-2.5-flash", "medium", {"thinkingBudget": 8192}),
        ("gemini-2.5-flash", "brand_new", None),
        (MODEL, None, None),
    ],
)
def test_thinking_is_configured_only_when_an_effort_is_asked_for_and_as_the_model_takes_it(model, effort, thinking):
    options = asked(UserText("Hi"), model=model, reasoning_effort=effort)["generationConfig"]

    assert options.get("thinkingConfig") == thinking


@pytest.mark.parametrize(
    ("repair", "missing"),
    [
        ("drop:temperature", "temperature"),
        ("drop:reasoning_effort", "thinkingConfig"),
        ("drop:max_output_tokens", "maxOutputTokens"),
    ],
)
def test_a_repair_drops_what_the_model_refused_and_nothing_else(repair, missing):
    options: dict[str, Any] = {"temperature": 0.5, "reasoning_effort": "high"}
    before = asked(UserText("Hi"), **options)["generationConfig"]

    after = asked(UserText("Hi"), **options, repairs=frozenset({repair}))["generationConfig"]

    assert set(before) - set(after) == {missing}


def test_the_prefix_stays_the_same_bytes_while_the_history_grows():
    history: History = (UserText("Hi"), AssistantText("Hello."), UserText("Look at all."))
    bodies = []
    for number in range(10):
        bodies.append(body_of(ModelRequest("Be brief.", history, (LOOK, PING), "auto"), MODEL, ORIGIN))
        history = (*history, own(called(thoughtSignature=str(number))), foreign(Call("look", "{}", "a")))

    for before, after in pairwise(bodies):
        assert after.startswith(before.removesuffix(b"]}"))
