"""The inside of an isolated tool's process: prepares, waits for one job, does it, and says how it ended."""

import importlib
import os
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from threading import Lock
from typing import Any

from roundelay_worker.loop.history import Call
from roundelay_worker.tools.context import ToolContext
from roundelay_worker.tools.declare.declared import Tool, tools_in
from roundelay_worker.tools.isolation.frames import Frame, pack, receive
from roundelay_worker.tools.run.arguments import read_arguments, with_context
from roundelay_worker.tools.run.calling import call_here
from roundelay_worker.tools.run.results import Outcome, failure
from roundelay_worker.tools.setting_up import call_setup

Send = Callable[[Frame], None]


def main(connection: socket.socket) -> None:
    """Serve one job over ``connection``; what the tool prints goes to stderr."""
    os.dup2(2, 1)
    lock = Lock()

    def send(frame: Frame) -> None:
        with lock:
            connection.sendall(pack(frame))

    prepare = receive(connection)
    failed = "" if prepare is None else _prepare(prepare)
    job = receive(connection)
    if job is not None:
        outcome = _unprepared(failed) if failed else _do(job, send)
        send(_ended(outcome))
    for stream in (sys.stdout, sys.stderr):
        stream.flush()


def _prepare(frame: Frame) -> str:
    """Set up and import ahead of the job; return what failed, '' for nothing."""
    try:
        if frame["setup"]:
            call_setup(frame["setup"])
        for module in frame["modules"]:
            importlib.import_module(module)
    except BaseException as exc:  # noqa: BLE001 - set-up is the project's own code
        return type(exc).__name__
    return ""


def _do(job: Frame, send: Send) -> Outcome:
    try:
        tool = _find(job["module"], job["name"])
    except BaseException as exc:  # noqa: BLE001 - importing runs the project's own code
        return _unprepared(type(exc).__name__)
    arguments = read_arguments(tool, Call(tool.name, job["arguments"]))
    if isinstance(arguments, Outcome):
        return arguments
    context = read_context(job["context"])
    context = replace(context, on_progress=lambda text: send({"kind": "progress", "text": text}))
    send({"kind": "began"})
    return call_here(tool, with_context(tool, arguments, context), job["limit"])


def _find(module: str, name: str) -> Tool:
    found = (tool for tool in tools_in(importlib.import_module(module)) if tool.name == name)
    return next(found)


def _unprepared(reason: str) -> Outcome:
    return failure("tool_failed", f"The tool's process could not be prepared ({reason}).")


def _ended(outcome: Outcome) -> Frame:
    result = outcome.result
    return {
        "kind": "ended",
        "text": result.text,
        "is_error": result.is_error,
        "code": outcome.code,
        "said": result.said,
    }


def write_context(context: ToolContext) -> dict[str, Any]:
    """Return ``context`` as JSON, without its hook."""
    return {
        "message_id": context.message_id,
        "conversation_id": context.conversation_id,
        "user_id": context.user_id,
        "call_id": context.call_id,
        "idempotency_key": context.idempotency_key,
        "deadline": context.deadline.isoformat(),
        "context": context.context,
    }


def read_context(written: dict[str, Any]) -> ToolContext:
    """Return the ToolContext that ``write_context`` wrote."""
    return ToolContext(**written | {"deadline": datetime.fromisoformat(written["deadline"])})
