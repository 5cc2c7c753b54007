"""The example web apps as they stand: the same requests to each, from two users, beside a stand-in for the worker."""

import asyncio
import importlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from roundelay import Client, names

pytestmark = pytest.mark.services

EXAMPLES = Path(__file__).parents[2] / "examples"


@dataclass
class Reply:
    status: int
    text: str
    headers: dict[str, str]

    @property
    def json(self):
        return json.loads(self.text)

    @property
    def events(self) -> list[tuple[str, str, dict]]:
        """The id, event and data of each server-sent event."""
        found = re.findall(r"(?:id: (\d+)\n)?event: (\w+)\ndata: (.*)\n\n", self.text)
        return [(number, event, json.loads(data)) for number, event, data in found]


Ask = Callable[..., Reply]


def asgi(app, loop) -> Iterator[Ask]:
    """Run the app in the event loop, from its start to its shutdown."""
    state: dict[str, object] = {}
    ended, started = threading.Event(), threading.Event()

    async def receive():
        if started.is_set():
            await asyncio.to_thread(ended.wait)
        return {"type": "lifespan.shutdown" if started.is_set() else "lifespan.startup"}

    async def send(message):
        assert message["type"] in {"lifespan.startup.complete", "lifespan.shutdown.complete"}
        started.set()

    async def with_state(scope, receive, send):
        await app(scope | {"state": state}, receive, send)

    async def put(method, path, **parts):
        transport = httpx.ASGITransport(app=with_state, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://app") as browser:
            return await browser.request(method, path, **parts)

    def ask(method, path, user, body=None, **headers):
        content, described = written(body, user)
        reply = loop.run(put(method, path, content=content, headers=headers | described))
        return Reply(reply.status_code, reply.text, dict(reply.headers))

    running = asyncio.run_coroutine_threadsafe(app({"type": "lifespan", "state": state}, receive, send), loop.loop)
    assert started.wait(10)
    yield ask
    ended.set()
    running.result(10)


def written(body, user) -> tuple[str | None, dict[str, str]]:
    """Return a body as sent, and the headers that describe it and the user."""
    content = body if body is None or isinstance(body, str) else json.dumps(body)
    described = {"content-type": "application/json"} if content is not None else {}
    return content, described | ({"cookie": f"user={user}"} if user else {})


def wsgi(app) -> Iterator[Ask]:
    def ask(method, path, user, body=None, **headers):
        content, described = written(body, user)
        browser = app.test_client(use_cookies=False)
        reply = browser.open(path, method=method, data=content, headers=headers | described)
        return Reply(reply.status_code, reply.get_data(as_text=True), {k.lower(): v for k, v in reply.headers.items()})

    yield ask


def django() -> Iterator[Ask]:
    import django as framework  # noqa: PLC0415 - as above
    from django.test import Client as Browser  # noqa: PLC0415

    framework.setup()

    def ask(method, path, user, body=None, **headers):
        browser = Browser(raise_request_exception=False)
        if user:
            browser.cookies["user"] = user
        content = body if isinstance(body, str) else json.dumps(body)
        reply = browser.generic(method, path, content, content_type="application/json", headers=headers)
        text = reply.getvalue() if reply.streaming else reply.content
        return Reply(reply.status_code, text.decode(), {k.lower(): v for k, v in reply.headers.items()})

    yield ask


@pytest.fixture(params=["web_app", "fastapi_app", "flask_app", "django_app"])
def ask(request, url, prefix, monkeypatch, loop) -> Iterator[Ask]:
    monkeypatch.setenv("ROUNDELAY_REDIS_URL", url)
    monkeypatch.setenv("ROUNDELAY_PREFIX", prefix)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    module = importlib.import_module(request.param)
    module.client = Client.from_env()
    match request.param:
        case "django_app":
            yield from django()
        case "flask_app":
            yield from wsgi(module.app)
        case _:
            yield from asgi(module.app, loop)
    module.client.close()


@pytest.fixture
def answered(worker):
    """Return what plays a worker that answers a message, word by word."""

    def answer(job, *words):
        worker.update(job, 1, "accepted")
        worker.update(job, 2, "started")
        worker.update(job, 3)
        for place, word in enumerate(words):
            worker.delta(job, 3, place + 1, word, offset=sum(map(len, words[:place])))
        worker.update(job, 4, "turn_ended", turn=1)
        worker.end(job, 5, "".join(words))

    return answer


@pytest.fixture
def asked(ask, url, prefix) -> Iterator[Callable[[str], object]]:
    """Return what submits a message for a user, and hands over its handle."""
    with Client(url, prefix=prefix) as client:
        yield lambda user: client.get(ask("POST", "/messages", user, {"text": "hello"}).json["message_id"])


def test_the_text_streams_and_a_reconnect_misses_nothing(ask, asked, answered):
    job = asked("u1")
    answered(job, "It ", "is ", "42.")

    whole = ask("GET", f"/messages/{job.message_id}/updates", "u1")
    again = ask("GET", f"/messages/{job.message_id}/updates", "u1", **{"last-event-id": "3"})

    assert (whole.status, whole.headers["content-type"].partition(";")[0]) == (200, "text/event-stream")
    assert [number for number, _, _ in whole.events if number] == ["1", "2", "3", "4", "5"]
    assert "".join(data["text"] for _, event, data in whole.events if event == "text_delta") == "It is 42."
    assert whole.events[-1][2]["answer"]["text"] == "It is 42."
    assert [event for _, event, _ in again.events] == ["text_reset", *["text_delta"] * 3, "turn_ended", "ended"]


def test_a_message_is_submitted_for_its_user_and_once_under_one_key(ask, raw, prefix):
    first = ask("POST", "/messages", "u1", {"text": "hello", "conversation_id": "c1", "key": "k"})
    second = ask("POST", "/messages", "u1", {"text": "hello", "conversation_id": "c1", "key": "k"})
    other = ask("POST", "/messages", "u1", {"text": "something else", "conversation_id": "c1", "key": "k"})

    assert (first.status, second.status, other.status) == (202, 202, 409)
    assert first.json == second.json
    assert raw.hget(names.state_key(prefix, first.json["message_id"]), "user_id") == b"u1"


def test_nobody_sees_or_stops_the_messages_of_another(ask, asked, answered):
    job = asked("u1")

    for method, place in (("GET", ""), ("GET", "/updates"), ("DELETE", "")):
        assert ask(method, f"/messages/{job.message_id}{place}", "u2").status == 404

    assert ask("GET", f"/messages/{job.message_id}", "u1").json["status"] == "queued"
    assert ask("DELETE", f"/messages/{job.message_id}", "u1").json == {"cancelled": True}
    answered(job, "done")
    assert ask("DELETE", f"/messages/{job.message_id}", "u1").json == {"cancelled": False}


@pytest.mark.parametrize("message_id", ["nobody", "%ED%A0%80", "a%20b"])
def test_an_unknown_message_is_not_found(ask, worker, message_id):
    worker.fill()

    for method, place in (("GET", ""), ("GET", "/updates"), ("DELETE", "")):
        assert ask(method, f"/messages/{message_id}{place}", "u1").status == 404


@pytest.mark.parametrize(
    "body", [{"text": ""}, {"text": " "}, {}, [], {"text": 7}, {"text": "x", "key": ""}, "no json"]
)
def test_what_cannot_be_accepted_is_the_fault_of_who_asked(ask, body):
    reply = ask("POST", "/messages", "u1", body)

    assert reply.status in {400, 422}
    assert "Traceback" not in reply.text


def test_a_redis_that_is_away_is_told_as_such(ask, asked, worker, raw):
    raw.flushall()

    assert ask("GET", "/messages/nobody", "u1").status == 503
