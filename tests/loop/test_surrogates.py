"""Halves of characters, joined where they meet and replaced where they are alone."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roundelay_worker.loop.surrogates import TextJoiner, readable, readable_json, readable_value

HALVES = st.text(st.characters(codec=None, categories=["L", "Cs", "So"]))


@given(HALVES)
@settings(deadline=None)
def test_what_is_readable_can_be_written(text: str) -> None:
    readable(text).encode()
    readable_json(json.dumps({"a": text})).encode()
    json.loads(readable_json(json.dumps({"a": text})))["a"].encode()


@given(HALVES, st.integers(0, 20))
@settings(deadline=None)
def test_pieces_say_what_the_whole_says(text: str, cut: int) -> None:
    joiner = TextJoiner()
    shown = joiner.feed(text[:cut]) + joiner.feed(text[cut:]) + joiner.feed(".")
    assert shown == readable(text + ".")


@pytest.mark.parametrize(
    ("escaped", "text"),
    [
        (r'"\ud83d\ude00"', "\U0001f600"),
        (r'"a\ud83d"', "a\ufffd"),
        (r'"\ude00a"', "\ufffda"),
        (r'"\\ud83d"', r"\ud83d"),
        ('"plain"', "plain"),
    ],
)
def test_escapes_in_json_are_mended(escaped: str, text: str) -> None:
    assert json.loads(readable_json(escaped)) == text


def test_all_strings_of_a_value_are_mended() -> None:
    assert readable_value({"\ud83d": ["\ude00", ("x", 1, None)]}) == {"\ufffd": ["\ufffd", ["x", 1, None]]}


def test_a_first_half_at_the_end_of_a_piece_waits_for_the_next() -> None:
    joiner = TextJoiner()
    assert [joiner.feed(piece) for piece in ("a\ud83d", "\ude00b", "\ud83d", "c")] == [
        "a",
        "\U0001f600b",
        "",
        "\ufffdc",
    ]
