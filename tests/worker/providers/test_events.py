"""Server-sent events from bytes that are cut anywhere."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundelay_worker.providers.base import ModelFailure
from roundelay_worker.providers.events import COMMENT, EventReader, ServerEvent

STREAM = '\ufeffevent: one\r\ndata: é\r\ndata: zwei\r\n\r\n: hey\ndata:{"a":1}  \n\nid: 7\rdata:\rdata: x\r\rdata: rest'
EVENTS = [
    ServerEvent("one", "é\nzwei"),
    ServerEvent(COMMENT, "hey"),
    ServerEvent("message", '{"a":1}  '),
    ServerEvent("message", "\nx"),
    ServerEvent("message", "rest"),
]


@given(st.lists(st.integers(0, len(STREAM.encode())), max_size=10))
def test_the_same_events_come_wherever_the_bytes_are_cut(cuts: list[int]) -> None:
    payload = STREAM.encode()
    edges = [0, *sorted(cuts), len(payload)]
    reader = EventReader()

    events = [e for at, to in zip(edges, edges[1:], strict=False) for e in reader.feed(payload[at:to])]  # noqa: RUF007

    assert [*events, *reader.close()] == EVENTS


def test_an_event_without_data_is_a_sign_of_life_and_no_event() -> None:
    assert list(EventReader().feed(b"event: ping\n\n\n\ndata: x\n\n")) == [
        ServerEvent(COMMENT, "ping"),
        ServerEvent("message", "x"),
    ]


def test_bytes_that_are_no_utf8_do_not_stop_the_stream() -> None:
    assert list(EventReader().feed(b"data: \xff!\n\n")) == [ServerEvent("message", "\ufffd!")]


def test_a_line_is_kept_until_it_is_whole_and_not_longer_than_the_limit() -> None:
    reader = EventReader(limit=100)
    assert list(reader.feed(b"data: " + b"x" * 90)) == []

    with pytest.raises(ModelFailure):
        list(reader.feed(b"x" * 20))


def test_many_lines_of_one_event_are_bounded_too() -> None:
    with pytest.raises(ModelFailure):
        list(EventReader(limit=100).feed(b"data: xxxxxxxxx\n" * 20))


def test_the_limit_is_for_one_event_not_for_the_stream() -> None:
    reader = EventReader(limit=100)

    assert len([event for _ in range(50) for event in reader.feed(b"data: " + b"x" * 50 + b"\n\n")]) == 50


def test_what_came_before_a_line_without_bounds_is_read_wherever_the_bytes_are_cut() -> None:
    for cut in (0, 3, 9, 50):
        reader, stream = EventReader(limit=100), b"data: x\n\n" + b"data: " + b"y" * 200
        seen: list[ServerEvent] = []

        with pytest.raises(ModelFailure):
            seen.extend(event for part in (stream[:cut], stream[cut:]) for event in reader.feed(part))

        assert seen == [ServerEvent("message", "x")]
