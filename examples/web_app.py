"""A web app of one file, on ASGI alone: POST /messages, GET /messages/{id}/updates (server-sent events), DELETE.

With ``roundelay up`` running: ``uvicorn web_app:app``, then

    curl -b user=u1 -d '{"text": "How many miles are 42 km?"}' localhost:8000/messages
    curl -b user=u1 -N localhost:8000/messages/ID/updates

The message runs in a worker. A browser that loses its connection reconnects with the Last-Event-ID that it saw
last and misses nothing; closing the connection does not end the message, DELETE does.
"""

import json
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import SimpleCookie
from typing import Any

from roundelay import (
    AsyncClient,
    AsyncJob,
    IdempotencyConflict,
    InvalidSubmission,
    MessageNotFound,
    MessageState,
    ServiceUnavailable,
)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer one request."""
    if scope["type"] == "lifespan":
        await _lifespan(scope, receive, send)
        return
    try:
        await _answer(scope, receive, send)
    except (InvalidSubmission, ValueError) as exc:
        await _json(send, 422, {"error": str(exc)})
    except MessageNotFound as exc:
        await _json(send, 404, {"error": str(exc)})
    except IdempotencyConflict as exc:
        await _json(send, 409, {"error": str(exc)})
    except ServiceUnavailable:
        await _json(send, 503, {"error": "try again in a moment; nothing was accepted"})


async def _answer(scope: Scope, receive: Receive, send: Send) -> None:
    client: AsyncClient = scope["state"]["roundelay"]
    path, user = scope["path"].strip("/").split("/"), _signed_in(scope)
    match scope["method"], path:
        case _ if not user:
            await _json(send, 401, {"error": "nobody is signed in"})
        case "POST", ["messages"]:
            await _submit(client, user, json.loads(await _body(receive)), send)
        case "GET", ["messages", message_id]:
            await _json(send, 200, (await _state(client.get(message_id), user)).model_dump(mode="json"))
        case "GET", ["messages", message_id, "updates"]:
            await _updates(client.get(message_id), user, _last_seen(scope), send)
        case "DELETE", ["messages", message_id]:
            await _state(client.get(message_id), user)
            await _json(send, 202, {"cancelled": await client.get(message_id).cancel()})
        case _:
            await _json(send, 404, {"error": "no such place"})


async def _submit(client: AsyncClient, user: str, body: Any, send: Send) -> None:
    if not isinstance(body, dict) or "text" not in body:
        raise ValueError("the body is a JSON object with the text")
    job = await client.submit(
        body["text"], conversation_id=body.get("conversation_id"), user_id=user, idempotency_key=body.get("key")
    )
    await _json(send, 202, {"message_id": job.message_id, "conversation_id": job.conversation_id})


async def _state(job: AsyncJob, user: str) -> MessageState:
    """Return where a message of this user stands; those of others are not found."""
    state = await job.state()
    if state.user_id != user:
        raise MessageNotFound("no such message")
    return state


async def _updates(job: AsyncJob, user: str, after: int, send: Send) -> None:
    await _state(job, user)  # an unknown message is a 404, not an empty stream
    await _start(send, 200, "text/event-stream")
    async for update in job.follow(after=after):
        number = f"id: {update.seq}\n" if update.seq else ""
        event = f"{number}event: {update.kind}\ndata: {update.to_json()}\n\n"
        await send({"type": "http.response.body", "body": event.encode(), "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _lifespan(scope: Scope, receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            scope["state"]["roundelay"] = AsyncClient.from_env()
            await send({"type": "lifespan.startup.complete"})
        else:
            await scope["state"]["roundelay"].close()
            await send({"type": "lifespan.shutdown.complete"})
            return


async def _body(receive: Receive) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    return body


def _signed_in(scope: Scope) -> str:
    """Return who asks: from the session in a real app, never from the body."""
    cookie = SimpleCookie(dict(scope["headers"]).get(b"cookie", b"").decode("latin-1"))
    return cookie["user"].value if "user" in cookie else ""


def _last_seen(scope: Scope) -> int:
    headers = dict(scope["headers"])
    value: bytes = headers.get(b"last-event-id", b"0")
    return int(value) if value.isdigit() else 0


async def _start(send: Send, status: int, kind: str) -> None:
    headers = [(b"content-type", kind.encode()), (b"cache-control", b"no-store"), (b"x-accel-buffering", b"no")]
    await send({"type": "http.response.start", "status": status, "headers": headers})


async def _json(send: Send, status: int, value: Any) -> None:
    await _start(send, status, "application/json")
    await send({"type": "http.response.body", "body": json.dumps(value).encode()})
