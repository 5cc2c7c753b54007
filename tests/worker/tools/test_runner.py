import asyncio
import gc
import json
import logging
import time
from dataclasses import replace

import pytest
import sample_tools
from hypothesis import given
from hypothesis import strategies as st
from running import CONTEXT, call_of, declared, error_of, run_once, run_with, until

from roundelay_worker.loop.history import Call, Result
from roundelay_worker.tools.context import ProgressGate
from roundelay_worker.tools.run.results import failure
from roundelay_worker.tools.run.runner import ToolRunner, Verified

CONVERSATION = ("u1", "c1")


@pytest.mark.parametrize("function", [sample_tools.echo, sample_tools.echo_async])
def test_a_string_is_the_result_as_it_is(function):
    outcome = run_once(function, text='he said "é"')
    assert outcome.result == Result('he said "é"')
    assert (outcome.uncertain, outcome.code) == (False, "")


@pytest.mark.parametrize("found", [None, sample_tools.explode])
def test_an_unknown_or_not_allowed_tool_is_told_with_the_valid_names(found):
    async def scenario():
        tool = None if found is None else declared(found)
        return await ToolRunner().run(tool, Call("explode"), ["echo", "lookup"], CONTEXT, 5)

    error = error_of(asyncio.run(scenario()))
    assert error == {
        "code": "unknown_tool",
        "message": "There is no tool 'explode'.",
        "recovery": "Use one of: echo, lookup.",
    }


def test_the_text_of_a_tool_error_reaches_the_model():
    assert error_of(run_once(sample_tools.refuse)) == {
        "code": "no_order",
        "message": "no such order",
        "recovery": "ask for the number",
    }


@pytest.mark.parametrize(
    ("function", "how", "name"),
    [
        (sample_tools.explode, "value", "ValueError"),
        (sample_tools.explode, "exit", "SystemExit"),
        (sample_tools.explode, "interrupt", "KeyboardInterrupt"),
        (sample_tools.explode, "stop", "StopIteration"),
        (sample_tools.explode_async, "value", "ValueError"),
        (sample_tools.explode_async, "exit", "SystemExit"),
        (sample_tools.explode_async, "group", "BaseExceptionGroup"),
        (sample_tools.explode_async, "closed", "GeneratorExit"),
        (sample_tools.explode_async, "interrupt", "KeyboardInterrupt"),
        (sample_tools.explode_async, "panic", "PanicException"),
    ],
)
def test_of_any_other_exception_only_the_class_name_reaches_model_and_log(function, how, name, caplog):
    with caplog.at_level(logging.DEBUG):
        outcome = run_once(function, how=how)
    assert error_of(outcome)["code"] == "tool_failed"
    assert name in outcome.result.text
    assert not outcome.uncertain
    assert "secret" not in outcome.result.text + caplog.text
    assert f"tool_failed tool={function.__name__} error={name} at=" in caplog.text


def test_a_tool_that_raises_cancelled_error_itself_gets_an_error_result():
    assert error_of(run_once(sample_tools.claims_to_be_cancelled))["message"] == "The tool failed with CancelledError."


def test_a_tool_that_raises_among_others_harms_none_of_them():
    async def scenario():
        runner = ToolRunner()
        return await asyncio.gather(
            run_with(runner, sample_tools.echo, text="a"),
            run_with(runner, sample_tools.explode),
            run_with(runner, sample_tools.explode_async),
            run_with(runner, sample_tools.echo_async, text="b"),
        )

    outcomes = asyncio.run(scenario())
    assert [o.code for o in outcomes] == ["", "tool_failed", "tool_failed", ""]
    assert (outcomes[0].result.text, outcomes[3].result.text) == ("a", "b")


@pytest.mark.parametrize("function", [sample_tools.hang, sample_tools.hang_async])
def test_a_read_that_overruns_gets_its_result_in_time(function):
    begun = time.monotonic()
    outcome = run_once(function, seconds=0.2)
    assert time.monotonic() - begun < 5
    error = error_of(outcome)
    assert (error["code"], error["message"], outcome.uncertain) == ("timed_out", "timed out after 0.2 s", False)


@pytest.mark.parametrize("function", [sample_tools.hang_writing, sample_tools.hang_writing_async])
def test_a_write_that_overruns_is_uncertain(function):
    outcome = run_once(function, seconds=0.05)
    assert outcome.uncertain
    assert error_of(outcome)["code"] == "outcome_unknown"
    assert "timed out after 0.05 s" in outcome.result.text


def test_without_any_time_nothing_begins_and_nothing_is_uncertain():
    outcome = run_once(sample_tools.hang_writing, seconds=0)
    assert (outcome.code, outcome.uncertain) == ("timed_out", False)


def test_after_twenty_timeouts_in_a_row_the_next_call_runs_normally():
    async def scenario():
        runner = ToolRunner()
        for function in (sample_tools.hang, sample_tools.hang_async) * 10:
            assert (await run_with(runner, function, 0.02)).code == "timed_out"
        assert runner.loose == 10
        begun = time.monotonic()
        outcome = await run_with(runner, sample_tools.echo, text="still here")
        assert time.monotonic() - begun < 2
        sample_tools.RELEASE.set()
        await until(lambda: runner.loose == 0)
        return outcome

    assert asyncio.run(scenario()).result.text == "still here"


def test_a_loose_write_is_counted_for_its_conversation_until_it_ends_and_its_result_comes_late():
    late = []

    async def scenario():
        runner = ToolRunner(on_late=lambda context, result: late.append((context.call_id, result)))
        await run_with(runner, sample_tools.hang_writing, 0.02)
        await run_with(runner, sample_tools.hang, 0.02)
        await run_with(runner, sample_tools.hang_writing, 0.02, context=replace(CONTEXT, conversation_id="c2"))
        assert (runner.loose, runner.loose_writes(CONVERSATION), runner.loose_writes(("", "c1"))) == (3, 1, 0)
        assert late == []
        sample_tools.RELEASE.set()
        await until(lambda: runner.loose == 0)
        assert runner.loose_writes(CONVERSATION) == 0

    asyncio.run(scenario())
    assert sorted(result.text for _, result in late) == ["late", "late write", "late write"]
    assert {call_id for call_id, _ in late} == {CONTEXT.call_id}


def test_an_async_tool_that_swallows_cancellation_is_loose_too():
    late = []

    async def scenario():
        runner = ToolRunner(on_late=lambda _, result: late.append(result.text))
        begun = time.monotonic()
        outcome = await run_with(runner, sample_tools.swallow_cancellation, 0.05)
        assert time.monotonic() - begun < 3
        assert (outcome.uncertain, runner.loose, runner.loose_writes(CONVERSATION)) == (True, 1, 1)
        sample_tools.RELEASE.set()
        await until(lambda: runner.loose == 0)

    asyncio.run(scenario())
    assert late == ["late after all"]


def test_a_cancelled_async_tool_is_not_loose_and_brings_nothing_late():
    late = []

    async def scenario():
        runner = ToolRunner(on_late=lambda _, result: late.append(result))
        await run_with(runner, sample_tools.hang_writing_async, 0.02)
        return runner.loose

    assert asyncio.run(scenario()) == 0
    assert late == []


def test_a_late_hook_that_raises_breaks_nothing(caplog):
    def hook(_context, _result):
        raise RuntimeError("secret")

    async def scenario():
        runner = ToolRunner(on_late=hook)
        await run_with(runner, sample_tools.hang, 0.02)
        sample_tools.RELEASE.set()
        await until(lambda: runner.loose == 0)
        return await run_with(runner, sample_tools.echo, text="fine")

    assert asyncio.run(scenario()).result.text == "fine"
    assert "late_hook_failed error=RuntimeError" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize(
    ("function", "loose"),
    [(sample_tools.hang_writing, 1), (sample_tools.hang_writing_async, 0), (sample_tools.swallow_cancellation, 1)],
)
def test_cancelling_a_call_ends_it_at_once_and_lets_loose_what_cannot_be_ended(function, loose):
    async def scenario():
        runner = ToolRunner()
        running = asyncio.create_task(run_with(runner, function, 30))
        await asyncio.sleep(0.05)
        begun = time.monotonic()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert time.monotonic() - begun < 2
        assert (runner.loose, runner.loose_writes(CONVERSATION)) == (loose, loose)
        sample_tools.RELEASE.set()
        await until(lambda: runner.loose == 0)

    asyncio.run(scenario())


def test_a_second_cancel_while_the_first_is_served_counts_the_call_once():
    late = []

    async def scenario():
        runner = ToolRunner(on_late=lambda _, result: late.append(result.text))
        running = asyncio.create_task(run_with(runner, sample_tools.swallow_cancellation, 0.02))
        await until(lambda: runner.loose == 1)
        running.cancel()
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert runner.loose == 1
        sample_tools.RELEASE.set()
        await until(lambda: runner.loose == 0)

    asyncio.run(scenario())
    assert late == ["late after all"]


def test_context_variables_reach_a_thread():
    async def scenario():
        sample_tools.VARIABLE.set("carried")
        return await run_with(ToolRunner(), sample_tools.variable)

    assert asyncio.run(scenario()).result.text == "carried"


def test_a_hundred_sync_calls_run_side_by_side():
    async def scenario():
        runner = ToolRunner()
        calls = [asyncio.create_task(run_with(runner, sample_tools.hang, 20)) for _ in range(100)]
        await asyncio.sleep(0.2)
        sample_tools.RELEASE.set()
        return await asyncio.gather(*calls)

    assert {o.result.text for o in asyncio.run(scenario())} == {"late"}


@pytest.mark.parametrize("way", ["sync", "async", "isolated"])
def test_a_write_whose_result_is_not_json_is_told_as_done_with_the_places_that_are_missing(way):
    outcome = run_once(
        {"sync": sample_tools.pays, "async": sample_tools.pays_async, "isolated": sample_tools.pays_alone}[way]
    )
    text, note = outcome.result.text.split("\n\n")
    assert (outcome.result.is_error, outcome.uncertain, outcome.code) == (False, False, "")
    assert json.loads(text) == {
        "id": 7,
        "customer": "[object]",
        "rows": [{"photo": "[bytes]", "name": "a"}],
        "nan": "NaN",
        "[tuple]": 1,
    }
    assert note.startswith("Note: The call took effect; do not repeat it.")
    assert "customer (object), rows[0].photo (bytes)" in note


@pytest.mark.parametrize(
    ("kind", "text", "lost"),
    [
        ("object", '"[object]"', "the value itself (object)"),
        ("generator", '"[generator]"', "the value itself (generator)"),
        ("loop", '["[list]"]', "[0] (list)"),
        ("bytes", '"[bytes]"', "the value itself (bytes)"),
        ("raising", '"[Raising]"', "the value itself (Raising)"),
        ("model", '{"order":{"number":1,"price":"2"},"thing":"[object]"}', "thing (object)"),
    ],
)
def test_what_json_cannot_carry_is_named_and_the_rest_is_kept(kind, text, lost):
    outcome = run_once(sample_tools.returns, kind=kind)
    assert not outcome.result.is_error
    assert (
        outcome.result.text == f"{text}\n\nNote: The call succeeded. JSON cannot carry this part of its result: {lost}."
    )


def test_odd_values_become_valid_bounded_text():
    assert run_once(sample_tools.returns, kind="nan").result.text == '["NaN","Infinity"]'
    assert run_once(sample_tools.returns, kind="none").result.text == "null"
    assert run_once(sample_tools.returns, kind="surrogate").result.text == "a?b\ufffdc"


@pytest.mark.parametrize("kind", ["huge", "huge list"])
def test_a_huge_result_is_bounded(kind):
    text = run_once(sample_tools.returns, kind=kind).result.text
    assert "bytes left out" in text
    assert 1_000_000 < len(text.encode()) <= 1_048_576


def test_a_forgotten_await_is_told_and_warns_of_nothing():
    outcome = run_once(sample_tools.returns_coroutine)
    gc.collect()
    assert "async def" in error_of(outcome)["message"]


@given(st.text(), st.text(), st.text())
def test_every_tool_error_is_bounded_valid_json(message, code, recovery):
    outcome = failure(code, message * 50, recovery * 50)
    error = json.loads(outcome.result.text)["error"]
    assert error["code"]
    assert len(error["message"]) <= 4000
    outcome.result.text.encode()
    assert "\x00" not in outcome.result.text


def test_progress_is_cut_rate_limited_and_silent_after_the_call():
    shown = []
    context = replace(CONTEXT, on_progress=shown.append)

    async def scenario():
        return await run_with(ToolRunner(), sample_tools.report, context=context)

    assert asyncio.run(scenario()).result.text == "done"
    assert 10 <= len(shown) < 20
    assert shown[0] == ("step 0" + "." * 1000)[:500]


def test_the_gate_lets_five_texts_a_second_through():
    now = [100.0]
    shown: list[str] = []
    gate = ProgressGate(shown.append, clock=lambda: now[0])
    for _ in range(100):
        gate("burst")
    assert len(shown) == 10
    for _ in range(20):
        now[0] += 0.125
        gate("steady")
    assert len(shown) == 22
    gate.close()
    now[0] += 100
    gate("late")
    assert len(shown) == 22


def test_a_progress_hook_that_raises_does_not_reach_the_tool(caplog):
    def hook(_text):
        raise RuntimeError("secret")

    async def scenario():
        return await run_with(ToolRunner(), sample_tools.report, context=replace(CONTEXT, on_progress=hook))

    assert asyncio.run(scenario()).result.text == "done"
    assert "secret" not in caplog.text


@pytest.mark.parametrize(
    ("function", "amount", "verified"),
    [
        (sample_tools.transfer, 1, Verified("done", Result("The call took effect; what it returned was lost."))),
        (sample_tools.transfer, 2, Verified("not_done")),
        (sample_tools.transfer, 3, Verified("unknown")),
        (sample_tools.transfer, 4, Verified("done", Result('{"id":"key-1"}'))),
        (sample_tools.transfer, 5, Verified("unknown")),
        (sample_tools.transfer, 7, Verified("done", Result("0"))),
        (sample_tools.transfer, 6, Verified("unknown")),
        (sample_tools.transfer_async, 2, Verified("not_done")),
        (sample_tools.transfer_async, 6, Verified("unknown")),
    ],
)
def test_verify_tells_done_not_done_or_unknown(function, amount, verified):
    async def scenario():
        seconds = 0.1 if amount == 6 else 20
        return await ToolRunner().verify(declared(function), call_of(function, amount=amount), CONTEXT, seconds)

    assert asyncio.run(scenario()) == verified


def test_without_verify_or_with_bad_arguments_it_stays_unknown():
    async def scenario():
        runner = ToolRunner()
        none = await runner.verify(declared(sample_tools.hang_writing), Call("x"), CONTEXT, 1)
        bad = await runner.verify(declared(sample_tools.transfer), Call("x", '{"amount": "x"}'), CONTEXT, 1)
        return none, bad

    assert asyncio.run(scenario()) == (Verified("unknown"), Verified("unknown"))


def test_a_tool_that_burns_cpu_in_a_thread_does_not_stop_the_loop():
    async def scenario():
        runner = ToolRunner()
        stop = time.monotonic() + 0.5

        def burn():
            while time.monotonic() < stop:
                pass

        runner._threads.start(burn)
        ticks = 0
        while time.monotonic() < stop:
            await asyncio.sleep(0.001)
            ticks += 1
        return ticks

    assert asyncio.run(scenario()) > 5
