"""The ledger of a job: writes and findings, known to the model whatever is trimmed."""

from hypothesis import given, settings
from hypothesis import strategies as st

from roundelay_worker.loop.history import Call, Exchange, Result, Turn
from roundelay_worker.loop.ledger import Recorded, with_ledger, without_ledger


def recorded(name: str, effect: str, result: Result, arguments: str = '{"to": "ana"}') -> Recorded:
    return Exchange(Turn(calls=(Call(name, arguments),)), (result,)), (effect,)  # type: ignore[return-value]


DONE = recorded("send", "write", Result("sent"))
UNKNOWN = recorded("pay", "write", Result("?", is_error=True, outcome="unknown"))
UNDONE = recorded("book", "write", Result("not", outcome="not_executed"))
FOUND = recorded("look", "read", Result("21 degrees"))
FAILED = recorded("look", "read", Result("{}", is_error=True))


def test_it_says_what_was_written_what_may_have_been_what_was_not_and_what_was_found() -> None:
    text = with_ledger("go on", [DONE, UNKNOWN, UNDONE, FOUND, FAILED])
    assert text.split("\n")[1:9] == [
        "Writes done:",
        '- send {"to": "ana"} -> sent',
        "Writes of unknown outcome (check before you repeat them):",
        '- pay {"to": "ana"}',
        "Not done:",
        '- book {"to": "ana"}',
        "Found:",
        '- look {"to": "ana"} -> 21 degrees',
    ]
    assert text.endswith("\n\ngo on")


def test_a_message_that_continues_nothing_is_as_the_user_wrote_it() -> None:
    assert with_ledger("hello", []) == "hello"
    assert with_ledger("hello", [FAILED]) == "hello"


def test_the_newest_facts_are_told_and_each_line_once() -> None:
    facts = [recorded("look", "read", Result(f"fact {n}"), f'{{"n": {n}}}') for n in range(40)]
    text = with_ledger("go on", [*facts, DONE, DONE])
    assert "fact 39" in text
    assert "fact 19" not in text
    assert text.count("- send") == 1


def test_long_arguments_and_results_are_cut_with_a_sign() -> None:
    assert len(with_ledger("x", [recorded("look", "read", Result("y" * 9_999))])) < 900


@given(st.text(), st.lists(st.sampled_from([DONE, UNKNOWN, UNDONE, FOUND, FAILED])))
@settings(deadline=None)
def test_what_the_user_wrote_can_be_told_from_it(text: str, job: list[Recorded]) -> None:
    assert without_ledger(with_ledger(text, job)) == text
