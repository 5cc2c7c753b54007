import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def _release_hanging_tools() -> Iterator[None]:
    """Let threads of overrun tools end with their test."""
    import sample_tools  # noqa: PLC0415 - on the path by the line above only

    sample_tools.RELEASE.clear()
    yield
    sample_tools.RELEASE.set()


@pytest.fixture
def write_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(tmp_path)
    written = []

    def write(name: str, *lines: str) -> str:
        (tmp_path / f"{name}.py").write_text("\n".join(["from roundelay_worker import tool", *lines]))
        written.append(name)
        return name

    yield write
    for name in written:
        sys.modules.pop(name, None)
