"""The updates of one save are one row: most saves bring four, and a row each cost more than all else a save writes.

A row has the number of its first update, and the updates as lines: JSON has no line break of its own.
"""

from collections.abc import Iterator, Sequence

from roundelay_worker.store.driver import Rows


def folded(updates: Sequence[tuple[int, str]]) -> tuple[tuple[int, str], ...]:
    """Return the one row of consecutive updates; no row for none."""
    return ((updates[0][0], "\n".join([body for _, body in updates])),) if updates else ()


def unfolded(rows: Rows, after_seq: int) -> Iterator[tuple[int, str]]:
    """Yield the updates after ``after_seq``, in order."""
    for row in rows:
        for seq, body in enumerate(row["body"].split("\n"), row["seq"]):
            if seq > after_seq:
                yield seq, body
