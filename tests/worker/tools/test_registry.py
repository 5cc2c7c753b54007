import pytest

from roundelay_worker.tools.declare.signature import InvalidTool
from roundelay_worker.tools.registry import Registry, ToolModuleFailed, UnknownTools

BUILT_IN = ("calculator", "convert_units", "current_time", "fetch_url", "lookup")


def test_the_built_in_tools_are_always_there_and_read_only():
    registry = Registry.load([])
    assert registry.names() == BUILT_IN
    assert {registry.get(name).effect for name in BUILT_IN} == {"read"}
    assert all(registry.get(name).description for name in BUILT_IN)


def test_tools_of_modules_join_them_in_the_order_of_their_names(write_module):
    module = write_module("shop", "@tool", "def zap(): return 1", "@tool", "def buy(): return 1")
    registry = Registry.load([module])
    assert registry.names() == ("buy", *BUILT_IN, "zap")
    assert registry.get("buy").module == "shop"
    assert registry.get("nothing") is None


def test_declarations_are_sorted_however_they_are_asked_for(write_module):
    registry = Registry.load([write_module("shop", "@tool", "def buy(): return 1")])
    assert [spec.name for spec in registry.specs(["lookup", "buy", "lookup"])] == ["buy", "lookup"]
    assert [spec.name for spec in registry.specs(None)] == list(registry.names())
    assert registry.specs([]) == ()


def test_unknown_names_are_told_with_the_known_ones():
    with pytest.raises(UnknownTools) as missing:
        Registry.load([]).specs(["lookup", "b", "a"])
    assert (missing.value.names, missing.value.known) == (("a", "b"), BUILT_IN)


def test_two_tools_of_one_name_are_refused_with_both_places(write_module):
    one = write_module("first", "@tool", "def buy(): return 1")
    two = write_module("second", "@tool", "def buy(): return 1")
    with pytest.raises(InvalidTool, match=r"first\.buy .*second\.buy"):
        Registry.load([one, two])


def test_a_tool_of_the_project_goes_before_a_built_in_one_of_its_name(write_module):
    registry = Registry.load([write_module("mine", "@tool", "def calculator(): return 1")])
    assert registry.get("calculator").place.startswith("mine.calculator")
    assert registry.names().count("calculator") == 1


def test_the_same_tool_seen_in_two_modules_is_one_tool(write_module):
    one = write_module("first", "@tool", "def buy(): return 1")
    two = write_module("second", "from first import buy")
    assert "buy" in Registry.load([one, two, one]).names()


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["import no_such_module_at_all"], "ModuleNotFoundError"),
        (["raise RuntimeError('boom')"], "RuntimeError: boom"),
        (["def undecorated(): ..."], "no function decorated"),
    ],
)
def test_a_module_that_cannot_be_used_is_named_with_the_reason(write_module, lines, reason):
    with pytest.raises(ToolModuleFailed, match=f"broken .*{reason}"):
        Registry.load([write_module("broken", *lines)])


def test_a_wrong_declaration_keeps_its_own_sentence(write_module):
    with pytest.raises(InvalidTool, match="write x: str"):
        Registry.load([write_module("wrong", "@tool", "def bad(x): ...")])


def test_an_isolated_tool_that_its_own_module_does_not_hold_is_refused(write_module):
    write_module("hidden", "@tool(isolated=True)", "def work(): return 1", "kept = {'w': work}", "del work")
    shown = write_module("shown", "from hidden import kept", "work = kept['w']")
    with pytest.raises(InvalidTool, match="keep it under a name of its own module, hidden"):
        Registry.load([shown])
