"""What was said and done: the neutral view that the loop decides by and every wire format is written from.

A turn keeps the provider's own blocks (``native``) beside the neutral view, as the JSON text they came
in, so that reasoning, signatures and unknown blocks go back byte for byte. The neutral view alone is
enough to write a valid history for any provider.
"""

from dataclasses import dataclass, field
from typing import Literal

Finish = Literal["complete", "cut", "paused", "refused", "overflow", "malformed", "unknown"]
"""How a reply ended, in the loop's terms.

complete   whole, whatever the provider calls it (stop, end_turn, tool_use, tool_calls, STOP …)
cut        the output limit was reached; nothing in it may run
paused     the provider wants the same history back to go on (pause_turn)
refused    the provider or the model declined; the same request would be declined again
overflow   the context window was reached while writing; to be treated as an overflow, not as a cut
malformed  the reply is not usable as it is, but another attempt may be: a malformed call, calls leaked as text
unknown    a terminal value that this version does not know
"""

Effect = Literal["read", "write"]

Outcome = Literal["done", "not_executed", "unknown"]
"""What became of a call: it ran (well or with an error), it was never run, or nobody can say."""


@dataclass(frozen=True, slots=True)
class Call:
    """One tool request.

    ``arguments`` is the JSON text of an object, as the model wrote it (``{}`` for none). ``fault`` says
    why the arguments cannot be read as a JSON object ('' if they can); then ``arguments`` is ``{}`` and
    the call gets an error result. ``wire_id`` is the provider's id, '' where there was none; it is never a key.
    """

    name: str
    arguments: str = "{}"
    wire_id: str = ""
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """What a call brought: a string, or the JSON text of an error object if ``is_error``."""

    text: str
    is_error: bool = False
    outcome: Outcome = "done"
    said: str = field(default="", compare=False)
    """What the tool's own ``summary`` says of the call to a person; '' where it has none, or is private."""
    at: float | None = field(default=None, compare=False)
    """When the call began, in seconds since the epoch; None for one that did not, or is only told of."""
    seconds: float | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Native:
    """A turn in the provider's own blocks, verbatim JSON text; valid for exactly this ``origin``.

    ``origin`` is ``format:model@base_url``: opaque parts hold for nothing else.
    """

    origin: str
    blocks: str


@dataclass(frozen=True, slots=True)
class TurnUsage:
    """Tokens of one reply: input includes cached and cache-write tokens, output includes reasoning."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Turn:
    """One reply of the model. ``usage`` is None where the provider did not tell."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    finish: Finish = "complete"
    usage: TurnUsage | None = None
    native: Native | None = None
    cut_call: bool = False
    """A call was being written when the output limit cut the reply."""
    note: str = ""
    """The provider's own word for how it ended, for logs and ``roundelay show``."""


@dataclass(frozen=True, slots=True)
class UserText:
    """What a user said."""

    text: str


@dataclass(frozen=True, slots=True)
class AssistantText:
    """The answer to an earlier message."""

    text: str


@dataclass(frozen=True, slots=True)
class Exchange:
    """A turn and exactly one result for each of its calls, in the order of the calls.

    Without calls it is a paused turn, which goes back as it came. ``note`` is for the model, to be
    read with the last result; it is no part of the result.
    """

    turn: Turn
    results: tuple[Result, ...] = ()
    note: str = ""


Entry = UserText | AssistantText | Exchange
History = tuple[Entry, ...]
