import pytest

from roundelay_worker.tools.declare.signature import InvalidTool
from roundelay_worker.tools.registry import Registry, ToolModuleFailed, UnknownBuiltIn

BUILT_IN = ("calculator", "convert_units", "current_time", "fetch_url", "lookup")


def test_the_built_in_tools_are_off_until_they_are_named():
    assert Registry.load([]).names() == ()
    assert Registry.load([]).specs() == ()
    assert Registry.load([], ["lookup", "calculator"]).names() == ("calculator", "lookup")


def test_the_demo_may_have_those_that_are_off():
    assert Registry.load([], ["lookup"]).names(with_spare=True) == BUILT_IN


def test_a_built_in_tool_that_does_not_exist_is_told_with_those_that_do():
    with pytest.raises(UnknownBuiltIn, match=r"calulator is no built-in tool; there are calculator, .*, and all"):
        Registry.load([], ["calulator"])


def test_the_built_in_tools_are_read_only():
    registry = Registry.load([], ["all"])
    assert registry.names() == BUILT_IN
    assert {registry.get(name).effect for name in BUILT_IN} == {"read"}
    assert all(registry.get(name).description for name in BUILT_IN)


def test_tools_of_modules_join_them_in_the_order_of_their_names(write_module):
    module = write_module("shop", "@tool", "def zap(): return 1", "@tool", "def buy(): return 1")
    registry = Registry.load([module], ["all"])
    assert registry.names() == ("buy", *BUILT_IN, "zap")
    assert registry.get("buy").module == "shop"
    assert registry.get("nothing") is None


def test_declarations_are_sorted_as_the_names_are(write_module):
    registry = Registry.load([write_module("shop", "@tool", "def zap(): return 1")], ["lookup"])
    assert [spec.name for spec in registry.specs()] == ["lookup", "zap"]


def test_two_tools_of_one_name_are_refused_with_both_places(write_module):
    one = write_module("first", "@tool", "def buy(): return 1")
    two = write_module("second", "@tool", "def buy(): return 1")
    with pytest.raises(InvalidTool, match=r"first\.buy .*second\.buy"):
        Registry.load([one, two])


def test_a_tool_of_the_project_goes_before_a_built_in_one_of_its_name(write_module):
    registry = Registry.load([write_module("mine", "@tool", "def calculator(): return 1")], ["all"])
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
