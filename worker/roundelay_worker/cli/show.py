"""``roundelay show``: what became of a message, from the database, also when Redis has long forgotten it."""

import asyncio
import json
import sys
from collections.abc import Mapping

from roundelay import Answer, Update
from roundelay_worker.cli.drawing import lines
from roundelay_worker.cli.parser import Options
from roundelay_worker.cli.timeline import Span, spans
from roundelay_worker.settings import Settings
from roundelay_worker.store.records import Publication
from roundelay_worker.store.store import Store


def run(options: Options, env: Mapping[str, str]) -> int:
    """Show the message; 1 if the database does not know it."""
    found = asyncio.run(read_publication(Settings.from_env(env), options.message_id))
    if found is None:
        sys.stderr.write(f"the database knows no message {options.message_id} (not accepted yet, or pruned)\n")
        return 1
    updates = [Update.model_validate_json(body) for _, body in found.updates]
    answer = Answer.model_validate_json(found.answer) if found.answer else None
    sys.stdout.write(_as_json(spans(updates), answer) if options.json else "\n".join(lines(updates, answer)))
    sys.stdout.write("\n")
    return 0


async def read_publication(settings: Settings, message_id: str) -> Publication | None:
    """Return all that a message has told so far."""
    store = await Store.open(settings.database_url)
    try:
        return await store.publication(message_id, 0)
    finally:
        await store.close()


def _as_json(found: list[Span], answer: Answer | None) -> str:
    whole = {"spans": [span.as_json() for span in found], "answer": answer.model_dump(mode="json") if answer else None}
    return json.dumps(whole, ensure_ascii=False)
