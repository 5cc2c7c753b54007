"""What goes into Roundelay: a submission, checked before anything is stored."""

import re
from difflib import get_close_matches
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, StringConstraints, field_validator

from roundelay.names import ID_PATTERN, PROVIDERS, OnBusy

DEFAULT_MAX_MESSAGE_BYTES = 1_048_576
MAX_CONTEXT_BYTES = 16_384

Identifier = Annotated[str, StringConstraints(pattern=f"^{ID_PATTERN}$")]
UserIdentifier = Annotated[str, StringConstraints(pattern=f"^({ID_PATTERN})?$")]


def check_model(model: str) -> str:
    """Return ``model`` if it is ``provider:name`` with a known provider; else raise ValueError saying what is wrong."""
    if model == "demo:":
        return "demo:rules"
    provider, colon, name = model.partition(":")
    if not colon or not name.strip():
        raise ValueError(f"a model is written provider:model, for example {PROVIDERS[0]}:gpt-5")
    if provider not in PROVIDERS:
        near = get_close_matches(provider, PROVIDERS, n=1)
        hint = f"did you mean {near[0]}:?" if near else f"known are {', '.join(PROVIDERS)}"
        raise ValueError(f"unknown provider; {hint}")
    return model


def check_language(language: str) -> str:
    """Return ``language`` if it looks like a language tag (``pt``, ``pt-BR``); else raise ValueError."""
    if not re.fullmatch(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*", language):
        raise ValueError("a language is a tag such as en, pt-BR or es")
    return language


class TextPart(BaseModel):
    """One piece of what the user sent; text is the only kind so far."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    type: Literal["text"] = "text"
    text: str


OUR_MEMBERS: Final = frozenset(
    {
        *("model", "messages", "input", "contents", "content", "prompt", "system", "systemInstruction", "instructions"),
        *("tools", "tool_choice", "toolConfig", "functions", "function_call", "stream", "stream_options", "n"),
        *("max_tokens", "max_output_tokens", "max_completion_tokens", "temperature", "reasoning", "reasoning_effort"),
        *("thinking", "generationConfig", "store", "include", "previous_response_id", "conversation", "container"),
        *("prompt_cache_key", "parallel_tool_calls", "background"),
    }
)
"""Members of request bodies, of all formats, that callers cannot set by ``extra``."""


class ModelOptions(BaseModel):
    """Wishes for the model; what a model refuses is left out once and logged."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    max_output_tokens: Annotated[int, Field(ge=16)] | None = None
    reasoning_effort: Annotated[str, StringConstraints(pattern=r"^[a-z]{1,16}$")] | None = None
    extra: dict[str, JsonValue] | None = None
    """Members of the request's body that are passed on as they are; none of those that Roundelay writes itself."""

    @field_validator("extra")
    @classmethod
    def _is_none_of_ours(cls, extra: dict[str, JsonValue] | None) -> dict[str, JsonValue] | None:
        if ours := sorted(OUR_MEMBERS.intersection(extra or ())):
            raise ValueError(f"{', '.join(ours)}: Roundelay writes this itself; use an option of its own for it")
        return extra


class Submission(BaseModel):
    """A message as it is stored; None means: the worker's setting, resolved once when the message starts."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    v: int = 1
    message_id: Identifier
    conversation_id: Identifier
    user_id: UserIdentifier = ""
    content: tuple[TextPart, ...]
    model: Annotated[str, AfterValidator(check_model)] | None = None
    system: str | None = None
    tools: tuple[str, ...] | None = None
    max_rounds: Annotated[int, Field(ge=0, le=100_000)] | None = None
    message_timeout: Annotated[float, Field(gt=0, le=604_800)] | None = None
    max_total_tokens: Annotated[int, Field(gt=0)] | None = None
    model_options: ModelOptions = ModelOptions()
    context: JsonValue = None
    metadata: JsonValue = None
    language: Annotated[str, AfterValidator(check_language)] | None = None
    on_busy: OnBusy = "queue"
    idempotency_key: Annotated[str, StringConstraints(min_length=1, max_length=255)] | None = None

    @field_validator("content")
    @classmethod
    def _has_text(cls, content: tuple[TextPart, ...]) -> tuple[TextPart, ...]:
        if not any(part.text.strip() for part in content):
            raise ValueError("the message is empty")
        return content

    @property
    def text(self) -> str:
        """The user's words, the parts joined."""
        return "\n".join(part.text for part in self.content)
