"""Starts worker processes by fork from one that has imported everything: a start costs a tenth of the CPU.

Reads a line of JSON for each request: ``{"env", "argv", "log"}`` starts a process and is answered by its pid,
``{"pid"}`` is answered by its exit code, or null while it runs. Ends, with all it started, at the end of its input.
"""

import json
import os
import signal
import sys

import celery.bin.celery
import celery.bin.worker
import celery.concurrency.thread
import celery.worker.consumer
import celery.worker.worker
import kombu.transport.redis

import roundelay_worker.store.store
import roundelay_worker.taskqueue.tasks
import roundelay_worker.wiring

__all__ = ["celery", "kombu", "roundelay_worker"]


def main() -> None:
    """Serve until the input ends."""
    alive: set[int] = set()
    codes: dict[int, int] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        if "pid" in asked:
            pid = asked["pid"]
            if pid in alive:
                dead, status = os.waitpid(pid, os.WNOHANG)
                if dead:
                    alive.discard(pid)
                    codes[pid] = os.waitstatus_to_exitcode(status)
            reply = codes.get(pid)
        else:
            reply = os.fork()
            if reply == 0:
                become(**asked)
            alive.add(reply)
        sys.stdout.write(f"{json.dumps(reply)}\n")
        sys.stdout.flush()
    for pid in alive:
        os.killpg(pid, signal.SIGKILL)


def become(env: dict[str, str], argv: list[str], log: str) -> None:
    """Go on as ``celery``; never returns."""
    code = 1
    try:
        os.setsid()
        opened = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for target, source in ((0, nothing), (1, opened), (2, opened)):
            os.dup2(source, target)
        sys.stdin, sys.stdout, sys.stderr = (os.fdopen(n, mode) for n, mode in ((0, "r"), (1, "w"), (2, "w")))
        os.environ.clear()
        os.environ.update(env)
        sys.argv = ["celery", *argv]
        try:
            celery.bin.celery.main()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
            if isinstance(end.code, str):
                sys.stderr.write(f"{end.code}\n")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
