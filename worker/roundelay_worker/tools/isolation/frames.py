"""The frames between the worker and an isolated tool's process: four bytes of length, then JSON."""

import asyncio
import json
import socket
import struct
from typing import Any, Final

Frame = dict[str, Any]
"""``kind`` says which: prepare and job (to the child); began, progress and ended (from it)."""

LONGEST_FRAME: Final = 256 * 1024 * 1024
_LENGTH: Final = struct.Struct(">I")


class BrokenFrame(Exception):
    """What came is no frame: somebody else wrote to the socket."""


def pack(frame: Frame) -> bytes:
    """Return the bytes of ``frame``."""
    body = json.dumps(frame).encode()
    return _LENGTH.pack(len(body)) + body


def receive(connection: socket.socket) -> Frame | None:
    """Return the next frame from a blocking socket, or None if the other side has closed it."""
    head = _exactly(connection, _LENGTH.size)
    body = head and _exactly(connection, _length(head))
    return _parse(body) if body else None


async def read_frame(reader: asyncio.StreamReader) -> Frame | None:
    """Return the next frame, or None if the other side has closed or died."""
    try:
        head = await reader.readexactly(_LENGTH.size)
        return _parse(await reader.readexactly(_length(head)))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


def _exactly(connection: socket.socket, count: int) -> bytes:
    received = bytearray()
    while len(received) < count:
        piece = connection.recv(count - len(received))
        if not piece:
            return b""
        received += piece
    return bytes(received)


def _length(head: bytes) -> int:
    (length,) = _LENGTH.unpack(head)
    if length > LONGEST_FRAME:
        raise BrokenFrame
    return int(length)


def _parse(body: bytes) -> Frame:
    try:
        frame = json.loads(body)
    except ValueError as exc:
        raise BrokenFrame from exc
    if not isinstance(frame, dict):
        raise BrokenFrame
    return frame
