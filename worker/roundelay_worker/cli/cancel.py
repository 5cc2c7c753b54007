"""``roundelay cancel``: asks for the end of a message and waits a moment for it."""

import sys
from collections.abc import Mapping
from typing import Final

from roundelay import AnswerTimeout, Client
from roundelay_worker.cli.parser import Options

_PATIENCE: Final = 10.0


def run(options: Options, env: Mapping[str, str]) -> int:  # noqa: ARG001  # the client reads the environment itself
    """Cancel the message; 0 if it is cancelled or about to be, 1 if it had ended."""
    with Client.from_env() as client:
        job = client.get(options.message_id)
        if not job.cancel():
            sys.stderr.write(f"{options.message_id} had ended: {job.wait(_PATIENCE).status}\n")
            return 1
        try:
            sys.stdout.write(f"{options.message_id}: {job.wait(_PATIENCE).status}\n")
        except AnswerTimeout:
            sys.stdout.write(f"{options.message_id}: cancellation asked for; it ends when a worker sees it\n")
        return 0
