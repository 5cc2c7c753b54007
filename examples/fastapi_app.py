"""The web app on FastAPI: ``pip install roundelay fastapi uvicorn``, then ``uvicorn fastapi_app:app``.

curl -b user=u1 --json '{"text": "How many miles are 42 km?"}' localhost:8000/messages
curl -b user=u1 -N localhost:8000/messages/ID/updates
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Cookie, Depends, FastAPI, Header, Request
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel

from roundelay import (
    AsyncClient,
    AsyncJob,
    IdempotencyConflict,
    InvalidSubmission,
    MessageNotFound,
    ServiceUnavailable,
)

STREAM = {"cache-control": "no-store", "x-accel-buffering": "no"}
"""What keeps a proxy from holding the stream back."""


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Have one client for the whole app."""
    async with AsyncClient.from_env() as app.state.roundelay:
        yield


app = FastAPI(lifespan=lifespan)


class NewMessage(BaseModel):
    """What a browser sends. ``key`` makes a message that is sent twice the same one."""

    text: str
    conversation_id: str | None = None
    key: str | None = None


def signed_in(user: Annotated[str, Cookie()]) -> str:
    """Return who asks: from the session in a real app, never from the body."""
    return user


User = Annotated[str, Depends(signed_in)]


async def own_job(request: Request, message_id: str, user: User) -> AsyncJob:
    """Return the handle of a message of this user; those of others are not found."""
    job: AsyncJob = request.app.state.roundelay.get(message_id)
    if (await job.state()).user_id != user:
        raise MessageNotFound("no such message")
    return job


Own = Annotated[AsyncJob, Depends(own_job)]


@app.post("/messages", status_code=202)
async def submit(request: Request, message: NewMessage, user: User) -> dict[str, str | None]:
    """Store the message and return at once."""
    job = await request.app.state.roundelay.submit(
        message.text, conversation_id=message.conversation_id, user_id=user, idempotency_key=message.key
    )
    return {"message_id": job.message_id, "conversation_id": job.conversation_id}


@app.get("/messages/{message_id}")
async def state(job: Own) -> dict[str, Any]:
    """Return where the message stands."""
    return (await job.state()).model_dump(mode="json")


@app.get("/messages/{message_id}/updates")
async def updates(job: Own, last_event_id: Annotated[int, Header(ge=0)] = 0) -> StreamingResponse:
    """Stream the updates; a browser that reconnects says which one it saw last."""
    return StreamingResponse(events(job, last_event_id), media_type="text/event-stream", headers=STREAM)


async def events(job: AsyncJob, after: int) -> AsyncIterator[str]:
    """Return the updates as server-sent events; those without a number keep the number before."""
    async for update in job.follow(after=after):
        number = f"id: {update.seq}\n" if update.seq else ""
        yield f"{number}event: {update.kind}\ndata: {update.to_json()}\n\n"


@app.delete("/messages/{message_id}", status_code=202)
async def cancel(job: Own) -> dict[str, bool]:
    """Cancel the message; false if it had ended."""
    return {"cancelled": await job.cancel()}


REPLIES = {InvalidSubmission: 422, MessageNotFound: 404, IdempotencyConflict: 409, ServiceUnavailable: 503}


def refuse(_: Request, error: Exception) -> JSONResponse:
    """Tell what was wrong; the texts of these errors are safe to show."""
    status = next(status for kind, status in REPLIES.items() if isinstance(error, kind))
    return JSONResponse({"error": str(error)}, status)


for kind in REPLIES:
    app.add_exception_handler(kind, refuse)
