import string
from itertools import product

from hypothesis import example, given
from hypothesis import strategies as st

from roundelay_worker.loop.history import Result
from roundelay_worker.tools.run.sharing import share_bytes
from roundelay_worker.tools.run.truncation import MARKER, shorten, size

texts = st.one_of(
    st.text(max_size=300),
    st.text(alphabet="aé€😀", max_size=400),
    st.integers(0, 3000).map(lambda length: "x" * length),
)
outcomes = st.sampled_from(["done", "not_executed", "unknown"])
results = st.lists(st.builds(Result, texts, st.booleans(), outcomes), max_size=8)


@given(results, st.integers(0, 6000))
@example([Result("a" * 100), Result("é" * 100, is_error=True)], 0)
def test_the_total_fits_wherever_errors_and_markers_leave_room(given_results, limit):
    shared = share_bytes(given_results, limit)
    floor = sum(size(r.text) if r.is_error else min(size(r.text), len(MARKER)) for r in given_results)
    assert sum(size(r.text) for r in shared) <= max(limit, floor)


@given(results, st.integers(0, 6000))
def test_errors_and_order_and_flags_stay_and_nothing_grows(given_results, limit):
    shared = share_bytes(given_results, limit)
    assert [(r.is_error, r.outcome) for r in shared] == [(r.is_error, r.outcome) for r in given_results]
    for before, after in zip(given_results, shared, strict=True):
        assert size(after.text) <= size(before.text)
        if before.is_error:
            assert after == before


@given(results, st.integers(0, 6000))
def test_the_largest_are_cut_first(given_results, limit):
    shared = share_bytes(given_results, limit)
    plain = [(b, a) for b, a in zip(given_results, shared, strict=True) if not b.is_error]
    cut = [size(before.text) for before, after in plain if after != before]
    whole = [size(before.text) for before, after in plain if after == before]
    assert not cut or not whole or min(cut) >= max(whole, default=0) or max(whole) <= len(MARKER)


@given(results, st.integers(0, 6000))
def test_the_same_input_gives_the_same_bytes_and_a_second_sharing_changes_nothing(given_results, limit):
    shared = share_bytes(given_results, limit)
    assert share_bytes(list(given_results), limit) == shared
    if sum(size(r.text) for r in shared) <= limit:
        assert share_bytes(shared, limit) == shared


@given(results)
def test_what_fits_is_not_touched(given_results):
    total = sum(size(r.text) for r in given_results)
    assert share_bytes(given_results, total) == tuple(given_results)


def test_every_small_combination_fits_and_wastes_little():
    for lengths in product([0, 1, 5, 6, 39, 40, 41, 200, 1000], repeat=3):
        given_results = [Result("x" * length) for length in lengths]
        for limit in (0, 15, 60, 120, 300, 900, 1500):
            total = sum(len(r.text.encode()) for r in share_bytes(given_results, limit))
            assert total <= max(limit, sum(min(length, len(MARKER)) for length in lengths)), (lengths, limit)
            if sum(lengths) > limit >= 300:
                assert total >= limit * 0.6, (lengths, limit)


def test_a_cut_text_is_three_quarters_head_and_one_quarter_tail_with_the_count():
    text = "".join(string.ascii_letters[n % 52] for n in range(10_000))
    [shared] = share_bytes([Result(text)], 1000)
    head, note, tail = shared.text.split("\n")
    assert text.startswith(head)
    assert text.endswith(tail)
    assert abs(len(head) - 3 * len(tail)) <= 3
    assert note == f"[… {10_000 - len(head) - len(tail)} bytes left out …]"
    assert 990 <= size(shared.text) <= 1000


@given(st.text(alphabet="aé€😀", min_size=50, max_size=300), st.integers(40, 400))
def test_cuts_fall_between_characters(text, room):
    cut = shorten(text, room)
    if cut not in {text, MARKER}:
        head, note, tail = cut.split("\n")
        assert text.startswith(head)
        assert text.endswith(tail)
        left_out = size(text) - size(head) - size(tail)
        assert note == f"[… {left_out} bytes left out …]"


def test_one_large_result_does_not_cost_the_small_ones_a_byte():
    small, large = Result("s" * 1000), Result("l" * 300_000)
    shared = share_bytes([small, large, small], 65_536)
    assert (shared[0], shared[2]) == (small, small)
    assert 63_000 < size(shared[1].text) <= 63_536


def test_four_large_results_share_one_limit():
    shared = share_bytes([Result(letter * 300_000) for letter in "abcd"], 65_536)
    assert {size(r.text) for r in shared} <= set(range(16_300, 16_385))


def test_lone_surrogates_do_not_break_the_cut():
    [cut] = share_bytes([Result("\ud800" * 1000)], 500)
    assert size(cut.text) <= 500
