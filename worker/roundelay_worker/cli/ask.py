"""``roundelay ask``: a message, its progress on stderr, its answer on stdout."""

import sys
from collections.abc import Mapping
from typing import Any, Final

from roundelay import Answer, AnswerTimeout, Client, Job
from roundelay.names import SOFT_STOPS
from roundelay.updates import Ended
from roundelay_worker.cli.parser import Options
from roundelay_worker.cli.progress import Progress

ANSWERED: Final = 0
ENDED_BADLY: Final = 1
STOPPED: Final = 3
TIMED_OUT: Final = 124
INTERRUPTED: Final = 130
_TO_CANCEL: Final = 15.0


def run(options: Options, env: Mapping[str, str]) -> int:  # noqa: ARG001  # the client reads the environment itself
    """Ask and wait; Ctrl-C cancels the message, a second one leaves it running."""
    with Client.from_env() as client:
        text = sys.stdin.read() if options.text == "-" else options.text
        job = client.submit(text, **_wishes(options))
        progress = Progress(sys.stderr)
        progress.say(f"message {job.message_id} in conversation {job.conversation_id}")
        try:
            answer = await_answer(job, progress, options.timeout)
        except AnswerTimeout:
            progress.say(f"no answer after {options.timeout:g} s; it goes on: roundelay show {job.message_id}")
            return TIMED_OUT
        except KeyboardInterrupt:
            return _interrupted(job, progress)
        return told(answer, progress, as_json=options.json)


def await_answer(job: Job, progress: Progress, timeout: float | None) -> Answer:
    """Show the progress of a message up to its end and return its answer; raise AnswerTimeout."""
    for update in job.follow(timeout=timeout):
        progress.show(update)
        if isinstance(update, Ended):
            return update.answer
    return job.wait(timeout)


def told(answer: Answer, progress: Progress, *, as_json: bool) -> int:
    """Write the answer and return the exit code that it has."""
    progress.close()
    if answer.status != "answered":
        why = f" ({answer.error.code}: {answer.error.message})" if answer.error else ""
        progress.say(f"{answer.status.replace('_', ' ')}{why}")
    sys.stdout.write(f"{answer.model_dump_json() if as_json else answer.text}\n")
    sys.stdout.flush()
    if answer.status == "answered":
        return ANSWERED
    return STOPPED if answer.status in SOFT_STOPS else ENDED_BADLY


def _wishes(options: Options) -> dict[str, Any]:
    wishes = {
        "conversation_id": options.conversation,
        "user_id": options.user or None,
        "model": options.model,
        "max_rounds": options.max_rounds,
    }
    return {name: wish for name, wish in wishes.items() if wish is not None}


def _interrupted(job: Job, progress: Progress) -> int:
    progress.say("cancelling (Ctrl-C again: leave it running)")
    try:
        job.cancel()
        return told(job.wait(_TO_CANCEL), progress, as_json=False)
    except AnswerTimeout:
        progress.say(f"the cancellation is asked for; see roundelay show {job.message_id}")
        return ENDED_BADLY
    except KeyboardInterrupt:
        progress.say(f"left alone: roundelay show {job.message_id}")
        return INTERRUPTED
