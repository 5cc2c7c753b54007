"""Scripts: what the fake shall answer, written into the user's own text.

A user text that holds ``script: <JSON>`` scripts all replies to it, in whatever process and after whatever
restart the requests arrive. The JSON is a list of steps, or ``{"name", "steps", "closing"}``. The number of the
model's turns since that text is the number of the step; when steps run out the last one repeats. A request that
forbids tools takes ``closing``, or the step that would be next with its calls left out. ``script(...)``
writes such a text.

A step, every key optional:

==================  =============================================================================================
``text``            visible text;  ``thinking``: reasoning before it, signed;  ``redacted``: true: hidden (Anthropic)
``calls``           ``[{"name", "arguments": {...} or "bad_arguments": "raw text" or null, "id"?}]``
``leak``            the calls are leaked as text: true, or a style (hermes, qwen, mistral, llama, dsml, harmony)
``finish``          complete, cut, refused, filtered, paused, malformed, overflow, empty, unknown
``needs``           a reply that is cut unless the request leaves room for so many tokens
``usage``           null for none, or any of ``{"input", "output", "cached", "reasoning"}``
``delay``           seconds before the headers;  ``stall``: seconds of silence after them, ``stall_after`` N events
``drip``            seconds between bits of ``drip_bytes`` (default 16) bytes;  ``pace``: seconds between events
``cut``             no terminal event: true (connection aborted), N (after N events), or "clean" (ended in good order)
``pings``           N signs of life before the content, and ``repeat_piece`` N times ``piece``, ``every`` seconds
``error``           an HTTP error in the service's own words (see ``errors.py``), with ``retry_after`` seconds
``status``          a raw answer, with ``headers`` and ``body`` (JSON, or text sent as HTML)
``in_stream_error``  an error, named as in ``error``, inside a 200
``times``, ``then``  all this for the first N attempts at the step, and ``then`` (a step) afterwards
==================  =============================================================================================
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from hashlib import sha256
from typing import Any, Literal, Self, get_args

from roundelay_worker.testing.fake_llm.ask import Said
from roundelay_worker.testing.fake_llm.errors import KINDS

Ending = Literal["complete", "cut", "refused", "filtered", "paused", "malformed", "overflow", "empty", "unknown"]
Leak = Literal["hermes", "qwen", "mistral", "llama", "dsml", "harmony"]
MARK = "script:"


class ScriptUnreadable(ValueError):
    """A script that is not JSON, or holds words that the fake does not know."""


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    """A call to be made: ``arguments`` is the text that goes over the wire, None a JSON null."""

    name: str
    arguments: str | None = "{}"
    id: str | None = None

    @classmethod
    def read(cls, raw: Any) -> Self:
        """Return the call that a JSON object describes."""
        if not isinstance(raw, dict) or not {"name"} <= raw.keys() <= {"name", "arguments", "bad_arguments", "id"}:
            raise ScriptUnreadable("a call is an object with name, arguments or bad_arguments, and id")
        spoken = json.dumps(raw.get("arguments", {}), ensure_ascii=False)
        return cls(raw["name"], raw.get("bad_arguments", spoken), raw.get("id"))


@dataclass(frozen=True, slots=True)
class Step:
    """One reply, and how it is delivered; the module's docstring says what each word means."""

    text: str = ""
    thinking: str = ""
    redacted: bool = False
    calls: tuple[ScriptedCall, ...] = ()
    leak: bool | Leak = False
    finish: Ending = "complete"
    needs: int = 0
    usage: Mapping[str, int] | None = field(default_factory=dict, hash=False)
    delay: float = 0
    stall: float = 0
    stall_after: int = 0
    drip: float | None = None
    drip_bytes: int = 16
    pace: float = 0
    cut: bool | int | Literal["clean"] = False
    pings: int = 0
    repeat_piece: int = 0
    piece: str = "… "
    every: float = 0.01
    error: str = ""
    retry_after: float | None = None
    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict, hash=False)
    body: Any = field(default=None, hash=False)
    in_stream_error: str = ""
    times: int = 0
    then: "Step | None" = None

    @classmethod
    def read(cls, raw: Any) -> Self:
        """Return the step that a JSON object describes; a misspelt word is an error, not a default."""
        known = {each.name for each in fields(cls)}
        if not isinstance(raw, dict) or not raw.keys() <= known:
            unknown = sorted(raw.keys() - known) if isinstance(raw, dict) else type(raw).__name__
            raise ScriptUnreadable(f"a step is an object without these: {unknown}")
        _refuse_wrong_values(raw, {each.name: each.default for each in fields(cls)})
        calls = tuple(ScriptedCall.read(each) for each in raw.get("calls", ()))
        then = cls.read(raw["then"]) if raw.get("then") is not None else None
        return cls(**{**raw, "calls": calls, "then": then})

    def on_attempt(self, attempt: int) -> "Step":
        """Return what the attempt (1, 2, …) at this step gets."""
        if not self.times or attempt <= self.times:
            return self
        return (self.then or Step(text="ok")).on_attempt(attempt - self.times)


def _refuse_wrong_values(raw: dict[str, Any], usual: Mapping[str, Any]) -> None:
    choices = {
        "finish": get_args(Ending),
        "leak": (True, False, *get_args(Leak)),
        "error": ("", *KINDS),
        "in_stream_error": ("", *(KINDS - {"gateway"})),
    }
    for name, value in raw.items():
        if name in choices and value not in choices[name]:
            raise ScriptUnreadable(f"{name} is one of {', '.join(map(str, choices[name]))}")
        if type(usual[name]) in {int, float} and not isinstance(value, (int, float)):
            raise ScriptUnreadable(f"{name} is a number")
        if type(usual[name]) is str and not isinstance(value, str):
            raise ScriptUnreadable(f"{name} is a text")


@dataclass(frozen=True, slots=True)
class Script:
    """All replies to one user text; ``name`` is what its requests are counted under."""

    name: str
    steps: tuple[Step, ...]
    closing: Step | None = None

    def step(self, turn: int) -> Step:
        """Return the step for the turn (0, 1, …); the last one repeats."""
        return self.steps[min(turn, len(self.steps) - 1)]


def script(*steps: Mapping[str, Any], name: str = "", closing: Mapping[str, Any] | None = None) -> str:
    """Return the words that script the replies to the user text they are put into."""
    whole: dict[str, Any] = {"name": name, "steps": steps}
    return f"{MARK} {json.dumps(whole if closing is None else {**whole, 'closing': closing}, ensure_ascii=False)}"


@lru_cache(maxsize=4096)
def parse(text: str) -> Script:
    """Return the last script that a user text holds; without a name it is called by its fingerprint."""
    found: tuple[Any, str] | None = None
    start = text.find(MARK)
    while start >= 0:
        rest = text[start + len(MARK) :].lstrip()
        raw, end = _decode(rest)
        found = raw, rest[:end]
        text = rest[end:]
        start = text.find(MARK)
    if found is None:
        raise ScriptUnreadable(f"no {MARK} in the text")
    raw, spelt = found
    return _compose(raw if isinstance(raw, dict) else {"steps": raw}, sha256(spelt.encode()).hexdigest()[:12])


def _decode(rest: str) -> tuple[Any, int]:
    try:
        return json.JSONDecoder().raw_decode(rest)
    except json.JSONDecodeError as fault:
        raise ScriptUnreadable(f"not JSON: {fault.msg} at {fault.pos}") from fault


def _compose(raw: dict[str, Any], fingerprint: str) -> Script:
    steps = raw.get("steps")
    if not raw.keys() <= {"name", "steps", "closing"} or not isinstance(steps, list) or not steps:
        raise ScriptUnreadable("a script is a list of steps, or an object with steps, name and closing")
    closing = Step.read(raw["closing"]) if raw.get("closing") is not None else None
    return Script(raw.get("name") or fingerprint, tuple(Step.read(each) for each in steps), closing)


def locate(talk: Sequence[Said]) -> tuple[str, int] | None:
    """Return the last user text that is scripted and the number of the model's turns since, None if there is none.

    Steering text, which stands in one run with results or with the scripted text itself, is looked past; a message
    of the user that has no script is not.
    """
    turns, spoke, answered = 0, False, False
    for said in reversed(talk):
        if said.kind == "model":
            if spoke and not answered:
                return None
            turns, spoke, answered = turns + said.turns, False, False
        elif said.kind == "results":
            answered = True
        elif MARK in said.text:
            return said.text, turns
        else:
            spoke = True
    return None
