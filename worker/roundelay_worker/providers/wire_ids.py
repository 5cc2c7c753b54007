"""Ids and names of calls as providers accept them: never empty, within alphabet and length, ids unique in a request."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from roundelay_worker.loop.history import Call, Exchange, History

_SAFE: Final = re.compile(r"[A-Za-z0-9_-]+\Z")
_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_-]")
_BEGINS_A_NAME: Final = re.compile(r"[A-Za-z_]")
_LONGEST_NAME: Final = 64
_ALPHANUMERIC: Final = re.compile(r"[A-Za-z0-9]+\Z")


@dataclass(frozen=True, slots=True)
class IdRule:
    """What a provider takes for a call's id.

    At most ``longest`` of ``[A-Za-z0-9_-]``; or, where ``exact`` is set, so many letters and digits.
    """

    longest: int = 40
    exact: int = 0

    def accepts(self, wire_id: str) -> bool:
        """Say whether the id may go as it is."""
        if self.exact:
            return len(wire_id) == self.exact and bool(_ALPHANUMERIC.match(wire_id))
        return 0 < len(wire_id) <= self.longest and bool(_SAFE.match(wire_id))

    def made(self, seed: str) -> str:
        """Return an id that this rule accepts, always the same for a seed."""
        digest = sha256(seed.encode(errors="surrogatepass")).hexdigest()
        return digest[: self.exact] if self.exact else f"call_{digest[: min(24, self.longest - 5)]}"


def wire_ids(history: History, rule: IdRule) -> list[tuple[str, ...]]:
    """Return the ids of each entry's calls, in order (none for texts); a longer history keeps the ids of a shorter one.

    An id that is accepted and new stays. Any other is replaced by one made of it and of how often it has come.
    """
    used: set[str] = set()
    seen: dict[str, int] = {}
    ids: list[tuple[str, ...]] = []
    for entry in history:
        calls = entry.turn.calls if isinstance(entry, Exchange) else ()
        ids.append(tuple(_unique(call.wire_id, rule, used, seen) for call in calls))
    return ids


def _unique(wire_id: str, rule: IdRule, used: set[str], seen: dict[str, int]) -> str:
    chosen = wire_id
    while chosen in used or not rule.accepts(chosen):
        seen[wire_id] = seen.get(wire_id, 0) + 1
        chosen = rule.made(f"{wire_id}#{seen[wire_id]}")
    used.add(chosen)
    return chosen


def wire_name(name: str) -> str:
    """Return a call's name as every history may hold it, whatever the model made up; a declared name stays."""
    written = _NOT_IN_NAMES.sub("_", name)[:_LONGEST_NAME] or "unnamed"
    return written if _BEGINS_A_NAME.match(written) else f"_{written}"[:_LONGEST_NAME]


def is_accepted(calls: Sequence[Call], ids: Sequence[str]) -> bool:
    """Say whether a turn may go back in the provider's own words: ids and names of its calls stay as they came."""
    return all(
        call.wire_id == call_id and wire_name(call.name) == call.name for call, call_id in zip(calls, ids, strict=True)
    )
