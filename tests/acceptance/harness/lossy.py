"""A SETUP function under which every other save happens, and its reply is lost."""

import functools
from itertools import count
from typing import Any

from roundelay_worker.store.errors import StoreUnavailable
from roundelay_worker.store.store import Store

SAVES = count(1)


def setup() -> None:
    """Lose the reply of every other save, in this worker process."""
    Store.save = _lossy(Store.save)  # type: ignore[method-assign]


def _lossy(save: Any) -> Any:
    @functools.wraps(save)
    async def wrapped(self: Store, wanted: Any) -> Any:
        saved = await save(self, wanted)
        if next(SAVES) % 2 == 0 and saved is not None:
            raise StoreUnavailable("the reply was lost")
        return saved

    return wrapped
