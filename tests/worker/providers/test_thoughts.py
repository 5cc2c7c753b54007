"""Reasoning inside the text is never seen, however its tags are cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundelay_worker.providers.thoughts import ThoughtFilter, without_thoughts

CASES = [
    ("<think>a < b</think>\n\nYes.", "Yes."),
    ("\n <think>one</think><think>two</think>Yes.", "Yes."),
    ("<thinking>hm</thinking> Yes.", "Yes."),
    ("<think>never closed", ""),
    ("Use <think> and </think> tags.", "Use <think> and </think> tags."),
    ("<b>bold</b>", "<b>bold</b>"),
    ("<thi", "<thi"),
    ("", ""),
    ("<think></think>", ""),
]


def filtered(pieces: list[str]) -> str:
    thoughts = ThoughtFilter()
    seen = "".join(thoughts.feed(piece)[0] for piece in pieces)
    return seen + thoughts.close()


@pytest.mark.parametrize(("text", "seen"), CASES)
def test_the_block_that_opens_a_text_is_left_out_and_no_other(text: str, seen: str) -> None:
    assert without_thoughts(text) == seen


@given(st.sampled_from(CASES), st.lists(st.integers(0, 60), max_size=6))
def test_pieces_show_the_same_as_the_whole(case: tuple[str, str], cuts: list[int]) -> None:
    text, seen = case
    edges = [0, *sorted(cuts), len(text)]

    assert filtered([text[at:to] for at, to in zip(edges, edges[1:], strict=False)]) == seen  # noqa: RUF007


def test_thinking_is_reported_as_it_comes() -> None:
    thoughts = ThoughtFilter()

    assert thoughts.feed("<think>well") == ("", "well")
    assert thoughts.feed(" yes</th") == ("", " yes")
    assert thoughts.feed("ink>\nNo") == ("No", "")
    assert thoughts.feed("<think>") == ("<think>", "")


def test_what_a_closing_tag_alone_on_its_line_ends_was_thought() -> None:
    assert without_thoughts("Let me see.\n</think>\n\nYes.") == "Yes."
    assert without_thoughts("The tag `</think>` ends it.") == "The tag `</think>` ends it."
