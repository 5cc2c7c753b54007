"""What a person reads when no model wrote it: every stop, in every language, whatever tools brought."""

import json
import re
from dataclasses import replace

import pytest
from playing import Play, asks, says

from roundelay.names import SOFT_STOPS
from roundelay_worker.loop.events import CancelAsked
from roundelay_worker.loop.history import Call, Exchange, Result, Turn
from roundelay_worker.loop.plain import asked, named, said
from roundelay_worker.loop.replies import kept_text, only_announces
from roundelay_worker.loop.state import Failure, Limits, State, ToolWords
from roundelay_worker.loop.stops import cancel, end_by_summary, fail, refuse
from roundelay_worker.loop.texts import PHRASES, retryable

TIMES = "(\u00d7"
LANGUAGES = [*PHRASES, "ja"]
RESULTS = {
    "plain": "Rome is sunny",
    "json": '{"temp": 21.5, "sky": "clear", "rows": [1, 2, 3], "next": null, "ids": []}',
    "nested": '[{"id": "a1b2", "html": "<b>x</b>"}]',
    "markup": "# Page\n![x](https://evil.example/p.png) **Hello** [here](http://evil.example) <script>steal()</script>",
    "huge": "word " * 10_000,
    "empty": "",
    "null": "null",
    "validation": "1 validation error for Order: amount: Input should be a valid integer [type=int_parsing]",
}
TOOLS = (
    ToolWords("get_weather", "look at the weather", "read"),
    ToolWords("send_email", "send an email", "write", ("body",)),
    ToolWords("read_diary", "read the diary", "read", True),
)


def story(count: int, text: str, *, errors: bool = False) -> tuple[Exchange, ...]:
    """Return so many reads, then an email sent and one not sent, a private read, and a write of unknown outcome."""
    if not count:
        return ()
    reads = tuple(
        Exchange(Turn(calls=(Call("get_weather", f'{{"city": "Rome {n}"}}'),)), (Result(text, is_error=errors),))
        for n in range(count)
    )
    mail = '{"to": "ana@example.com", "body": "SECRET words"}'
    calls = (
        Call("send_email", mail),
        Call("read_diary", '{"page": "SECRET"}'),
        Call("send_email", '{"to": "bob@example.com"}'),
    )
    results = (Result("SECRET id"), Result("SECRET page"), Result("Not executed", outcome="not_executed"))
    return (*reads, Exchange(Turn(calls=calls), results))


def ended(stop: str, state: State) -> str:
    match stop:
        case "failed":
            step = fail(state, Failure("model_timeout", "for the operator"), 1.0)
        case "cancelled":
            step = cancel(state, 1.0)
        case "refused":
            step = refuse(state, Turn(finish="refused"), 1.0)
        case _:
            step = end_by_summary(state, stop, 1.0)
    return step.state.stage.text


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("stop", [*sorted(SOFT_STOPS), "failed", "cancelled", "refused"])
@pytest.mark.parametrize("kind", RESULTS)
def test_every_text_could_be_sent_to_a_customer(language: str, stop: str, kind: str) -> None:
    words = PHRASES.get(language, PHRASES["en"])
    for count in (0, 1, 12):
        for errors in (False, True):
            sequence = story(count, RESULTS[kind], errors=errors)
            text = ended(stop, State(language=language, sequence=sequence, tools=TOOLS))

            assert text.startswith(words[stop])
            assert not re.search(r"[{}<>\[\]`#*]|https?:|\bnull\b|_|SECRET|[A-Z]\w+Error", text.replace("(\u00d7", "("))
            lines = [line for line in text.splitlines() if line.strip()]
            assert len(lines) == len(set(lines))
            assert max(map(len, lines)) <= 240
            assert (words["go_on"] in text) == (stop in SOFT_STOPS)
            if count:
                assert f"{words['done']}\n- send an email: to ana@example.com" in text
                assert f"{words['undone']}\n- send an email: to bob@example.com" in text
                assert (words["failed_steps"] in text) == errors
                assert text.count("\n- look at the weather: ") <= 3


def test_a_tools_own_summary_is_what_is_said_of_it() -> None:
    result = Result("sent", said="an email to ana@example.com")
    state = State(sequence=(Exchange(Turn(calls=(Call("send_email"),)), (result,)),), tools=TOOLS)
    assert "- send an email: an email to ana@example.com" in ended("round_limit", state)


def test_a_refusal_after_work_tells_of_it_in_the_models_own_words() -> None:
    play = Play([asks("put"), Turn("I will not do that.", finish="refused", note="refusal")])
    play.run()
    assert play.ended.status == "refused"
    assert play.ended.text == "I will not do that.\n\nWhat was done:\n- put"


def test_a_refusal_without_words_or_work_is_one_sentence() -> None:
    play = Play([Turn(finish="refused")])
    play.run()
    assert play.ended.text == PHRASES["en"]["refused"]


def test_a_reply_that_was_cut_is_kept_to_its_last_whole_sentence() -> None:
    play = Play([Turn("Rome was not built in a day. It took", finish="cut")])
    play.run()
    assert (play.ended.status, play.state.spent.model_calls) == ("token_limit", 1)
    assert play.ended.text == f"Rome was not built in a day.\n\n{PHRASES['en']['cut']}"


def test_a_call_that_was_cut_is_asked_for_once_more_with_twice_the_room() -> None:
    play = Play([Turn("First.", cut_call=True, finish="cut"), says("done")], Limits(max_output_tokens=100))
    play.run()
    assert play.ended.text == "done"
    assert play.requests[1].max_output_tokens == 200


def test_nobodys_own_bound_is_doubled() -> None:
    limits = Limits(max_output_tokens=100, may_double=False)
    play = Play([Turn("First.", cut_call=True, finish="cut"), says("done")], limits)
    play.run()
    assert play.requests[1].max_output_tokens == 100


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("One. Two. Thr", "One. Two."),
        ("No end at all", ""),
        ("A list:\n- one\n- tw", "A list:\n- one"),
        ("Code:\n```py\nx = 1.\ny = ", "Code:"),
        ("Is it 3.14 or 2.7", ""),
        ('He said "go." And th', 'He said "go."'),
        ("今日は晴れです。明日は", "今日は晴れです。"),
    ],
)
def test_what_is_kept_of_a_text_is_whole(text: str, kept: str) -> None:
    assert kept_text(text) == kept


@pytest.mark.parametrize(
    "text",
    [
        "I will now send the email.",
        "Let me look that up…",
        "I'll check",
        "Vou enviar agora o e-mail.",
        "Voy a buscarlo.",
        "Ich werde jetzt die E-Mail senden.",
        "Je vais chercher cela.",
    ],
)
def test_a_closing_text_that_only_announces_counts_as_empty(text: str) -> None:
    assert only_announces(text)
    play = Play([asks("look"), asks("look"), says(text), says(text)], Limits(max_rounds=1))
    play.run()
    assert play.ended.text.startswith(PHRASES["en"]["round_limit"])


@pytest.mark.parametrize(
    "text", ["I will be brief: Rome is sunny.\nShall I go on?", "Rome is sunny.", "Let me know. Bye."]
)
def test_a_closing_text_that_says_something_is_the_answer(text: str) -> None:
    assert not only_announces(text)


def test_a_cancelled_message_is_not_asked_whether_to_go_on() -> None:
    play = Play([asks("put"), says("late")])
    play.run(until=lambda state: state.rounds == 1)
    play.feed(CancelAsked(1.0))
    assert "?" not in play.ended.text


def test_names_and_values_in_words() -> None:
    assert named("sendEmail_to-customer") == "send email to customer"
    assert said(json.dumps({"total": 3, "items": ["a", "b"]})) == "total 3, 2 items"
    assert said(json.dumps(["one", "two"])) == "one, two"
    assert said("42") == "42"
    assert asked('{"a": {"b": 1}, "to": "x@y.z"}') == "to x@y.z"


def test_what_looks_like_json_and_is_none_says_nothing() -> None:
    assert said("{broken") == ""
    assert said('"broken') == '"broken'
    assert asked("{broken") == ""


def test_a_closing_text_that_was_cut_is_kept() -> None:
    play = Play([asks("look"), asks("look"), Turn("Rome is sunny. It", finish="cut")], Limits(max_rounds=1))
    play.run()
    assert play.ended.text == f"Rome is sunny.\n\n{PHRASES['en']['cut']}"


def test_the_models_that_spoke_are_told_in_order() -> None:
    play = Play([asks("look"), says("done")])
    play.run(until=lambda state: state.spent.model_calls == 1)
    event = play.next_event()
    play.feed(replace(event, model="a:1"))
    play.run(until=lambda state: state.spent.model_calls == 2)
    play.feed(replace(play.next_event(), model="b:2"))
    assert play.state.models == ("a:1", "b:2")


def test_what_may_go_better_later_is_told_from_what_needs_somebody() -> None:
    assert retryable("model_timeout")
    assert retryable("rate_limited")
    assert not retryable("credentials")
    assert not retryable("context_overflow")
