"""Signatures that the fake issues with its reasoning, and knows again when they come back.

A seal is opaque text. It names the model that thought, the digest of the turn it belongs to and its place
in that turn, so that any process of the fake, also one started later, can tell whether a turn came back
unchanged. Call ids of a turn that had reasoning carry a mark, so that reasoning left out is seen as well.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from dataclasses import asdict, dataclass
from hashlib import sha256
from hmac import compare_digest
from hmac import digest as keyed_digest
from typing import Any, Literal

import orjson

from roundelay_worker.testing.fake_llm.refusal import Format

_KEY = b"the fake's own; it guards tests and nothing else"
_HEAD = "gAAAAABf"
_MAC = 16
_NOT_BOUND = re.compile(r"[^A-Za-z0-9]")
_BOUND = 60


@dataclass(frozen=True, slots=True)
class Seal:
    """What a signature vouches for.

    ``place`` and ``size`` are the signed item's position in its turn and the number of items of that turn,
    ``item`` and ``turn`` their digests. A ``draft`` is what a stream shows before an item is done.
    """

    format: Format
    model: str
    item: str
    turn: str
    place: int = 0
    size: int = 1
    state: Literal["done", "draft"] = "done"


def digest(value: Any) -> str:
    """Return a short digest of a JSON value that does not depend on the order of keys."""
    return sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]


def bound_name(name: Any) -> str:
    """Return what a seal holds of a call's name: how one that no history may hold is written is the client's choice."""
    return _NOT_BOUND.sub("", str(name or ""))[:_BOUND]


def sign(seal: Seal) -> str:
    """Return the opaque text of a seal."""
    claims = orjson.dumps(asdict(seal))
    return _HEAD + urlsafe_b64encode(_mac(claims) + claims).decode().rstrip("=")


def read(text: Any) -> Seal | None:
    """Return the seal behind a text, None if this fake did not issue it or it was changed."""
    if not isinstance(text, str) or not text.startswith(_HEAD):
        return None
    try:
        raw = urlsafe_b64decode(text[len(_HEAD) :] + "==")
    except (NotBase64, ValueError):
        return None
    mac, claims = raw[:_MAC], raw[_MAC:]
    return Seal(**orjson.loads(claims)) if compare_digest(mac, _mac(claims)) else None


def mark(wire: Format, model: str) -> str:
    """Return the mark that call ids of a turn with reasoning carry, for exactly this model."""
    return "Th" + sha256(f"{wire}:{model}".encode()).hexdigest()[:6]


def _mac(claims: bytes) -> bytes:
    return keyed_digest(_KEY, claims, "sha256")[:_MAC]
