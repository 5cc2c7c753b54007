"""The built-in tool ``fetch_url``."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from roundelay_worker.tools.builtin.fetching import Fetcher, Page
from roundelay_worker.tools.declare.decorator import tool


def make_fetch_url(fetcher: Fetcher) -> Callable[..., Awaitable[Page]]:
    """Return the tool, fetching with ``fetcher``."""

    @tool(effect="read")
    async def fetch_url(
        url: Annotated[str, Field(max_length=2_000, description="an http or https URL of the public internet")],
        max_chars: Annotated[int, Field(ge=100, le=200_000, description="how much of the text to return")] = 20_000,
    ) -> Page:
        """Fetch a public web page or text file and return its text; HTML comes without its tags."""
        page = await fetcher.fetch(url)
        return replace(page, text=page.text[:max_chars], truncated=page.truncated or len(page.text) > max_chars)

    return fetch_url
