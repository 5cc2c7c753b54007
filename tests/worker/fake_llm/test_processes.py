"""The fake as a process of its own, looked at and reset over HTTP."""

import asyncio
import subprocess
import sys

import httpx
import pytest

from roundelay_worker.testing.fake_llm import FakeLLM, script

HEADERS = {"authorization": "Bearer k"}


@pytest.fixture
def http():
    command = [sys.executable, "-m", "roundelay_worker.testing.fake_llm", "--port", "0", "--key", "k"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            with httpx.Client(base_url=process.stdout.readline().strip(), timeout=10) as client:
                yield client
        finally:
            process.terminate()
        assert process.wait(10) == 0


def body(*steps, **more):
    return {"model": "x", "messages": [{"role": "user", "content": script(*steps, **more)}]}


def test_a_process_tells_over_http_what_it_saw_and_forgets_when_told(http):
    asked = body({"text": "x"}, name="p")
    assert http.post("/chat/completions", json=asked, headers=HEADERS).status_code == 200
    assert http.post("/chat/completions", json={**asked, "foo": 1}, headers=HEADERS).status_code == 400
    assert http.post("/chat/completions", json=asked, headers={"authorization": "Bearer other"}).status_code == 401
    with pytest.raises(httpx.ReadTimeout):
        http.post(
            "/chat/completions",
            json=body({"delay": 30}, name="slow"),
            headers=HEADERS,
            timeout=httpx.Timeout(10, read=0.3),
        )
    gone = next(found for _ in range(500) if (found := http.get("/_fake/disconnects").json()))
    assert [each["name"] for each in gone] == ["slow"]
    assert [each["refused"] for each in http.get("/_fake/requests").json()] == ["", "unknown_field", "bad_key", ""]
    assert http.get("/_fake/requests?bodies=1").json()[0]["body"] == asked
    assert http.get("/_fake/refusals").json()[0]["message"].endswith("foo")
    assert {"name": "p", "step": "0", "count": 3} in http.get("/_fake/counts").json()
    assert http.get("/_fake/nothing").status_code == 404
    assert http.post("/_fake/reset").status_code == 204
    assert http.get("/_fake/requests").json() == []


def test_a_script_goes_on_at_its_step_in_another_process(http):
    asked = body({"calls": [{"name": "add"}]}, {"text": "second"})
    asked["tools"] = [{"type": "function", "function": {"name": "add"}}]
    with FakeLLM() as fake, httpx.Client(base_url=fake.url) as other:
        message = other.post("/v1/chat/completions", json=asked, headers=HEADERS).json()["choices"][0]["message"]
    result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "2"}
    asked["messages"] += [message, result]
    answer = http.post("/v1/chat/completions", json=asked, headers=HEADERS).json()
    assert answer["choices"][0]["message"]["content"] == "second"


def test_an_async_test_can_have_one_too():
    async def use():
        async with FakeLLM() as fake, httpx.AsyncClient(base_url=fake.url) as client:
            answer = await client.post("/v1/chat/completions", json=body({"text": "x"}), headers=HEADERS)
            return answer.json()["choices"][0]["message"]["content"]

    assert asyncio.run(use()) == "x"
