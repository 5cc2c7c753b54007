"""Recorded exchanges, a file each below ``ROUNDELAY_RECORDINGS``, and how they are read; without it there are none."""

import json
import os
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from roundelay_worker.loop.history import Turn, TurnUsage
from roundelay_worker.providers.failures import classify
from roundelay_worker.providers.reading import Assembly, BodyReader, TextPiece

Recording = dict[str, Any]

PLACE = os.environ.get("ROUNDELAY_RECORDINGS", "")
NEEDED = pytest.mark.skipif(not PLACE, reason="ROUNDELAY_RECORDINGS is not set")


def files(folder: str) -> list[Path]:
    """Return the recordings of a folder."""
    return sorted(Path(PLACE, folder).glob("*.json")) if PLACE else []


def load(path: Path) -> Recording:
    return json.loads(path.read_text())


def named(folder: str, name: str) -> list[Recording]:
    """Return the exchanges of one recording."""
    return load(Path(PLACE, folder, f"{name}.json"))["exchanges"]


def body_of(exchange: Recording) -> bytes:
    response = exchange["response"]
    return response["sse"].encode() if "sse" in response else json.dumps(response["body"]).encode()


def numbered(folder: str) -> Iterator[Any]:
    """Yield the file of each reply that is a turn, and its number there, as parameters of a test."""
    for path in files(folder):
        for number, exchange in enumerate(load(path)["exchanges"]):
            if _is_turn(path, exchange["response"]):
                yield pytest.param(path, number, id=f"{path.stem}-{number}")


def replies(folder: str) -> Iterator[Any]:
    """Yield each reply that is a turn, as a parameter of a test."""
    for reply in numbered(folder):
        path, number = reply.values
        yield pytest.param(load(path)["exchanges"][number], id=reply.id)


def _is_turn(path: Path, response: Recording) -> bool:
    failed = (response.get("body") or {}).get("error") or "stream-error" in path.stem
    return response["status"] == 200 and not failed


def steps(folder: str, rewritten: Iterable[str]) -> Iterator[Any]:
    """Yield the exchanges of each run of several, but those of recordings whose client rewrote its history."""
    for path in files(folder):
        recording = load(path)
        for run in recording["runs"]:
            if len(run) > 1 and path.stem not in rewritten:
                yield pytest.param([recording["exchanges"][at] for at in run], id=f"{path.stem}-{run[0]}")


def failures(folder: str) -> dict[str, tuple[str, bool, str]]:
    """Return how each recorded error is classified: code, whether it may work later, repair."""
    told = {}
    for path in files(folder):
        for exchange in load(path)["exchanges"]:
            response = exchange["response"]
            if response["status"] >= 400:
                failure = classify(response["status"], response["headers"], body_of(exchange))
                told[path.stem] = (failure.code, failure.retryable, failure.repair)
    return told


def read(assembly: Assembly, body: bytes, cuts: Iterable[int] = ()) -> tuple[Turn, str]:
    """Return the turn of a reply whose bytes come in pieces, cut at these places, and the text that was shown."""
    reader = BodyReader(assembly)
    shown = [
        piece.text
        for start, end in pairwise([0, *sorted(cuts), len(body)])
        for piece in reader.feed(body[start:end])
        if isinstance(piece, TextPiece)
    ]
    return reader.finish(), "".join(shown)


def summary(turn: Turn) -> tuple[Any, ...]:
    """Return how a turn ended, the tools it calls, the length of its text, and its tokens: input, output, reasoning."""
    usage = turn.usage or TurnUsage()
    tokens = (usage.input_tokens, usage.output_tokens, usage.reasoning_tokens)
    return turn.finish, " ".join(call.name for call in turn.calls), len(turn.text), tokens
