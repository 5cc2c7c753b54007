"""How a reply goes out: whole and at once, or stalled, dripped, paced, cut."""

import asyncio
from collections.abc import AsyncIterator, Iterable

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


async def stream(request: web.Request, scene: Scene) -> web.StreamResponse:
    """Send a reply as server-sent events."""
    reply, step = scene.reply, scene.step
    response = web.StreamResponse(headers={"content-type": _SSE, "cache-control": "no-cache"})
    await response.prepare(request)
    if is_plain(step):
        await response.write(b"".join((*reply.opening, *reply.content, *reply.closing)))
        return response
    body = _until_cut(step, (*reply.opening, *[reply.ping] * step.pings, *reply.content), reply.closing)
    async for chunk in _slowly(step, body, pinged=range(len(reply.opening), len(reply.opening) + step.pings)):
        await response.write(chunk)
    _hang_up(request, step)
    return response


async def whole(request: web.Request, scene: Scene, body: bytes) -> web.StreamResponse:
    """Send a reply in one piece."""
    step = scene.step
    if is_plain(step):
        return web.Response(body=body, headers={"content-type": _JSON})
    response = web.StreamResponse(headers={"content-type": _JSON})
    await response.prepare(request)
    half = body[: len(body) // 2]
    parts = [b"\n"] * step.pings + ([half] if step.cut else [half, body[len(half) :]])
    async for chunk in _slowly(step, parts, pinged=range(step.pings)):
        await response.write(chunk)
    _hang_up(request, step)
    return response


def _until_cut(step: Step, events: tuple[bytes, ...], closing: tuple[bytes, ...]) -> tuple[bytes, ...]:
    if step.cut is False:
        return (*events, *closing)
    return events if step.cut is True or step.cut == "clean" else events[: int(step.cut)]


def _hang_up(request: web.Request, step: Step) -> None:
    if step.cut and step.cut != "clean" and request.transport is not None:
        request.transport.abort()


async def _slowly(step: Step, chunks: Iterable[bytes], pinged: range) -> AsyncIterator[bytes]:
    pace = step.pace or (step.every if step.repeat_piece else 0)
    place = -1
    for place, chunk in enumerate(chunks):
        if step.stall and place == step.stall_after:
            await asyncio.sleep(step.stall)
        async for bit in _bits(step, chunk):
            yield bit
        await asyncio.sleep(step.every if place in pinged else pace)
    if step.stall and place < step.stall_after:
        await asyncio.sleep(step.stall)


async def _bits(step: Step, chunk: bytes) -> AsyncIterator[bytes]:
    if step.drip is None:
        yield chunk
        return
    for start in range(0, len(chunk), step.drip_bytes):
        yield chunk[start : start + step.drip_bytes]
        await asyncio.sleep(step.drip)
