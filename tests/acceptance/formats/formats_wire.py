"""Where the parts of a request stand in each format, as the bytes that were sent."""

from roundelay_worker.providers.slices import members

HISTORIES = {"openai": "input", "chat": "messages", "anthropic": "messages", "google": "contents"}
MARK = b',"cache_control":{"type":"ephemeral"}'


def unmarked(raw: bytes) -> str:
    """Return a body without the marks of the cache, which are no part of what is cached."""
    return raw.replace(MARK, b"").decode()


def history(wire: str, body: str) -> str:
    """Return the open list of the history: a longer one begins with a shorter one."""
    return members(body)[HISTORIES[wire]].removesuffix("]")


def head(wire: str, body: str) -> list[tuple[str, str]]:
    """Return everything but the history, in the order in which it was sent."""
    return [(name, value) for name, value in members(body).items() if name != HISTORIES[wire]]
