"""Every setting of a worker, read from the environment, checked at once, and never printed where it is a secret."""

import difflib
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import quote, unquote, urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationError
from pydantic_core import ErrorDetails

from roundelay._core.urls import redis_url
from roundelay.errors import NotConfigured
from roundelay.messages import DEFAULT_MAX_MESSAGE_BYTES, check_model
from roundelay.names import DEFAULT_PREFIX
from roundelay.settings import ADDRESSES, broker_of, home
from roundelay_worker.database_url import database_url

ENV_PREFIX: Final = "ROUNDELAY_"

PROVIDER_NAMES: Final = (
    "openai_api_key",
    "openai_base_url",
    "anthropic_api_key",
    "anthropic_base_url",
    "gemini_api_key",
    "gemini_base_url",
)
"""Fields whose variables carry no prefix: the names that the providers' own programs read."""

SUPERVISED: Final = "ROUNDELAY_SUPERVISED"
"""Set for worker processes of ``roundelay worker`` and ``up``, which tell once for all what is odd in the settings."""

OTHER_NAMES: Final = frozenset({"ROUNDELAY_FLOWER_AUTH", "ROUNDELAY_RECORDINGS", "ROUNDELAY_INPUTS", SUPERVISED})
"""Variables with the prefix that are not settings of a worker."""

_ADDRESS_NAMES: Final = ("redis_url", "broker_url", "database_url", "prefix")
_TOLERATED_ENDINGS: Final = ("/", "/v1", "/v1beta")


EXIT_UNFIT: Final = 78
"""How a process ends whose configuration cannot be used (``EX_CONFIG``): no later start would go better."""


class SettingsError(ValueError):
    """The settings cannot be used; ``faults`` has one sentence for each, none of them with a value in it."""

    def __init__(self, faults: tuple[str, ...]) -> None:
        super().__init__("\n".join(("the settings cannot be used:", *(f"  {fault}" for fault in faults))))
        self.faults = faults


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a provider is and what opens it; None means the provider's own default, or no key."""

    base_url: str | None
    api_key: SecretStr | None


def _names(text: Any) -> Any:
    return tuple(filter(None, map(str.strip, text.split(",")))) if isinstance(text, str) else text


def _known_scheme(url: str, schemes: tuple[str, ...]) -> str:
    scheme, colon, _ = url.partition("://")
    if not colon or scheme not in schemes:
        raise ValueError(f"must begin with {', '.join(f'{name}://' for name in schemes)}")
    return url


def _redis_url(url: str) -> str:
    try:
        return redis_url(url, "")
    except NotConfigured as exc:
        raise ValueError(str(exc).strip()) from None


def _broker_url(url: str) -> str:
    try:
        return broker_of(url)
    except NotConfigured as exc:
        raise ValueError(str(exc)) from None


def _database_url(url: str) -> str:
    if url.startswith("sqlite:") and url.endswith(":memory:"):
        raise ValueError("must name a file: all processes share it")
    return database_url(url)


def _base_url(url: str) -> str:
    _known_scheme(url, ("http", "https"))
    while ending := next((end for end in _TOLERATED_ENDINGS if url.endswith(end)), ""):
        url = url.removesuffix(ending)
    return url


def _chat_url(url: str) -> str:
    """Return the address with its path: compatible servers have theirs in many places, ``/v1`` where none is given."""
    url = _known_scheme(url, ("http", "https")).rstrip("/")
    return url if urlsplit(url).path else f"{url}/v1"


Seconds = Annotated[float, Field(gt=0, le=31_536_000, allow_inf_nan=False)]
Size = Annotated[int, Field(gt=0)]
BaseUrl = Annotated[str, AfterValidator(_base_url)]
ChatUrl = Annotated[str, AfterValidator(_chat_url)]
ModuleName = Annotated[str, Field(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$")]
Names = Annotated[tuple[ModuleName, ...], BeforeValidator(_names)]
Level = Annotated[Literal["DEBUG", "INFO", "WARNING", "ERROR"], BeforeValidator(lambda text: str(text).upper())]


class Settings(BaseModel):
    """The settings of a worker process; times in seconds, sizes in bytes."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    home: Path
    redis_url: Annotated[str, AfterValidator(_redis_url), Field(repr=False)]
    broker_url: Annotated[str, AfterValidator(_broker_url), Field(repr=False, pattern=r"^[a-z][a-z+]*://")]
    database_url: Annotated[str, AfterValidator(_database_url), Field(repr=False)]
    prefix: Annotated[str, Field(pattern=r"^[A-Za-z0-9._:-]{1,64}$")] = DEFAULT_PREFIX

    model: Annotated[str, AfterValidator(check_model)] | None = None
    system_prompt: Annotated[str, Field(repr=False)] = ""
    tool_modules: Names = ()
    builtin_tools: Names = ()
    setup: Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")] | None = None

    max_rounds: Annotated[int, Field(ge=0, le=100_000)] = 10
    context_messages: Size = 20
    parallel_reads: Size = 4
    tool_result_bytes: Annotated[int, Field(ge=1_024)] = 65_536
    repeat_limit: Annotated[int, Field(ge=2)] = 3
    max_output_tokens: Annotated[int, Field(ge=16)] = 8_192
    max_total_tokens: Size | None = None
    model_attempts: Size = 4
    max_message_bytes: Size = DEFAULT_MAX_MESSAGE_BYTES
    """Kept by clients, at ``submit``; read here so that a wrong one is told of at start and by ``roundelay doctor``."""

    connect_timeout: Seconds = 10
    idle_timeout: Seconds = 180
    turn_timeout: Seconds = 300
    tool_timeout: Seconds = 30
    message_timeout: Seconds = 1_800
    closing_reserve: Seconds | None = None
    queue_timeout: Seconds | None = None
    max_retry_delay: Annotated[float, Field(ge=0, le=86_400)] = 60
    answer_ttl: Size = 86_400

    lease: Annotated[float, Field(ge=1, le=600)] = 6
    sweep: Annotated[float, Field(ge=0.1, le=600)] = 2
    shutdown_grace: Seconds = 30
    concurrency: Annotated[int, Field(gt=0, le=10_000)] = 250
    max_loose: Size = 50
    retention: Seconds = 2_592_000
    log_level: Level = "INFO"

    chat_base_url: ChatUrl | None = None
    chat_api_key: SecretStr | None = None
    openai_api_key: SecretStr | None = None
    openai_base_url: BaseUrl | None = None
    anthropic_api_key: SecretStr | None = None
    anthropic_base_url: BaseUrl | None = None
    gemini_api_key: SecretStr | None = None
    gemini_base_url: BaseUrl | None = None

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> "Settings":
        """Return the settings of ``env``; raise SettingsError with every fault. An empty variable is an unset one.

        Where no Redis URL is set, the addresses that ``roundelay up`` wrote to the home folder are used.
        """
        given = dict(_given(env))
        given["home"] = str(home_folder(env))
        addresses = {} if "redis_url" in given else read_addresses(Path(given["home"]))
        return _checked(_with_defaults({**addresses, **given}))

    def endpoint(self, provider: str) -> Endpoint:
        """Return address and key of ``openai``, ``chat``, ``anthropic`` or ``google``."""
        openai = Endpoint(self.openai_base_url, self.openai_api_key)
        endpoints = {
            "openai": openai,
            "chat": Endpoint(self.chat_base_url, self.chat_api_key) if self.chat_base_url else openai,
            "anthropic": Endpoint(self.anthropic_base_url, self.anthropic_api_key),
            "google": Endpoint(self.gemini_base_url, self.gemini_api_key),
        }
        return endpoints.get(provider, Endpoint(None, None))

    def closing_reserve_for(self, message_timeout: float) -> float:
        """Return the seconds kept aside for the closing turn of a message that may take ``message_timeout``."""
        if self.closing_reserve is None:
            return min(60.0, message_timeout / 5)
        return min(self.closing_reserve, message_timeout / 2)


def variable(field: str) -> str:
    """Return the environment variable of a field of Settings."""
    return field.upper() if field in PROVIDER_NAMES else f"{ENV_PREFIX}{field.upper()}"


SECRET_VARIABLES: Final = frozenset(
    {
        *(variable(field) for field in Settings.model_fields if field.endswith("_api_key")),
        *(variable(field) for field in ("redis_url", "broker_url", "database_url")),
        "GOOGLE_API_KEY",
        "ROUNDELAY_FLOWER_AUTH",
    }
)
"""The variables that hold keys and passwords."""


def secrets_of(settings: Settings) -> tuple[str, ...]:
    """Return the keys and passwords of these settings, the longest first: what must never leave the worker."""
    keys = [value for name in Settings.model_fields if isinstance(value := getattr(settings, name), SecretStr)]
    urls = (settings.redis_url, settings.broker_url, settings.database_url)
    passwords = [unquote(urlsplit(url).password or "") for url in urls]
    found = {*(key.get_secret_value() for key in keys), *passwords}
    return tuple(sorted(filter(None, found), key=len, reverse=True))


def home_folder(env: Mapping[str, str]) -> Path:
    """Return the folder of the default database and of what ``roundelay up`` writes."""
    return home(env).absolute()


def sqlite_url(folder: Path) -> str:
    """Return the URL of the SQLite file that is the database where no other is named."""
    return f"sqlite:///{quote(str(folder / 'roundelay.db'))}"


def make_home(home: Path) -> None:
    """Make the home folder, its owner's alone, where it is not there; raise SettingsError if it cannot be made."""
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as exc:
        raise SettingsError((f"ROUNDELAY_HOME: the folder {home} cannot be made ({type(exc).__name__})",)) from exc


def make_database_folder(settings: Settings) -> None:
    """Make the home folder where the default SQLite file is to lie in it."""
    if settings.database_url == sqlite_url(settings.home):
        make_home(settings.home)


def read_addresses(folder: Path) -> dict[str, str]:
    """Return what a running ``roundelay up`` wrote to its home folder; nothing if there is none."""
    try:
        written = json.loads((folder / ADDRESSES).read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as exc:
        raise SettingsError((f"{folder / ADDRESSES} cannot be read; remove it, or run `roundelay up` anew",)) from exc
    return {name: str(written[name]) for name in _ADDRESS_NAMES if written.get(name)}


def unknown_names(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return a sentence for each variable with our prefix that is no setting, with the likely one."""
    known = sorted({variable(field) for field in Settings.model_fields} | OTHER_NAMES)
    strangers = sorted(name for name in env if name.startswith(ENV_PREFIX) and name not in known)
    return tuple(f"{name} is not a setting{_likely(name, known)}" for name in strangers)


def _likely(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _given(env: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for field in Settings.model_fields:
        value = env.get(variable(field), "").strip()
        if field == "gemini_api_key" and not value:
            value = env.get("GOOGLE_API_KEY", "").strip()
        if value:
            yield field, value


def _with_defaults(given: dict[str, str]) -> dict[str, str]:
    if "redis_url" in given:
        with suppress(NotConfigured):  # told of the Redis URL itself
            given.setdefault("broker_url", broker_of(given["redis_url"]))
    given.setdefault("database_url", sqlite_url(Path(given["home"])))
    return given


def _checked(given: dict[str, str]) -> Settings:
    try:
        settings = Settings.model_validate(given)
    except ValidationError as exc:
        raise SettingsError(tuple(_sentences(exc.errors()))) from None
    if faults := tuple(_contradictions(settings)):
        raise SettingsError(faults)
    return settings


def _sentences(errors: list[ErrorDetails]) -> Iterator[str]:
    for error in errors:
        field = str(error["loc"][0])
        if error["type"] == "missing":
            if field == "redis_url":
                yield f"{variable(field)} is not set: set it to redis://host:6379/0, or start `roundelay up`"
            continue
        rule = _rule(error)
        yield f"{variable(field)}{' ' if rule.startswith('must ') else ': '}{rule}"


def _rule(error: ErrorDetails) -> str:
    if error["type"] == "string_pattern_mismatch":
        return _SHAPES[str(error["loc"][0])]
    rule = _RULES.get(error["type"], error["msg"].removeprefix("Value error, "))
    return rule.format_map(error.get("ctx", {}))


_RULES: Final = {
    "int_parsing": "must be a whole number",
    "float_parsing": "must be a number (times are in seconds)",
    "finite_number": "must be a finite number",
    "greater_than": "must be more than {gt:g}",
    "greater_than_equal": "must be at least {ge:g}",
    "less_than_equal": "must be at most {le:g}",
    "literal_error": "must be one of {expected}",
}

_SHAPES: Final = {
    "broker_url": "must be a URL such as redis://host:6379/0 or amqp://host",
    "prefix": "must be 1 to 64 letters, digits and . _ : -",
    "tool_modules": "must be module names with commas between them, such as shop.tools,shop.search",
    "builtin_tools": "must be names with commas between them, such as calculator,current_time, or all",
    "setup": "must be module:function",
}


def _contradictions(settings: Settings) -> Iterator[str]:
    if settings.sweep > settings.lease:
        yield "ROUNDELAY_SWEEP must not be longer than ROUNDELAY_LEASE, or lost work waits for nothing"
    if settings.closing_reserve is not None and settings.closing_reserve > settings.message_timeout / 2:
        yield "ROUNDELAY_CLOSING_RESERVE must be at most half of ROUNDELAY_MESSAGE_TIMEOUT: it is a part of it"
    if settings.retention < settings.answer_ttl:
        yield "ROUNDELAY_RETENTION must not be less than ROUNDELAY_ANSWER_TTL: answers would be lost before they expire"
