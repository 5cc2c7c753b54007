"""The routes: four wire formats, and ``/_fake/`` to look at the record from another process.

``GET /_fake/requests`` (``?bodies=1`` with bodies), ``/_fake/refusals``, ``/_fake/disconnects``, ``/_fake/counts``
and ``POST /_fake/reset``.
"""

import asyncio
from dataclasses import asdict
from typing import Any

import orjson
from aiohttp import web

from roundelay_worker.testing.fake_llm import delivery
from roundelay_worker.testing.fake_llm.director import Director, Scene
from roundelay_worker.testing.fake_llm.ledger import Ledger, Recorded
from roundelay_worker.testing.fake_llm.refusal import Format, Json, lowered

_LARGEST = 256 * 1024 * 1024


class Server:
    """Answers requests as the director says, and tells the ledger how each ended."""

    def __init__(self, director: Director, ledger: Ledger) -> None:
        self._director = director
        self._ledger = ledger

    def application(self) -> web.Application:
        """Return the application with all routes."""
        app = web.Application(client_max_size=_LARGEST)
        app.add_routes(
            [
                web.post("/v1/messages", self._anthropic),
                web.post("/v1/responses", self._responses),
                web.post("/v1/chat/completions", self._chat),
                web.post("/chat/completions", self._chat),
                web.post("/v1beta/models/{target:.+}", self._gemini),
                web.get("/_fake/{what}", self._look),
                web.post("/_fake/reset", self._reset),
            ]
        )
        return app

    async def _anthropic(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, "anthropic")

    async def _responses(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, "responses")

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, "chat")

    async def _gemini(self, request: web.Request) -> web.StreamResponse:
        model, _, verb = request.match_info["target"].rpartition(":")
        if verb not in {"generateContent", "streamGenerateContent"}:
            raise web.HTTPNotFound
        return await self._answer(request, "gemini", model, stream=verb == "streamGenerateContent")

    async def _answer(
        self, request: web.Request, wire: Format, model: str = "", *, stream: bool = False
    ) -> web.StreamResponse:
        raw = await request.read()
        scene = self._director.direct(wire, raw, lowered(request.headers), model=model, stream=stream)
        if scene.refusal is not None:
            return delivery.refused(scene.refusal, as_list=_is_array(request, scene))
        try:
            return await self._deliver(request, scene)
        finally:
            self._ledger.ended(scene.request)

    async def _deliver(self, request: web.Request, scene: Scene) -> web.StreamResponse:
        going = delivery.Delivery(request, scene)
        try:
            await asyncio.sleep(scene.step.delay)
            return await _send(scene, going, as_array=_is_array(request, scene))
        except (asyncio.CancelledError, ConnectionError):
            if not going.sent:
                self._ledger.disconnected(scene.request)
            raise

    async def _look(self, request: web.Request) -> web.Response:
        bodies = request.query.get("bodies") == "1"
        match request.match_info["what"]:
            case "requests":
                return _json([_shown(each, bodies=bodies) for each in self._ledger.requests()])
            case "refusals":
                return _json(
                    [{**_shown(each.request), "message": each.refusal.message} for each in self._ledger.refusals()]
                )
            case "disconnects":
                return _json([{**_shown(each.request), "after": each.after} for each in self._ledger.disconnects()])
            case "counts":
                return _json(self._ledger.counts())
        raise web.HTTPNotFound

    async def _reset(self, _request: web.Request) -> web.Response:
        self._ledger.reset()
        return web.Response(status=204)


async def _send(scene: Scene, going: delivery.Delivery, *, as_array: bool) -> web.StreamResponse:
    if scene.step.status:
        return delivery.raw(scene.step)
    if scene.reply.refusal is not None:
        return delivery.refused(scene.reply.refusal, as_list=as_array)
    if scene.ask.stream and not as_array:
        return await going.stream()
    return await going.whole(delivery.json_array(scene) if as_array else orjson.dumps(scene.reply.body))


def _is_array(request: web.Request, scene: Scene) -> bool:
    """Say whether the reply is Gemini's JSON array, which a stream without ``alt=sse`` is."""
    return scene.ask.format == "gemini" and scene.ask.stream and request.query.get("alt") != "sse"


def _shown(request: Recorded, *, bodies: bool = False) -> Json:
    shown = asdict(request)
    del shown["raw"]
    return {**shown, "body": request.body} if bodies else shown


def _json(value: Any) -> web.Response:
    return web.Response(body=orjson.dumps(value), content_type="application/json")
