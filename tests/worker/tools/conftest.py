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
