"""The web app on Flask: ``pip install roundelay flask``, then ``flask --app flask_app run``.

curl -b user=u1 --json '{"text": "How many miles are 42 km?"}' localhost:5000/messages
curl -b user=u1 -N localhost:5000/messages/ID/updates
"""

from collections.abc import Iterator
from typing import Any

from flask import Flask, Response, abort, request

from roundelay import Client, IdempotencyConflict, InvalidSubmission, Job, MessageNotFound, ServiceUnavailable

app = Flask(__name__)
client = Client.from_env()  # connects at its first use, and survives a fork

STREAM = {"cache-control": "no-store", "x-accel-buffering": "no"}
"""What keeps a proxy from holding the stream back."""


def signed_in() -> str:
    """Return who asks: from the session in a real app, never from the body."""
    return request.cookies.get("user") or abort(401)


def own_job(message_id: str) -> Job:
    """Return the handle of a message of this user; those of others are not found."""
    job = client.get(message_id)
    if job.state().user_id != signed_in():
        raise MessageNotFound("no such message")
    return job


@app.post("/messages")
def submit() -> tuple[dict[str, Any], int]:
    """Store the message and return at once."""
    body = request.get_json()
    if not isinstance(body, dict):
        raise InvalidSubmission("the body is a JSON object with the text")
    job = client.submit(
        body.get("text", ""),
        conversation_id=body.get("conversation_id"),
        user_id=signed_in(),
        idempotency_key=body.get("key"),
    )
    return {"message_id": job.message_id, "conversation_id": job.conversation_id}, 202


@app.get("/messages/<message_id>")
def state(message_id: str) -> dict[str, Any]:
    """Return where the message stands."""
    return own_job(message_id).state().model_dump(mode="json")


@app.get("/messages/<message_id>/updates")
def updates(message_id: str) -> Response:
    """Stream the updates; a browser that reconnects says which one it saw last."""
    last = request.headers.get("last-event-id", "0")
    after = int(last) if last.isdecimal() else 0
    return Response(events(own_job(message_id), after), mimetype="text/event-stream", headers=STREAM)


def events(job: Job, after: int) -> Iterator[str]:
    """Return the updates as server-sent events; those without a number keep the number before."""
    for update in job.follow(after=after):
        number = f"id: {update.seq}\n" if update.seq else ""
        yield f"{number}event: {update.kind}\ndata: {update.to_json()}\n\n"


@app.delete("/messages/<message_id>")
def cancel(message_id: str) -> tuple[dict[str, Any], int]:
    """Cancel the message; false if it had ended."""
    return {"cancelled": own_job(message_id).cancel()}, 202


REPLIES = {InvalidSubmission: 422, MessageNotFound: 404, IdempotencyConflict: 409, ServiceUnavailable: 503}


def refuse(error: Exception) -> tuple[dict[str, Any], int]:
    """Tell what was wrong; the texts of these errors are safe to show."""
    return {"error": str(error)}, next(status for kind, status in REPLIES.items() if isinstance(error, kind))


for kind in REPLIES:
    app.register_error_handler(kind, refuse)
