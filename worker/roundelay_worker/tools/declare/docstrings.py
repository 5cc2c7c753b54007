"""Reads what a docstring says to the model: the description, and Google-style ``Args``."""

import inspect
import re
from dataclasses import dataclass, field
from itertools import pairwise

_SECTION = re.compile(
    r"^(Args|Arguments|Parameters|Returns?|Yields?|Raises|Examples?|Notes?|Attributes|See Also|Todo|Warnings?):\s*$"
)
_ITEM = re.compile(r"^(?P<name>\*{0,2}\w+)\s*(\([^)]*\))?\s*:\s*(?P<text>.*)$")


@dataclass(frozen=True, slots=True)
class Description:
    """A docstring, taken apart: ``text`` up to the first section, and a text for each documented parameter."""

    text: str = ""
    parameters: dict[str, str] = field(default_factory=dict)


def read_docstring(docstring: str | None) -> Description:
    """Return what ``docstring`` says; sections other than ``Args`` are for people and left out."""
    lines = inspect.cleandoc(docstring or "").splitlines()
    starts = [number for number, line in enumerate(lines) if _SECTION.match(line)]
    text = "\n".join(lines[: starts[0]] if starts else lines).strip()
    parameters: dict[str, str] = {}
    for start, end in pairwise([*starts, len(lines)]):
        if lines[start].startswith(("Args", "Arguments", "Parameters")):
            parameters.update(_items(lines[start + 1 : end]))
    return Description(text, parameters)


def _items(lines: list[str]) -> dict[str, str]:
    """Return the entries of an ``Args`` section; what is indented deeper goes on with the entry above."""
    items: dict[str, str] = {}
    body = inspect.cleandoc("\n" + "\n".join(lines)).splitlines()
    name = ""
    for line in body:
        item = _ITEM.match(line)
        if item:
            name = item["name"]
            items[name] = item["text"]
        elif name and line.strip():
            items[name] = f"{items[name]} {line.strip()}".strip()
    return items
