"""How replies go out: errors, silence, drops, cuts; and what the fake notices of its clients."""

import socket
import time

import httpx
import pytest

from roundelay_worker.testing.fake_llm import FakeLLM, Rules, script

LONG = "one two three four five six seven eight nine ten"


def read_slowly(given, wait):
    """Return the bytes of a reply and the longest silence within them."""
    longest, body, last = 0.0, b"", time.monotonic()
    with given.http.stream("POST", given.path, json=given.body, headers=given.client.headers, timeout=wait) as answer:
        for piece in answer.iter_raw():
            longest, last = max(longest, time.monotonic() - last), time.monotonic()
            body += piece
    return body, longest


ERRORS = {
    "rate_limited": (429, 429, 429, 429),
    "quota": (400, 429, 429, 429),
    "overloaded": (529, 503, 503, 503),
    "server_error": (500, 500, 500, 500),
    "overflow": (400, 400, 400, 400),
    "credentials": (401, 401, 401, 400),
    "gateway": (502, 502, 502, 502),
}


@pytest.mark.parametrize("kind", ERRORS)
def test_a_named_error_has_the_status_and_shape_of_the_service(talk, wire, stream, kind):
    answer = talk(wire, script({"error": kind}), stream=stream).send()
    assert answer.status_code == ERRORS[kind][("anthropic", "chat", "responses", "gemini").index(wire)]
    if kind == "gateway":
        assert answer.headers["content-type"].startswith("text/html")
    else:
        assert answer.json()["error"]["message"]


def test_a_delay_is_said_where_the_service_says_it(talk, wire):
    answer = talk(wire, script({"error": "rate_limited", "retry_after": 1.5})).send()
    if wire == "gemini":
        assert answer.json()["error"]["details"][-1]["retryDelay"] == "1.5s"
    else:
        assert answer.headers["retry-after"] == "1.5"


def test_an_error_strikes_as_often_as_it_is_told(fake, talk, wire):
    given = talk(wire, script({"error": "overloaded", "times": 2, "then": {"text": "at last"}}, name="n"))
    assert [given.send().status_code == 200 for _ in range(2)] == [False, False]
    assert given.ask().text == "at last"
    assert fake.count("n", 0) == 3
    assert [request.attempt for request in fake.requests] == [1, 2, 3]


def test_a_raw_answer_goes_out_as_it_is(talk, wire, stream):
    step = {"status": 418, "headers": {"X-Kind": "teapot"}, "body": {"a": [1]}}
    answer = talk(wire, script(step), stream=stream).send()
    assert (answer.status_code, answer.headers["x-kind"], answer.json()) == (418, "teapot", {"a": [1]})


def test_a_raw_answer_of_text_is_a_page(talk):
    answer = talk("chat", script({"status": 502, "body": "<html>bad</html>"})).send()
    assert answer.headers["content-type"].startswith("text/html")
    assert answer.text == "<html>bad</html>"


IN_STREAM = {
    "anthropic": "overloaded_error",
    "chat": '"error"',
    "responses": "response.failed",
    "gemini": '"UNAVAILABLE"',
}


def test_an_error_within_a_stream_comes_after_the_content_and_ends_it(talk, wire):
    answer = talk(wire, script({"text": LONG, "in_stream_error": "overloaded"}), stream=True).send()
    assert answer.status_code == 200
    assert IN_STREAM[wire] in answer.text.split("nine ten")[-1]
    assert not any(word in answer.text for word in ("message_stop", "[DONE]", "response.completed", "finishReason"))


def test_an_error_within_a_plain_reply_is_a_200_where_services_do_that(talk, wire):
    answer = talk(wire, script({"text": "x", "in_stream_error": "overloaded"})).send()
    assert answer.status_code == {"anthropic": 529, "chat": 200, "responses": 200, "gemini": 503}[wire]
    assert answer.json()["error"]


def read_until_cut(given):
    """Return what came of a reply before the connection broke."""
    seen = b""
    with given.http.stream("POST", given.path, json=given.body, headers=given.client.headers) as answer:
        try:
            for piece in answer.iter_raw():
                seen += piece
        except httpx.RemoteProtocolError:
            return seen
    pytest.fail("the reply ended in good order")


TERMINAL = (b"message_stop", b"[DONE]", b"response.completed", b"finishReason")


def test_a_cut_connection_breaks_off_before_the_terminal_event(talk, wire):
    seen = read_until_cut(talk(wire, script({"text": LONG, "cut": True}), stream=True))
    assert b"nine ten" in seen
    assert not any(word in seen for word in TERMINAL)


def test_a_connection_is_cut_after_as_many_events_as_it_is_told(talk, wire):
    seen = read_until_cut(talk(wire, script({"text": LONG * 9, "cut": 3}), stream=True))
    assert seen.count(b"\n\n") == 3


def test_a_clean_end_without_a_terminal_event_is_possible_too(talk, wire):
    answer = talk(wire, script({"text": LONG, "cut": "clean"}), stream=True).send()
    assert "nine ten" in answer.text
    assert not any(word in answer.text for word in ("message_stop", "[DONE]", "response.completed", "finishReason"))


def test_a_plain_reply_can_break_off_in_the_middle(talk, wire):
    with pytest.raises(httpx.RemoteProtocolError):
        talk(wire, script({"text": LONG, "cut": True})).send()


def test_a_cut_by_the_server_is_no_disconnect_of_the_client(fake, talk, wire, stream):
    with pytest.raises(httpx.RemoteProtocolError):
        talk(wire, script({"text": LONG, "cut": True}), stream=stream).send()
    assert fake.wait(lambda: fake.open == 0)
    assert not fake.disconnects


def test_silence_after_the_headers_is_seen_as_such(talk, wire, stream):
    given = talk(wire, script({"text": "x", "stall": 0.4}), stream=stream)
    body, longest = read_slowly(given, wait=5)
    assert longest >= 0.35
    assert b"x" in body


def test_silence_can_begin_in_the_middle(talk):
    given = talk("chat", script({"text": LONG, "stall": 0.4, "stall_after": 2}), stream=True)
    _, longest = read_slowly(given, wait=5)
    assert longest >= 0.35


def test_a_delay_comes_before_the_headers(talk, wire):
    given = talk(wire, script({"text": "x", "delay": 0.3}))
    begun = time.monotonic()
    assert given.ask().text == "x"
    assert time.monotonic() - begun >= 0.3


def test_dripped_bytes_are_cut_anywhere_and_arrive_whole(talk, wire, stream):
    given = talk(wire, script({"text": "ação " * 5, "drip": 0, "drip_bytes": 3}), stream=stream)
    assert given.ask().text == "ação " * 5


def test_paced_events_come_one_by_one(talk):
    given = talk("chat", script({"text": LONG, "pace": 0.05}), stream=True)
    begun = time.monotonic()
    assert given.ask().text == LONG
    assert time.monotonic() - begun >= 0.2


PINGS = {"anthropic": "event: ping", "responses": "event: keepalive", "chat": ": keep-alive", "gemini": ": keep-alive"}


def test_signs_of_life_come_in_the_form_of_the_service(talk, wire):
    answer = talk(wire, script({"text": "x", "pings": 3, "every": 0.001}), stream=True).send()
    assert answer.text.count(PINGS[wire]) == 3


def test_blank_lines_come_before_a_plain_reply(talk):
    answer = talk("chat", script({"text": "x", "pings": 3, "every": 0.001})).send()
    assert answer.text.startswith("\n\n\n{")


def test_a_piece_can_come_over_and_over(talk, wire):
    answer = talk(wire, script({"text": "end", "repeat_piece": 5, "piece": "same ", "every": 0.001}), stream=True)
    assert answer.ask().text == "same " * 5 + "end"


def test_empty_pieces_are_possible(talk):
    answer = talk("chat", script({"text": "end", "repeat_piece": 5, "piece": "", "every": 0.001}), stream=True).send()
    assert answer.text.count('"content":""') == 6


def test_a_client_that_hangs_up_is_noticed(fake, talk, wire, stream):
    given = talk(wire, script({"text": LONG, "stall": 30}, name="gone"), stream=stream)
    with pytest.raises(httpx.ReadTimeout):
        given.http.post(given.path, json=given.body, headers=given.client.headers, timeout=httpx.Timeout(10, read=0.3))
    assert fake.wait(lambda: len(fake.disconnects) == 1)
    seen = fake.disconnects[0]
    assert (seen.request.name, seen.request.step) == ("gone", "0")
    assert 0 < seen.after < 10
    assert fake.wait(lambda: fake.open == 0)


def test_a_client_that_hangs_up_before_the_headers_is_noticed(fake, talk):
    given = talk("chat", script({"text": "x", "delay": 30}))
    with pytest.raises(httpx.ReadTimeout):
        given.http.post(given.path, json=given.body, headers=given.client.headers, timeout=httpx.Timeout(10, read=0.3))
    assert fake.wait(lambda: len(fake.disconnects) == 1)


def test_a_client_that_reads_all_and_hangs_up_is_no_disconnect(fake, talk, wire, stream):
    for _ in range(20):
        with httpx.Client(base_url=fake.url, verify=False) as client:
            given = talk(wire, script({"text": "x"}), stream=stream)
            client.post(given.path, json=given.body, headers=given.client.headers)
    assert fake.wait(lambda: fake.open == 0)
    assert not fake.disconnects


def test_a_client_need_not_wait_for_the_end_of_the_connection_after_the_terminal_event(fake, talk):
    given = talk("chat", script({"text": "x", "stall": 30, "stall_after": 99}), stream=True)
    with given.http.stream("POST", given.path, json=given.body, headers=given.client.headers) as answer:
        next(line for line in answer.iter_lines() if line == "data: [DONE]")
    assert fake.wait(lambda: fake.open == 0)
    assert not fake.disconnects


def test_requests_are_kept_with_their_bodies_and_without_keys(fake, talk, wire):
    given = talk(wire, script({"text": "x"}, name="r"))
    given.ask()
    kept = fake.requests[0]
    assert (kept.format, kept.name, kept.step, kept.attempt, kept.refused) == (wire, "r", "0", 1, "")
    assert kept.body == given.body
    assert abs(kept.at - time.time()) < 60
    assert "raw" not in repr(kept)


def test_only_so_many_requests_are_kept_and_all_are_counted():
    with FakeLLM(keep=3) as fake, httpx.Client(base_url=fake.url) as client:
        for _ in range(5):
            client.post("/v1/chat/completions", json={"model": "x", "messages": []})
        assert (len(fake.requests), len(fake.refusals), fake.total) == (3, 3, 5)


def test_a_refused_request_says_which_rule_it_broke(fake, talk, wire):
    given = talk(wire, script({"text": "x"}, name="bad"))
    given.body["foo"] = 1
    assert given.send().status_code == 400
    assert fake.requests[0].refused == "unknown_field"
    assert (fake.requests[0].name, fake.requests[0].attempt, fake.count("bad", 0)) == ("bad", 0, 1)


def test_a_refused_request_is_no_attempt(talk, wire):
    given = talk(wire, script({"error": "overloaded", "times": 1, "then": {"text": "x"}}))
    given.body["foo"] = 1
    given.send()
    del given.body["foo"]
    assert given.send().status_code >= 500


def test_a_body_that_is_no_json_or_no_object_is_refused(fake, http, talk, wire):
    for content in (b"{", b"[]", b""):
        given = talk(wire, "x")
        assert http.post(given.path, content=content, headers=given.client.headers).status_code == 400
    assert {each.refusal.rule for each in fake.refusals} == {"not_json"}


def test_a_misspelt_script_is_told_to_whoever_wrote_it(fake, talk, wire):
    answer = talk(wire, 'script: [{"txet": "x"}]').send()
    assert answer.status_code == 422
    assert "txet" in answer.text
    assert fake.refusals[0].refusal.rule == "script"


def test_a_body_beyond_the_limit_is_refused():
    with FakeLLM(rules=Rules(body_limit=1000)) as fake, httpx.Client(base_url=fake.url) as client:
        body = {"model": "x", "messages": [{"role": "user", "content": "x" * 1000}]}
        answer = client.post("/v1/chat/completions", json=body, headers={"authorization": "Bearer k"})
        assert answer.status_code == 413


def test_a_large_body_within_the_limit_is_read(talk, wire):
    assert talk(wire, "x" * 5_000_000 + script({"text": "read"})).ask().text == "read"


def test_a_lenient_fake_checks_nothing():
    with FakeLLM(strict=False) as fake, httpx.Client(base_url=fake.url) as client:
        answer = client.post(
            "/v1/chat/completions", json={"messages": [{"role": "user", "content": script({"text": "y"})}]}
        )
        assert answer.json()["choices"][0]["message"]["content"] == "y"


def test_a_lenient_fake_survives_what_it_cannot_read():
    with FakeLLM(strict=False) as fake, httpx.Client(base_url=fake.url) as client:
        for body in ({"messages": 1}, {"messages": [1]}, {"messages": [{"role": "user", "content": 1}]}):
            assert client.post("/v1/messages", json=body).status_code == 400
        assert fake.open == 0


def test_a_taken_port_is_an_error_at_the_start():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(OSError, match="address"), FakeLLM(port=taken.getsockname()[1]):
            pass


def test_a_fake_that_ends_does_not_wait_for_stalled_clients():
    with FakeLLM() as fake, httpx.Client(base_url=fake.url) as client:
        body = {"model": "x", "messages": [{"role": "user", "content": script({"stall": 60})}], "stream": True}
        with client.stream("POST", "/v1/chat/completions", json=body, headers={"authorization": "Bearer k"}):
            begun = time.monotonic()
            fake.__exit__()
    assert time.monotonic() - begun < 5
