"""Whatever a project's set-up and tool modules do at import, one line says what to mend."""

import pytest

from roundelay_worker.tools.loading import UNUSABLE, SetupFailed, load_tools


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (["raise RuntimeError('first\\nsecond')"], "RuntimeError: first (odd_module.py:2)"),
        (["import sys", "sys.exit('enough')"], "SystemExit: enough (odd_module.py:3)"),
        (["def ("], "SyntaxError: invalid syntax"),
        (["import no_such_module"], "ModuleNotFoundError: No module named 'no_such_module' (odd_module.py:2)"),
        (["raise KeyError"], "KeyError (odd_module.py:2)"),
    ],
)
def test_a_tool_module_that_raises_at_import_is_named_with_what_it_raised_and_where(write_module, lines, told):
    with pytest.raises(UNUSABLE) as raised:
        load_tools(None, [write_module("odd_module", *lines)])

    assert f"ROUNDELAY_TOOL_MODULES: odd_module cannot be imported: {told}" in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("setup", "told"),
    [
        ("odd_setup:breaks", "odd_setup:breaks failed: ZeroDivisionError: division by zero (odd_setup.py:2)"),
        ("odd_setup:leaves", "odd_setup:leaves failed: SystemExit: 3 (odd_setup.py:3)"),
        ("no_such_setup:begin", "no_such_setup:begin failed: ModuleNotFoundError: No module named 'no_such_setup'"),
        ("odd_setup:waits", "names waits, which is async"),
        ("odd_setup:number", "names number, which is not a function of odd_setup"),
        ("odd_setup", "is written module:function"),
    ],
)
def test_a_setup_that_fails_is_named_with_what_it_raised_and_where(write_module, setup, told):
    write_module(
        "odd_setup", "def breaks(): 1 / 0", "def leaves(): raise SystemExit(3)", "async def waits(): ...", "number = 1"
    )
    with pytest.raises(SetupFailed) as raised:
        load_tools(setup, [])

    assert str(raised.value).startswith("ROUNDELAY_SETUP")
    assert told in str(raised.value)
    assert "\n" not in str(raised.value)


def test_tools_are_loaded_after_the_setup(write_module):
    write_module("early", "ready = []", "def begin(): ready.append(1)")
    late = write_module("late", "import early", "assert early.ready", "@tool", "def grow(): return 1")

    assert "grow" in load_tools("early:begin", [late]).names()
