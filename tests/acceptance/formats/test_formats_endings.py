"""How replies end, on every format: refused, cut, paused, malformed, leaked, empty, unknown, and calls after a no."""

import formats_tools
import pytest
from formats_stage import MODELS, Stage, call

pytestmark = [pytest.mark.services]
FORMATS = tuple(MODELS)


def body_text(request) -> str:
    return request.raw.decode()


@pytest.mark.parametrize("finish", ["refused", "filtered"])
def test_a_refusal_ends_the_message_and_what_was_asked_is_known_after(stage: Stage, finish: str):
    asked = {
        wire: stage.ask(
            wire,
            {"finish": finish, "text": "forbidden fruit"},
            name=f"{wire}-{finish}",
            conversation_id=f"{wire}-{finish}",
        )
        for wire in FORMATS
    }
    answers = {wire: job.wait(60) for wire, job in asked.items()}
    after = {
        wire: stage.answer(wire, {"text": "ok"}, name=f"{wire}-{finish}-after", conversation_id=f"{wire}-{finish}")
        for wire in FORMATS
    }

    for wire, answer in answers.items():
        assert (wire, answer.status, answer.error.code if answer.error else "") == (wire, "refused", "refused")
        own = finish == "refused" and wire in ("openai", "chat")
        assert answer.text == ("I'm sorry, I can't help with that." if own else "I cannot help with this request.")
        assert stage.fake.count(f"{wire}-{finish}") == 1
        assert after[wire].text == "ok"
        assert body_text(stage.requests(f"{wire}-{finish}-after")[0]).count("forbidden") == 1  # as the user wrote it


def test_a_text_without_a_whole_sentence_is_asked_for_once_more_with_twice_the_room(stage: Stage):
    step = {"text": "half a sen", "finish": "cut", "times": 1, "then": {"text": "A whole sentence."}}

    answers = stage.answers(step, name="cut-text")

    for wire, answer in answers.items():
        assert (wire, answer.status, answer.text) == (wire, "answered", "A whole sentence.")
        first, second = stage.requests(f"{wire}-cut-text")
        assert "8192" in body_text(first)
        assert "16384" in body_text(second)
        assert body_text(second).count("half a sen") == 1  # in the script, which is the user's text
        kinds = [update.kind for update in stage.updates(answer.message_id)]
        assert kinds.count("retrying") == 1


def test_a_text_that_was_cut_is_kept_to_its_last_whole_sentence_and_never_paid_twice(stage: Stage):
    step = {"text": "Rome was not built in a day. It took", "finish": "cut"}

    answers = stage.answers(step, name="cut-kept", model_options={"max_output_tokens": 1000})

    for wire, answer in answers.items():
        assert (wire, answer.status, answer.usage.model_calls) == (wire, "token_limit", 1)
        assert answer.text.startswith("Rome was not built in a day.\n\nMy answer got too long")
        assert answer.can_continue


def test_a_bound_that_the_caller_set_is_never_doubled(stage: Stage):
    step = {"text": "half a sen", "finish": "cut", "times": 1, "then": {"text": "A whole sentence."}}

    stage.answers(step, name="cut-bound", model_options={"max_output_tokens": 1234})

    for wire in FORMATS:
        assert ["1234" in body_text(request) for request in stage.requests(f"{wire}-cut-bound")] == [True, True]


def test_a_reply_cut_inside_a_call_runs_nothing_of_it(stage: Stage):
    calls = [call("note", text="whole"), call("note", text="a rather long text that breaks off")]
    cut = {"text": "I note.", "calls": calls, "finish": "cut", "times": 1, "then": {"calls": calls[:1]}}
    before = len(formats_tools.WRITTEN)

    answers = stage.answers(cut, {"text": "Noted."}, name="cut-call")

    for wire, answer in answers.items():
        assert (wire, answer.status, answer.text, answer.rounds) == (wire, "answered", "Noted.", 1)
        assert answer.usage.tool_calls == 1
        assert stage.retries(answer.message_id) == ["reply_cut"]
    assert len(formats_tools.WRITTEN) - before == len(FORMATS)


def test_a_reply_cut_twice_ends_by_the_token_limit_with_a_closing_turn(stage: Stage):
    cut = {"text": "half", "calls": [call("note", text="never")], "finish": "cut"}

    answers = stage.answers({"calls": [call("add", a=1, b=1)]}, cut, name="cut-twice", closing={"text": "Too long."})

    for wire, answer in answers.items():
        assert (wire, answer.status, answer.text) == (wire, "token_limit", "Too long.")
        assert stage.fake.count(f"{wire}-cut-twice") == 4
        assert answer.usage.tool_calls == 1


def test_a_cut_closing_turn_is_tried_again_with_more_room_and_then_replaced(stage: Stage):
    loop = {"calls": [call("add", a=1, b=1)]}
    once = {"text": "The limit w", "finish": "cut", "times": 1, "then": {"text": "The limit was reached."}}

    mended = stage.answers(loop, name="closing-cut-once", closing=once, max_rounds=1)
    replaced = stage.answers(loop, name="closing-cut", closing={"text": "half", "finish": "cut"}, max_rounds=1)

    for wire in FORMATS:
        assert (wire, mended[wire].text) == (wire, "The limit was reached.")
        assert (wire, replaced[wire].status) == (wire, "round_limit")
        assert "Shall I go on?" in replaced[wire].text
        assert stage.fake.count(f"{wire}-closing-cut") == 4


def test_a_paused_turn_goes_back_as_it_came_and_counts_as_a_round(stage: Stage):
    steps = (
        {"finish": "paused", "text": "searching", "thinking": "hm"},
        {"finish": "paused", "text": "and on"},
        {"calls": [call("add", a=1, b=2)]},
        {"text": "Found."},
    )
    answer = stage.answer("anthropic", *steps, name="pause")
    capped = stage.answer(
        "anthropic", {"finish": "paused", "text": "searching"}, name="pauses", max_rounds=2, closing={"text": "Enough."}
    )

    assert (answer.status, answer.text, answer.rounds) == ("answered", "Found.", 3)
    assert (capped.status, capped.text, capped.rounds) == ("round_limit", "Enough.", 2)
    assert stage.fake.count("pauses") == 4
    assert stage.refused("pause", "pauses") == []


@pytest.mark.parametrize("style", ["hermes", "qwen", "mistral", "llama", "dsml", "harmony"])
def test_a_call_leaked_as_text_is_discarded_and_asked_for_again_with_a_nudge(stage: Stage, style: str):
    leak = {"text": "Let me see.", "leak": style, "calls": [call("add", a=1, b=2)], "times": 1}
    steps = ({**leak, "then": {"calls": [call("add", a=1, b=2)]}}, {"text": "It is 3."})

    answers = stage.answers(*steps, name=f"leak-{style}")

    for wire, answer in answers.items():
        assert (wire, answer.status, answer.text, answer.rounds) == (wire, "answered", "It is 3.", 1)
        assert stage.retries(answer.message_id) == ["malformed_reply"]
        first, second, third = map(body_text, stage.requests(f"{wire}-leak-{style}"))
        assert len(second) > len(first)
        assert second != third
        assert stage.refused(f"{wire}-leak-{style}") == []


def test_a_malformed_call_is_asked_for_again_or_answered_with_an_error(stage: Stage):
    bad = {
        "calls": [call("add", a=1, b=2)],
        "finish": "malformed",
        "times": 1,
        "then": {"calls": [call("add", a=1, b=2)]},
    }

    answers = stage.answers(bad, {"text": "It is 3."}, name="malformed")

    for wire, answer in answers.items():
        assert (wire, answer.status, answer.text) == (wire, "answered", "It is 3.")
        assert stage.refused(f"{wire}-malformed") == []
    assert stage.retries(answers["chat"].message_id) == ["malformed_reply"]
    assert stage.retries(answers["google"].message_id) == ["malformed_reply"]


@pytest.mark.parametrize(
    ("code", "step"),
    [
        ("empty_reply", {"finish": "empty"}),
        ("malformed_reply", {"leak": True, "calls": [call("add", a=1, b=2)]}),
        ("unknown_finish", {"finish": "unknown", "text": "?"}),
    ],
)
def test_unusable_replies_are_bounded_and_run_no_tool_again(stage: Stage, code: str, step: dict):
    answers = stage.answers({"calls": [call("add", a=1, b=1)]}, step, name=code)

    for wire, answer in answers.items():
        assert (wire, answer.status, answer.error.code if answer.error else "") == (wire, "failed", code)
        assert stage.fake.count(f"{wire}-{code}", 1) == 3
        assert answer.usage.tool_calls == 1
        assert stage.retries(answer.message_id) == [code, code]


def test_an_empty_reply_after_results_is_asked_for_again(stage: Stage):
    empty = {"finish": "empty", "times": 1, "then": {"text": "It is 2."}}

    answers = stage.answers({"calls": [call("add", a=1, b=1)]}, empty, name="empty-once")

    for wire, answer in answers.items():
        assert (wire, answer.status, answer.text, answer.usage.tool_calls) == (wire, "answered", "It is 2.", 1)


def test_a_reply_of_reasoning_alone_is_empty(stage: Stage):
    thoughtful = {"thinking": "on and on", "times": 1, "then": {"text": "It is 2."}}

    answers = stage.answers(thoughtful, name="thoughts-only")

    for wire, answer in answers.items():
        assert (wire, answer.status, answer.text) == (wire, "answered", "It is 2.")


def test_a_closing_turn_that_asks_for_tools_all_the_same_is_replaced_by_a_summary(stage: Stage):
    before = len(formats_tools.WRITTEN)

    answers = stage.answers(
        {"calls": [call("add", a=20, b=22)]},
        {"calls": [call("note", text="undone")]},
        name="closing-calls",
        closing={"text": "One moment.", "calls": [call("note", text="never")]},
        max_rounds=1,
    )

    for wire, answer in answers.items():
        assert (wire, answer.status, answer.rounds) == (wire, "round_limit", 1)
        assert "42" in answer.text
        assert "note" in answer.text
        assert "One moment." not in answer.text
        assert stage.fake.count(f"{wire}-closing-calls", "closing") == 1
    assert len(formats_tools.WRITTEN) == before


@pytest.mark.parametrize("step", [{"error": "server_error"}, {"finish": "empty"}, {"finish": "unknown"}])
def test_a_closing_turn_that_fails_twice_is_replaced_by_a_summary(stage: Stage, step: dict):
    name = f"closing-{'-'.join(map(str, step.values()))}"

    answers = stage.answers({"calls": [call("add", a=20, b=22)]}, name=name, closing=step, max_rounds=1)

    for wire, answer in answers.items():
        assert (wire, answer.status) == (wire, "round_limit")
        assert "42" in answer.text
        assert stage.fake.count(f"{wire}-{name}", "closing") == 2


def test_with_no_rounds_at_all_calls_are_answered_unexecuted(stage: Stage):
    answers = stage.answers(
        {"calls": [call("note", text="x")]}, name="no-rounds", closing={"text": "No."}, max_rounds=0
    )

    for wire, answer in answers.items():
        assert (wire, answer.status, answer.text, answer.usage.tool_calls) == (wire, "round_limit", "No.", 0)
        assert stage.fake.count(f"{wire}-no-rounds") == 2
        assert stage.refused(f"{wire}-no-rounds") == []
