"""What a model's name means to the fake: real names get their real rules, unknown ones the newest, flags the rest.

A flag is a part of the name, so that any client can choose it: ``fake-no-temperature``,
``claude-opus-4-5-context-4000``. Flags: ``no-temperature`` ``no-include`` ``no-tools`` ``no-stream``
``no-usage`` ``no-system`` ``no-developer`` ``no-stop`` ``no-effort`` ``no-parallel``
``no-null-content`` ``no-empty-content`` ``no-user-after-tool`` ``no-max-tokens``
``no-max-completion-tokens`` ``needs-reasoning`` ``missing`` ``context-N`` (tokens) ``body-N`` (bytes).
"""

import re
from functools import lru_cache

NEWEST = (99, 0)
_NEW = re.compile(r"claude-(?:opus|sonnet|haiku|fable|mythos)-(\d{1,2})(?:-(\d{1,2}))?(?!\d)")
_OLD = re.compile(r"claude-(\d)(?:-(\d))?-")
_GEMINI = re.compile(r"gemini-(\d+)(?:\.(\d+))?")


def has(model: str, flag: str) -> bool:
    """Say whether a model's name carries a flag."""
    return f"-{flag}-" in f"-{model}-"


@lru_cache(maxsize=256)
def number(model: str, flag: str) -> int | None:
    """Return the number of a flag such as ``context-4000``, None if the name has none."""
    found = re.search(rf"(?:^|-){flag}-(\d+)(?:-|$)", model)
    return int(found.group(1)) if found else None


@lru_cache(maxsize=256)
def claude_generation(model: str) -> tuple[int, int]:
    """Return (major, minor) of a Claude model; an unknown name counts as the newest."""
    found = _NEW.search(model) or _OLD.search(model)
    return (int(found.group(1)), int(found.group(2) or 0)) if found else NEWEST


@lru_cache(maxsize=256)
def gemini_generation(model: str) -> tuple[int, int]:
    """Return (major, minor) of a Gemini model; an unknown name counts as the newest."""
    found = _GEMINI.search(model)
    return (int(found.group(1)), int(found.group(2) or 0)) if found else NEWEST


def claude_refuses_sampling(model: str) -> bool:
    """Say whether temperature and its kin are refused, whatever their value."""
    family = "opus" in model and claude_generation(model) >= (4, 7)
    return family or "fable" in model or "mythos" in model or has(model, "no-temperature")


def claude_refuses_budgets(model: str) -> bool:
    """Say whether ``thinking: enabled`` is refused in favour of ``adaptive``."""
    major, minor = claude_generation(model)
    return major != NEWEST[0] and ((major, minor) >= (5, 0) or ("opus" in model and (major, minor) >= (4, 7)))


def openai_refuses_temperature(model: str, effort: str | None) -> bool:
    """Say whether a temperature is refused: the o-series, gpt-5, and gpt-5.x once it reasons."""
    if has(model, "no-temperature") or re.match(r"o\d|gpt-5(?!\.)", model):
        return True
    return model.startswith("gpt-5.") and effort not in (None, "none")


def openai_renamed_max_tokens(model: str) -> bool:
    """Say whether chat's ``max_tokens`` is refused in favour of ``max_completion_tokens``."""
    return has(model, "no-max-tokens") or re.match(r"o\d|gpt-5", model) is not None


def chat_needs_reasoning(model: str) -> bool:
    """Say whether every turn with calls must carry its ``reasoning_content``, as DeepSeek asks while it thinks."""
    return "deepseek-reasoner" in model or has(model, "needs-reasoning")


def chat_signs_reasoning(model: str) -> bool:
    """Say whether reasoning comes as signed ``reasoning_details``, as OpenRouter (``vendor/model``) sends it."""
    return "/" in model


def gemini_demands_signatures(model: str) -> bool:
    """Say whether the first call of each step must carry its thought signature."""
    return gemini_generation(model) >= (3, 0)
