"""Ids on the wire: accepted, unique in a request, and the same from one request to the next."""

from hypothesis import given
from hypothesis import strategies as st

from roundelay_worker.loop.history import Call, Exchange, History, Result, Turn, UserText
from roundelay_worker.providers.wire_ids import IdRule, wire_ids, wire_name

RULES = st.sampled_from([IdRule(), IdRule(longest=64), IdRule(exact=9)])
IDS = st.lists(st.lists(st.sampled_from(["", "call_0", "abc123XYZ", "functions.x:0", "é" * 50, "x" * 41]), max_size=4))


def history_of(turns: list[list[str]]) -> History:
    exchanges = [
        Exchange(Turn(calls=tuple(Call("t", wire_id=i) for i in ids)), tuple(Result("r") for _ in ids)) for ids in turns
    ]
    return (UserText("u"), *exchanges)


@given(IDS, RULES)
def test_every_id_is_accepted_and_unique(turns: list[list[str]], rule: IdRule) -> None:
    ids = [i for entry in wire_ids(history_of(turns), rule) for i in entry]

    assert len(ids) == len(set(ids)) == sum(map(len, turns))
    assert all(rule.accepts(i) for i in ids)


@given(IDS, RULES)
def test_a_longer_history_keeps_the_ids_of_a_shorter_one(turns: list[list[str]], rule: IdRule) -> None:
    longer = wire_ids(history_of([*turns, ["call_0", ""]]), rule)

    assert longer[:-1] == wire_ids(history_of(turns), rule)


def test_a_good_id_stays_and_only_its_second_use_is_replaced() -> None:
    _, first, second = wire_ids(history_of([["call_0"], ["call_0"]]), IdRule())

    assert first == ("call_0",)
    assert second != first


def test_a_made_up_name_becomes_one_that_a_history_may_hold() -> None:
    assert wire_name("get_weather") == "get_weather"
    assert wire_name("multi_tool_use.parallel") == "multi_tool_use_parallel"
    assert wire_name("") == "unnamed"
    assert wire_name("3d") == "_3d"
    assert len(wire_name("x" * 200)) == len(wire_name("-" * 64)) == 64
