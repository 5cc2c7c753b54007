"""How a reply goes out: whole and at once, or stalled, dripped, paced, cut."""

import asyncio
from collections.abc import AsyncIterator

import orjson
from aiohttp import web

from roundelay_worker.testing.fake_llm.director import Scene
from roundelay_worker.testing.fake_llm.refusal import Refusal
from roundelay_worker.testing.fake_llm.script import Step

_SSE = "text/event-stream; charset=utf-8"
_JSON = "application/json"


def refused(refusal: Refusal, *, as_list: bool = False) -> web.Response:
    """Return a refusal as a response."""
    headers = dict(refusal.headers)
    if isinstance(refusal.body, str):
        return web.Response(status=refusal.status, text=refusal.body, headers={"content-type": "text/html", **headers})
    body = orjson.dumps([refusal.body] if as_list else refusal.body)
    return web.Response(status=refusal.status, body=body, headers={"content-type": _JSON, **headers})


def raw(step: Step) -> web.Response:
    """Return the raw answer that a step gives."""
    text = isinstance(step.body, str)
    body = step.body.encode() if text else orjson.dumps(step.body)
    headers = {"content-type": "text/html" if text else _JSON, **{k.lower(): v for k, v in step.headers.items()}}
    return web.Response(status=step.status, body=b"" if step.body is None else body, headers=headers)


def json_array(scene: Scene) -> bytes:
    """Return a stream as Gemini sends it without ``alt=sse``: one JSON array of its chunks."""
    chunks = (*scene.reply.content, *scene.reply.closing)
    return b"[" + b",\n".join(chunk.removeprefix(b"data: ").strip() for chunk in chunks) + b"]"


def is_plain(step: Step) -> bool:
    """Say whether nothing odd happens to the bytes of a step."""
    return not (step.stall or step.drip is not None or step.pace or step.cut or step.pings or step.repeat_piece)


class Delivery:
    """One reply on its way; ``sent`` once the client had all of it, so that hanging up is its right."""

    def __init__(self, request: web.Request, scene: Scene) -> None:
        self._request = request
        self._reply = scene.reply
        self._step = scene.step
        self.sent = False

    async def stream(self) -> web.StreamResponse:
        """Send the reply as server-sent events."""
        reply, pings = self._reply, self._step.pings
        response = web.StreamResponse(headers={"content-type": _SSE, "cache-control": "no-cache"})
        await response.prepare(self._request)
        if is_plain(self._step):
            await response.write(b"".join((*reply.opening, *reply.content, *reply.closing)))
            return response
        events = _until_cut(self._step, (*reply.opening, *[reply.ping] * pings, *reply.content), reply.closing)
        await self._send(response, events, range(len(reply.opening), len(reply.opening) + pings))
        return response

    async def whole(self, body: bytes) -> web.StreamResponse:
        """Send a body in one piece."""
        step = self._step
        if is_plain(step):
            return web.Response(body=body, headers={"content-type": _JSON})
        response = web.StreamResponse(headers={"content-type": _JSON})
        await response.prepare(self._request)
        half = body[: len(body) // 2]
        parts = (*[b"\n"] * step.pings, *((half,) if step.cut else (half, body[len(half) :])))
        await self._send(response, parts, range(step.pings))
        return response

    async def _send(self, response: web.StreamResponse, chunks: tuple[bytes, ...], pinged: range) -> None:
        step = self._step
        async for bit in _slowly(step, chunks, pinged):
            await response.write(bit)
        self.sent = True
        if step.stall_after >= len(chunks):
            await asyncio.sleep(step.stall)
        if step.cut and step.cut != "clean" and self._request.transport is not None:
            self._request.transport.abort()


def _until_cut(step: Step, events: tuple[bytes, ...], closing: tuple[bytes, ...]) -> tuple[bytes, ...]:
    if step.cut is False:
        return (*events, *closing)
    return events if step.cut is True or step.cut == "clean" else events[: int(step.cut)]


async def _slowly(step: Step, chunks: tuple[bytes, ...], pinged: range) -> AsyncIterator[bytes]:
    pace = step.pace or (step.every if step.repeat_piece else 0)
    for place, chunk in enumerate(chunks):
        await asyncio.sleep(step.every if place - 1 in pinged else pace if place else 0)
        if place == step.stall_after:
            await asyncio.sleep(step.stall)
        if step.drip is None:
            yield chunk
            continue
        for start in range(0, len(chunk), step.drip_bytes):
            await asyncio.sleep(step.drip)
            yield chunk[start : start + step.drip_bytes]
