"""Breaks the core in one place at a time, and tells which breaks no test of this folder sees.

    python tests/loop/mutate.py [FILE ...]       # names of files in loop/; all of them by default

A mutant is a copy of the package with one comparison, condition, constant or sum changed. The quick tests see it
first; only one that they pass meets the others.
"""

import ast
import copy
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "worker" / "roundelay_worker"
TESTS = ROOT / "tests" / "loop"
ENOUGH = [str(TESTS), "-k", "not cap1 and not large_enough and not stack_trace"]
"""Everything but the largest worlds."""
QUICK = [
    str(TESTS / f"test_{name}.py")
    for name in ("sentences", "closing", "limits", "calls", "doubt", "repetition", "stories", "interplay")
]
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.Pow: ast.Mult,
}  # fmt: skip
Change = Callable[[ast.AST], None]


def changes(node: ast.AST) -> Iterator[Change]:
    """Yield the ways to break one node, each as something to do to a copy of it."""
    match node:
        case ast.Compare(ops=[op]) if type(op) in SWAPS:
            yield lambda n: n.ops.__setitem__(0, SWAPS[type(n.ops[0])]())  # type: ignore[attr-defined]
        case ast.BoolOp(values=values):
            yield lambda n: setattr(n, "op", SWAPS[type(n.op)]())  # type: ignore[attr-defined]
            for index in range(len(values)):
                yield lambda n, i=index: n.values.pop(i)  # type: ignore[misc]
        case ast.BinOp(op=op) if type(op) in SWAPS:
            yield lambda n: setattr(n, "op", SWAPS[type(n.op)]())  # type: ignore[attr-defined]
        case ast.UnaryOp(op=ast.Not()):
            yield lambda n: setattr(n, "operand", ast.UnaryOp(ast.Not(), n.operand))  # type: ignore[attr-defined]
        case ast.If() | ast.IfExp() | ast.comprehension(ifs=[_, *_]):
            yield _negate
        case ast.Constant(value=bool()):
            yield lambda n: setattr(n, "value", not n.value)  # type: ignore[attr-defined]
        case ast.Constant(value=int() | float()):
            yield lambda n: setattr(n, "value", n.value + 1)  # type: ignore[attr-defined]
        case ast.keyword(arg=str(), value=ast.Constant(value=None)):
            yield lambda n: setattr(n, "value", ast.Constant(1))


def _negate(node: ast.AST) -> None:
    if isinstance(node, ast.comprehension):
        node.ifs[0] = ast.UnaryOp(ast.Not(), node.ifs[0])
    else:
        node.test = ast.UnaryOp(ast.Not(), node.test)  # type: ignore[attr-defined]


def mutants(source: str) -> Iterator[tuple[int, str]]:
    """Yield each mutant of a source with the line where it differs."""
    tree = ast.parse(source)
    for index, node in enumerate(ast.walk(tree)):
        for change in changes(node):
            broken = copy.deepcopy(tree)
            at = next(n for i, n in enumerate(ast.walk(broken)) if i == index)
            change(at)
            yield getattr(node, "lineno", 0), ast.unparse(ast.fix_missing_locations(broken))


def survives(home: Path, name: str, text: str) -> bool:
    """Say whether the tests pass with this text as the file ``name`` of the core."""
    place = home / "roundelay_worker" / "loop" / name
    place.write_text(text)
    passed = all(_passes(home, tests) for tests in (QUICK, ENOUGH))
    shutil.copy(PACKAGE / "loop" / name, place)
    return passed


def _passes(home: Path, tests: list[str]) -> bool:
    settings = {"PYTHONPATH": str(home), "PYTHONDONTWRITEBYTECODE": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "--no-header", "-p", "pytest_timeout", "--timeout=100", *tests]
    ran = subprocess.run(command, check=False, cwd=ROOT, env=os.environ | settings, capture_output=True)
    return ran.returncode == 0


def main(names: list[str]) -> int:
    """Try every mutant; return how many survived."""
    work = [(n, *mutant) for n in names for mutant in mutants((PACKAGE / "loop" / n).read_text())]
    homes: Queue[Path] = Queue()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        for copied in ("a", "b"):
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(PACKAGE, Path(folder) / copied / "roundelay_worker", ignore=ignored)
            homes.put(Path(folder) / copied)

        if not _passes(Path(folder) / "a", ENOUGH):
            raise SystemExit("the tests fail without any mutant")

        def tried(mutant: tuple[str, int, str]) -> bool:
            home, (name, line, text) = homes.get(), mutant
            alive = survives(home, name, text)
            homes.put(home)
            if alive:
                original = ast.unparse(ast.parse((PACKAGE / "loop" / name).read_text())).splitlines()
                differs = [new for old, new in zip(original, text.splitlines(), strict=False) if old != new]
                _say(f"{name}:{line}: {differs[0].strip() if differs else '?'}")
            return alive

        alive = sum(pool.map(tried, work))
    _say(f"{len(work)} mutants, {alive} survived")
    return alive


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1:] or sorted(p.name for p in (PACKAGE / "loop").glob("*.py"))), 1))
