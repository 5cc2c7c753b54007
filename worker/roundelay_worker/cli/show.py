"""``roundelay show``: what became of a message, from the database, also when Redis has long forgotten it."""

import asyncio
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict

from roundelay import Answer, Update
from roundelay_worker.cli.drawing import lines
from roundelay_worker.cli.parser import Options
from roundelay_worker.cli.storing import opened
from roundelay_worker.cli.timeline import Span, spans
from roundelay_worker.settings import Settings
from roundelay_worker.store.records import Timeline


def run(options: Options, env: Mapping[str, str]) -> int:
    """Show the message; 1 if the database does not know it."""
    found = asyncio.run(_read(Settings.from_env(env), options.message_id))
    if found is None:
        sys.stderr.write(f"the database knows no message {options.message_id} (not accepted yet, or pruned)\n")
        return 1
    updates = [Update.model_validate_json(body) for _, body in found.updates]
    answer = Answer.model_validate_json(found.answer) if found.answer else None
    told = _as_json(found, spans(updates), answer) if options.json else "\n".join(lines(updates, answer))
    sys.stdout.write(f"{told}\n")
    return 0


async def _read(settings: Settings, message_id: str) -> Timeline | None:
    async with opened(settings) as store:
        return await store.timeline(message_id)


def _as_json(found: Timeline, timed: list[Span], answer: Answer | None) -> str:
    """Everything that the database has, the calls' arguments and results included: it is the operator who asks."""
    whole = {
        "message_id": found.message_id,
        "conversation_id": found.conversation_id,
        "user_id": found.user_id,
        "status": found.status,
        "owner": found.owner,
        "losses": found.losses,
        "spans": [asdict(span) for span in timed],
        "turns": [asdict(turn) for turn in found.turns],
        "answer": answer.model_dump(mode="json") if answer else None,
    }
    return json.dumps(whole, ensure_ascii=False)
