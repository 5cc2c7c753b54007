"""What a server refuses and a changed request mends: once, kept for the message, on every format."""

from collections.abc import Callable

import pytest
from formats_stage import KEY, MODELS, Stage, call

pytestmark = [pytest.mark.services]
FORMATS = tuple(MODELS)
OK = {"text": "It is done."}
ADD = {"calls": [call("add", a=1, b=2)]}
THINK = {"thinking": "deep thought", "calls": [call("add", a=1, b=2)]}


def outcome(answer):
    return answer.status, answer.error.code if answer.error else "", answer.text if answer.status == "answered" else ""


DONE = ("answered", "", "It is done.")


def test_a_signature_that_is_refused_is_dropped_once_with_all_reasoning(stage: Stage):
    step = {"error": "reasoning", "times": 1, "then": ADD}

    answers = stage.answers(THINK, step, OK, name="signature")

    for wire, answer in answers.items():
        assert (wire, outcome(answer)) == (wire, DONE)
        assert answer.usage.model_calls == 4
        first, refused, repaired, after = (request.raw.decode() for request in stage.requests(f"{wire}-signature"))
        assert "gAAAAABf" in refused
        assert "gAAAAABf" not in first + repaired
        assert "gAAAAABf" not in after.replace("skip_thought_signature_validator", "")
        assert stage.refused(f"{wire}-signature") == []


def test_reasoning_that_is_refused_again_and_again_ends_the_message(stage: Stage):
    for wire, answer in stage.answers(THINK, {"error": "reasoning"}, name="signatures").items():
        assert (wire, outcome(answer)) == (wire, ("failed", "bad_request", ""))
        assert stage.fake.count(f"{wire}-signatures", 1) == 2


def test_a_temperature_that_is_refused_is_dropped_once_and_for_the_message(stage: Stage):
    answers = stage.answers(
        ADD, ADD, OK, name="temperature", flag="-no-temperature", model_options={"temperature": 0.4}
    )

    for wire, answer in answers.items():
        assert (wire, outcome(answer)) == (wire, DONE)
        assert len(stage.refused(f"{wire}-temperature")) == 1
        given = ['"temperature":0.4' in request.raw.decode() for request in stage.requests(f"{wire}-temperature")]
        assert given == [True, False, False, False]


def test_an_effort_that_is_refused_is_dropped_once_and_for_the_message(stage: Stage):
    answers = stage.answers(
        THINK, ADD, OK, name="effort", flag="-no-effort", model_options={"reasoning_effort": "high"}
    )

    for wire, answer in answers.items():
        assert (wire, outcome(answer)) == (wire, DONE)
        assert stage.refused(f"{wire}-effort") == ["reasoning_effort" if wire == "chat" else "effort"]
        assert ["high" in request.raw.decode() for request in stage.requests(f"{wire}-effort")] == [True] + [False] * 3


def test_several_refusals_of_one_message_are_mended_one_by_one(stage: Stage):
    answers = stage.answers(
        THINK,
        OK,
        name="several",
        formats=("openai", "chat", "anthropic"),
        flag="-no-effort-no-temperature-no-stream",
        model_options={"reasoning_effort": "high", "temperature": 0.4},
    )

    for wire, answer in answers.items():
        assert (wire, outcome(answer)) == (wire, DONE)
        assert len(stage.refused(f"{wire}-several")) == 3


def test_encrypted_reasoning_that_is_not_supported_is_not_asked_for_again(stage: Stage):
    answer = stage.answer("openai:fake-no-include", THINK, ADD, OK, name="include")

    assert outcome(answer) == DONE
    assert stage.refused("include") == ["include"]
    assert ['"include"' in request.raw.decode() for request in stage.requests("include")] == [True, False, False, False]


@pytest.mark.parametrize(
    ("flag", "most"),
    [
        ("no-usage", 1),
        ("no-system", 1),
        ("no-system-no-developer", 2),
        ("no-max-tokens", 1),
        ("no-null-content", 1),
        ("no-empty-content", 0),
        ("no-max-completion-tokens", 0),
        ("needs-reasoning", 1),
    ],
)
def test_a_chat_server_of_its_own_kind_is_served(stage: Stage, flag: str, most: int):
    leak = {"leak": True, "calls": [call("add", a=1, b=2)], "times": 1, "then": OK}

    answer = stage.answer(f"chat:odd-{flag}", ADD, leak, name=flag, system="You are careful.")

    assert outcome(answer) == DONE
    assert len(stage.refused(flag)) <= most


def test_a_chat_server_that_takes_no_user_after_a_tool_gets_an_assistants_word_between(stage: Stage):
    leak = {"leak": True, "calls": [call("add", a=1, b=2)], "times": 1, "then": OK}

    answer = stage.answer("chat:odd-no-user-after-tool", ADD, leak, name="bridge")

    assert answer.status == "answered"
    assert stage.refused("bridge") == ["user_after_tool"]
    bridged = [request.body["messages"] for request in stage.fake.requests if '"content":"OK."' in request.raw.decode()]
    assert [message["role"] for message in bridged[0]][-3:] == ["tool", "assistant", "user"]


def test_a_model_without_tools_fails_plainly_and_answers_when_none_are_declared(stage: Stage):
    flag = "-no-tools"
    refused = stage.answers(OK, name="tools", flag=flag)
    without = stage.answers(OK, name="toolless", flag=flag, tools=[])

    for wire in FORMATS:
        assert (wire, outcome(refused[wire])) == (wire, ("failed", "tools_unsupported", ""))
        assert "does not support tools" in refused[wire].error.message
        assert stage.fake.count(f"{wire}-tools") == 1
        assert (wire, outcome(without[wire])) == (wire, DONE)


def test_a_model_that_is_not_there_fails_at_once(stage: Stage):
    for wire, answer in stage.answers(OK, name="missing", flag="-missing").items():
        assert (wire, outcome(answer)) == (wire, ("failed", "model_not_found", ""))
        assert stage.fake.count(f"{wire}-missing") == 1


def test_an_overflow_shrinks_old_results_whole_and_goes_on(stage: Stage):
    steps = ({"calls": [call("fill", size=30_000)]}, {"calls": [call("fill", size=30_000), call("add", a=1, b=2)]}, OK)

    answers = stage.answers(*steps, name="overflow", flag="-context-12000")

    for wire, answer in answers.items():
        assert (wire, outcome(answer)) == (wire, DONE)
        assert stage.refused(f"{wire}-overflow") == ["overflow"]
        last = stage.requests(f"{wire}-overflow")[-1].raw.decode()
        assert "This result was removed to make room: 30000 characters." in last
        assert 7_000 < last.count("x" * 10) * 10 < 9_000


def test_an_overflow_that_stays_is_told(stage: Stage):
    for wire, answer in stage.answers(OK, name="too-long", flag="-context-10").items():
        assert (wire, outcome(answer)) == (wire, ("failed", "context_overflow", ""))
        assert stage.fake.count(f"{wire}-too-long") == 2


def test_a_window_that_fills_while_the_model_writes_is_an_overflow_too(stage: Stage):
    step = {"finish": "overflow", "times": 1, "then": OK}

    answers = stage.answers({"calls": [call("fill", size=30_000)]}, step, name="writing")

    for wire, answer in answers.items():
        assert (wire, outcome(answer)) == (wire, DONE)
        assert len(stage.requests(f"{wire}-writing")[-1].raw) < 20_000


def test_a_request_too_large_for_the_server_shrinks_too(stage: Stage):
    answers = stage.answers(
        {"calls": [call("fill", size=30_000)]},
        {"calls": [call("fill", size=30_000)]},
        OK,
        name="large",
        flag="-body-50000",
    )

    for wire, answer in answers.items():
        assert (wire, outcome(answer)) == (wire, DONE)
        assert stage.refused(f"{wire}-large") == ["too_large"]


WRONG = "sk-invalid-0123456789-WRONG"
VARIABLES = {
    "openai": "OPENAI_API_KEY",
    "chat": "ROUNDELAY_CHAT_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
    "google": "GEMINI_API_KEY",
}


def test_a_wrong_key_fails_at_once_and_names_its_variable_but_not_the_key(build: Callable[..., Stage]):
    keys = dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"), WRONG)
    closed = build(chat_api_key=WRONG, **keys)

    answers = closed.answers(OK, name="wrong-key")

    for wire, answer in answers.items():
        assert (wire, outcome(answer)) == (wire, ("failed", "credentials", ""))
        assert VARIABLES[wire] in answer.error.message
        assert closed.fake.count(f"{wire}-wrong-key") == 1
    updates = [update.model_dump_json() for answer in answers.values() for update in closed.updates(answer.message_id)]
    everything = "\n".join([*updates, closed.everything()])
    assert "wrong-key" in everything
    assert "WRONG" not in everything
    assert KEY not in everything


def test_a_missing_key_fails_before_anything_is_sent(build: Callable[..., Stage]):
    keys = dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"))
    closed = build(chat_base_url=None, chat_api_key=None, **keys)

    for wire, answer in closed.answers(OK, name="no-key").items():
        assert (wire, outcome(answer)) == (wire, ("failed", "credentials", ""))
        assert ("OPENAI_API_KEY" if wire == "chat" else VARIABLES[wire]) in answer.error.message
        assert closed.fake.count(f"{wire}-no-key") == 0


def test_a_chat_server_of_ones_own_needs_no_key_and_says_which_variable_if_it_does(build: Callable[..., Stage]):
    keyless = build(chat_api_key=None)

    answer = keyless.answer("chat", OK, name="keyless")

    assert outcome(answer) == ("failed", "credentials", "")
    assert "ROUNDELAY_CHAT_API_KEY" in answer.error.message
