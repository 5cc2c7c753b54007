"""What a message runs with: submit beats environment beats default, resolved once when it starts."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Final

import orjson

from roundelay_worker.engine.session import Session, Setup
from roundelay_worker.loop.events import Started
from roundelay_worker.loop.history import Entry, UserText
from roundelay_worker.loop.language import guess_language
from roundelay_worker.loop.ledger import with_ledger
from roundelay_worker.loop.state import Limits
from roundelay_worker.providers.base import Provider, ToolSpec
from roundelay_worker.settings import Settings
from roundelay_worker.store.store import Store
from roundelay_worker.tools.registry import Registry

_MOST_BYTES: Final = {"anthropic": 30_000_000, "google": 19_000_000}
_MOST_BYTES_ELSEWHERE: Final = 19_000_000
"""Body limits: Anthropic 32 MB, Gemini 20 MB inline, Ollama 20 MB; with room for what is around the history."""


def said_before(context: tuple[Entry, ...]) -> tuple[str, ...]:
    """Return what the user said before, oldest first."""
    return tuple(entry.text for entry in context if isinstance(entry, UserText))


class CannotStart(Exception):
    """The message cannot run as it was asked for; the text says what to mend."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class BetterElsewhere(Exception):
    """This worker lacks what a message needs, and a live one has it: the message is left to that one."""


_GONE: Final = "This tool is not available any more. Do not call it."


def offers(tools: Iterable[str], providers: Iterable[str]) -> tuple[str, ...]:
    """Return what a worker tells the others that it has: its tools, and the providers that it can speak to."""
    return (*(f"tool:{name}" for name in tools), *(f"model:{name}" for name in providers))


@dataclass(frozen=True, slots=True)
class _Resolved:
    model: str
    system: str
    tools: tuple[str, ...]


class Resolver:
    """Turns submissions and settings into setups.

    In a rolling deploy workers differ. A message that has begun goes on with the tools that are here; what a caller
    named, and a model, may be with another worker only.
    """

    def __init__(
        self, settings: Settings, registry: Registry, store: Store, provider_of: Callable[[str], Provider]
    ) -> None:
        self._settings = settings
        self._registry = registry
        self._store = store
        self._provider_of = provider_of

    async def start(self, session: Session, now: float) -> tuple[Setup, Started]:
        """Resolve everything for a message that begins; raise CannotStart with what to mend, or BetterElsewhere."""
        resolved = self._resolve(session)
        await self._check_tools(resolved)
        setup = await self._setup(session, resolved)
        session.resolved = orjson.dumps(
            {"model": resolved.model, "system": resolved.system, "tools": resolved.tools}
        ).decode()
        return setup, self._started(session, setup, now)

    async def again(self, session: Session) -> Setup:
        """Resolve a message that began elsewhere to the same, as far as its tools are here.

        Raises CannotStart if its model cannot be spoken to by any worker, BetterElsewhere if by another.
        """
        if session.resolved is None:
            return await self._setup(session, self._resolve(session))
        kept = orjson.loads(session.resolved)
        return await self._setup(session, _Resolved(kept["model"], kept["system"], tuple(kept["tools"])))

    def _resolve(self, session: Session) -> _Resolved:
        submission = session.submission
        model = submission.model or self._settings.model
        if model is None:
            raise CannotStart("no_model", "No model is set: give model= at submit or set ROUNDELAY_MODEL.")
        system = submission.system if submission.system is not None else self._settings.system_prompt
        return _Resolved(model, system, self._here(model) if submission.tools is None else submission.tools)

    def _here(self, model: str) -> tuple[str, ...]:
        """Return the tools of this worker for a model: the demo has the built-in ones that are off, too."""
        return self._registry.names(with_spare=model.startswith("demo:"))

    async def _check_tools(self, resolved: _Resolved) -> None:
        """Raise CannotStart for a tool that no worker has, BetterElsewhere if another has what is missing here."""
        here = self._here(resolved.model)
        missing = sorted(set(resolved.tools).difference(here))
        if missing and await self._is_elsewhere(offers(missing, ())):
            raise BetterElsewhere
        if missing:
            text = f"unknown tools: {', '.join(missing)}; known are {', '.join(here) or 'none'}"
            raise CannotStart("unknown_tool", text)

    async def _is_elsewhere(self, needed: Iterable[str]) -> bool:
        return any(offered.issuperset(needed) for offered in await self._store.offered())

    async def _provider(self, model: str) -> Provider:
        try:
            return self._provider_of(model)
        except CannotStart as exc:
            if exc.code == "credentials" and await self._is_elsewhere(offers((), (model.partition(":")[0],))):
                raise BetterElsewhere from exc
            raise

    def _spec(self, name: str, here: Collection[str]) -> ToolSpec:
        """Return a tool's declaration; one that is gone stays declared, since the history may hold calls of it."""
        tool = self._registry.get(name) if name in here else None
        return tool.spec if tool else ToolSpec(name, _GONE, {"type": "object", "properties": {}})

    async def _setup(self, session: Session, resolved: _Resolved) -> Setup:
        here = set(self._here(resolved.model))
        room = 0 if session.first else self._settings.context_messages
        context = await self._store.context(session.message_id, room)
        return Setup(
            provider=await self._provider(resolved.model),
            model=resolved.model,
            system=resolved.system,
            tools=tuple(self._spec(name, here) for name in sorted(set(resolved.tools))),
            tool_names=tuple(sorted(here.intersection(resolved.tools))),
            submission=session.submission,
            context=context.history,
            asked=with_ledger(session.submission.text, context.recorded),
            tool_result_bytes=self._settings.tool_result_bytes,
            most_request_bytes=_MOST_BYTES.get(resolved.model.partition(":")[0], _MOST_BYTES_ELSEWHERE),
        )

    def _started(self, session: Session, setup: Setup, now: float) -> Started:
        settings, submission = self._settings, session.submission
        timeout = submission.message_timeout or settings.message_timeout
        return Started(
            now=now,
            limits=self._limits(session),
            language=submission.language or guess_language(submission.text, said_before(setup.context)),
            message_timeout=timeout,
            closing_reserve=settings.closing_reserve_for(timeout),
        )

    def _limits(self, session: Session) -> Limits:
        settings, submission = self._settings, session.submission
        options = submission.model_options
        return Limits(
            max_rounds=settings.max_rounds if submission.max_rounds is None else submission.max_rounds,
            model_attempts=settings.model_attempts,
            max_output_tokens=options.max_output_tokens or settings.max_output_tokens,
            may_double=options.max_output_tokens is None and "max_output_tokens" not in settings.model_fields_set,
            max_total_tokens=submission.max_total_tokens or settings.max_total_tokens,
            parallel_reads=settings.parallel_reads,
            repeat_limit=settings.repeat_limit,
            max_retry_delay=settings.max_retry_delay,
        )
