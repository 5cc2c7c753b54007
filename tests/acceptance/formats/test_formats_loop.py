"""The whole loop on every format: parallel calls, reasoning that goes back, faults, the cap, and going on."""

import itertools
import json

import pytest
from formats_stage import MODELS, Stage, call
from formats_wire import head, history, unmarked

pytestmark = [pytest.mark.services]
FORMATS = tuple(MODELS)

THOUGHT = "I must not be seen:"
SIGNED = "gAAAAABf"
"""What every signature and encrypted item of the fake begins with."""
SYSTEM = "You are careful."
ROUNDS = (
    {
        "thinking": f"{THOUGHT} one",
        "text": "Let me look.",
        "calls": [call("add", a=1, b=2), call("weather", city="Lisbon"), call("weather", city="Porto")],
    },
    {
        "thinking": f"{THOUGHT} two",
        "redacted": True,
        "calls": [call("broken"), call("no_such_tool", x=1), call("add", a="one", c=2)],
    },
    {"thinking": f"{THOUGHT} three", "text": "I note it.", "calls": [call("note", text="3"), call("add", a=2, b=2)]},
    {"calls": [{"name": "weather", "bad_arguments": "{'city': Faro"}, call("weather", city="Faro")]},
)
BEYOND = {"thinking": f"{THOUGHT} four", "text": "More.", "calls": [call("note", text="4"), call("add", a=3, b=3)]}
CLOSING = {"thinking": f"{THOUGHT} five", "text": "The limit was reached. Shall I go on?"}
ON = (
    {"thinking": f"{THOUGHT} six", "calls": [call("add", a=5, b=5)]},
    {"thinking": f"{THOUGHT} seven", "text": "It is done."},
)


def loop_and_on(stage: Stage, model: str, name: str):
    """Run a message to its cap and the one that goes on from there."""
    options = {"system": SYSTEM, "conversation_id": name}
    capped = stage.answer(model, *ROUNDS, BEYOND, name=name, closing=CLOSING, max_rounds=4, **options)
    on = stage.answer(model, *ON, name=f"{name}-on", words="Yes, go on.", **options)
    return capped, on


@pytest.mark.parametrize("wire", FORMATS)
def test_a_loop_to_the_cap_and_on_is_never_refused(stage: Stage, wire: str):
    name = f"{wire}-loop"

    capped, on = loop_and_on(stage, wire, name)

    assert (capped.status, capped.text, capped.rounds) == ("round_limit", CLOSING["text"], 4)
    assert [undone.name for undone in capped.undone] == ["note", "add"]
    assert (on.status, on.text, on.rounds) == ("answered", "It is done.", 1)
    assert (stage.fake.count(name), stage.fake.count(f"{name}-on")) == (6, 2)
    assert all(request.stream for request in stage.requests(name))
    assert stage.refused() == []


@pytest.mark.parametrize("wire", ["openai", "chat", "anthropic"])
def test_a_server_without_streaming_is_asked_for_whole_replies_after_one_refusal(stage: Stage, wire: str):
    name = f"{wire}-whole"

    capped, on = loop_and_on(stage, f"{MODELS[wire]}-no-stream", name)

    assert (capped.status, capped.text, capped.rounds) == ("round_limit", CLOSING["text"], 4)
    assert (on.status, on.text) == ("answered", "It is done.")
    assert [request.stream for request in stage.requests(name)] == [True, *[False] * 6]
    assert stage.refused(name, f"{name}-on") == ["stream_unsupported"]  # the next message knows


def test_a_gemini_server_without_streaming_is_asked_for_whole_replies_too(stage: Stage):
    message = "Streaming is not supported for this model."
    error = {"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}}
    refusing = {"status": 400, "body": error, "times": 1, "then": ROUNDS[0]}

    answer = stage.answer(
        "google", refusing, *ROUNDS[1:], BEYOND, name="google-whole", closing=CLOSING, max_rounds=4, system=SYSTEM
    )

    assert (answer.status, answer.text, answer.rounds) == ("round_limit", CLOSING["text"], 4)
    assert [request.stream for request in stage.requests("google-whole")] == [True, *[False] * 6]
    assert stage.refused("google-whole") == []


@pytest.mark.parametrize("flag", ["", "-no-stream"])
def test_a_tool_that_the_model_made_up_goes_back_under_a_name_that_no_service_refuses(stage: Stage, flag: str):
    odd = [call("look it up!"), call("3d/prévisualiser"), call("n" * 300), call("add", a=1, b=2)]
    steps = ({"thinking": f"{THOUGHT} odd", "text": "Let me see.", "calls": odd}, {"text": "It is 3."})

    answers = stage.answers(*steps, name=f"made-up{flag}", flag=flag, formats=("openai", "chat", "anthropic"))
    answers |= {} if flag else stage.answers(*steps, name="made-up", formats=("google",))

    for wire, answer in answers.items():
        assert (wire, answer.status, answer.text) == (wire, "answered", "It is 3.")
        assert set(stage.refused(f"{wire}-made-up{flag}")) <= {"stream_unsupported"}
        told = [(note.tool, note.ok) for note in stage.updates(answer.message_id) if note.kind == "tool_finished"]
        assert ("look it up!", False) in told
        assert ("n" * 64, False) in told


@pytest.mark.parametrize("wire", FORMATS)
def test_results_are_in_the_order_of_the_calls_and_errors_are_the_formats_own(stage: Stage, wire: str):
    name = f"{wire}-results"

    stage.answer(wire, *ROUNDS, {"text": "Done."}, name=name)

    last = stage.requests(name)[-1].body
    told = RESULTS[wire](last)
    assert [json.loads(text) for _, text in told[:3]] == [
        3,
        *({"city": c, "sky": "clear"} for c in ("Lisbon", "Porto")),
    ]
    assert [error for error, _ in told] == [False] * 3 + [True] * 3 + [False, False, True, False]
    assert "the device is off" in told[3][1]
    assert "add, broken, calculator" in told[4][1]
    assert '"one"' not in told[5][1]


def _openai_results(body):
    outputs = [item["output"] for item in body["input"] if item.get("type") == "function_call_output"]
    return [(text.startswith('{"error"'), text) for text in outputs]


def _chat_results(body):
    outputs = [message["content"] for message in body["messages"] if message["role"] == "tool"]
    return [(text.startswith('{"error"'), text) for text in outputs]


def _anthropic_results(body):
    blocks = [
        block for message in body["messages"] if isinstance(message["content"], list) for block in message["content"]
    ]
    return [(b.get("is_error", False), b["content"]) for b in blocks if b["type"] == "tool_result"]


def _google_results(body):
    parts = [part for content in body["contents"] for part in content["parts"]]
    responses = [part["functionResponse"]["response"] for part in parts if "functionResponse" in part]
    return [("error" in r, r.get("output") or json.dumps(r["error"])) for r in responses]


RESULTS = {
    "openai": _openai_results,
    "chat": _chat_results,
    "anthropic": _anthropic_results,
    "google": _google_results,
}


@pytest.mark.parametrize("wire", FORMATS)
@pytest.mark.parametrize("flag", ["", "-no-stream"])
def test_each_signature_goes_back_and_none_is_made_up(stage: Stage, wire: str, flag: str):
    name = f"{wire}-signed{flag}"

    stage.answer(f"{MODELS[wire]}{flag}", *ROUNDS, {"text": "Done."}, name=name)

    last = stage.requests(name)[-1].raw.decode()
    turns_signed = 4 if wire == "google" else 3  # Gemini signs each turn with calls, the others each thought
    assert last.count(SIGNED) == turns_signed
    assert "skip_thought_signature_validator" not in last


@pytest.mark.parametrize("wire", FORMATS)
def test_consecutive_requests_share_tools_system_and_history_byte_for_byte(stage: Stage, wire: str):
    name = f"{wire}-prefix"

    stage.answer(wire, *ROUNDS, *ON, name=name, system=SYSTEM)

    requests = [unmarked(request.raw) for request in stage.requests(name)]
    assert len(requests) == 6
    for before, after in itertools.pairwise(requests):
        assert head(wire, after) == head(wire, before)
        assert history(wire, after).startswith(history(wire, before))


@pytest.mark.parametrize("wire", FORMATS)
def test_the_closing_request_changes_the_system_prompt_and_the_choice_and_nothing_else(stage: Stage, wire: str):
    name = f"{wire}-closing"

    stage.answer(wire, *ROUNDS, BEYOND, name=name, closing=CLOSING, max_rounds=4, system=SYSTEM)

    last, closing = [request.body for request in stage.requests(name)][-2:]
    changed = {key for key in closing if closing[key] != last.get(key)}
    expected = {
        "openai": {"instructions", "tool_choice", "input"},
        "chat": {"tool_choice", "messages"},
        "anthropic": {"system", "tool_choice", "messages", "tools"},
        "google": {"systemInstruction", "toolConfig", "contents"},
    }
    assert changed <= expected[wire]
    assert "tool_choice" in changed or "toolConfig" in changed
    assert closing.keys() == last.keys()
