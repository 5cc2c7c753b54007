"""The web app: submits, calls back, waits, and keeps its own record of what it was told."""

import asyncio
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field

from roundelay import AnswerTimeout, AsyncClient, MessageNotFound, ServiceUnavailable
from soak.plan import Message, Plan

LOOK_AGAIN = 10.0
RETRY = 0.5


@dataclass(slots=True)
class Submitted:
    """One submit that returned, and what became of it as far as the web app knows."""

    message: Message
    message_id: str
    began: float
    returned: float
    refusals: int
    """How often ``submit`` raised before: nobody can know whether such a message was stored."""
    cancelled: bool = False
    status: str = ""
    answered: float = 0.0
    lost: str = ""
    """Why it is not owed an answer: what took it while only Redis had it."""


@dataclass
class Ledger:
    """What was submitted, in the order in which the submits returned; written by the web app's thread alone."""

    submitted: list[Submitted] = field(default_factory=list)
    lost: dict[str, str] = field(default_factory=dict)
    """Ids of messages that were taken with Redis before a worker had them, and by what; written by the chaos."""

    def order(self, conversation: str) -> list[Submitted]:
        """Return what was submitted to a conversation and is owed an answer, in order."""
        return [each for each in self.submitted if each.message.conversation == conversation and not each.lost]


class WebApp(threading.Thread):
    """A thread with an event loop that works off a plan: at most ``at_once`` messages are under way."""

    def __init__(self, url: str, prefix: str, plan: Plan, ledger: Ledger, *, at_once: int, minutes: float) -> None:
        super().__init__(name="web-app", daemon=True)
        self._url, self._prefix = url, prefix
        self._plan, self._ledger = plan, ledger
        self._at_once = at_once
        self._pause = minutes * 60 / max(len(plan.conversations), 1)
        self.give_up = threading.Event()
        self.fault: BaseException | None = None

    def run(self) -> None:
        """Work off the plan."""
        try:
            asyncio.run(self._work())
        except BaseException as fault:  # noqa: BLE001 - the main thread tells
            self.fault = fault

    async def _work(self) -> None:
        self._slots = asyncio.Semaphore(self._at_once)
        async with AsyncClient(self._url, prefix=self._prefix) as client:
            self._client = client
            going = []
            began = time.monotonic()
            for number, conversation in enumerate(self._plan.conversations):
                await asyncio.sleep(max(0.0, began + number * self._pause - time.monotonic()))
                async with self._slots:
                    going.append(asyncio.create_task(self._converse(conversation)))
            await asyncio.gather(*going)

    async def _converse(self, conversation: tuple[Message, ...]) -> None:
        one_by_one = asyncio.Lock()
        waits = []
        for message in conversation:
            await self._slots.acquire()
            sent = await self._submit(message, one_by_one, message.name)
            waiting = asyncio.create_task(self._see_through(sent, one_by_one))
            waits.append(waiting)
            if message.waits:
                await asyncio.wait({waiting})
        await asyncio.gather(*waits)

    async def _submit(self, message: Message, one_by_one: asyncio.Lock, key: str) -> Submitted:
        refusals = 0
        async with one_by_one:
            while True:
                began = time.time()
                try:
                    job = await self._client.submit(
                        message.text,
                        conversation_id=message.conversation,
                        user_id=message.user,
                        model=message.model,
                        metadata={"name": message.name},
                        idempotency_key=key,
                    )
                except ServiceUnavailable:
                    refusals += 1
                    await asyncio.sleep(RETRY)
                    continue
                sent = Submitted(message, job.message_id, began, time.time(), refusals)
                self._ledger.submitted.append(sent)
                return sent

    async def _see_through(self, sent: Submitted, one_by_one: asyncio.Lock) -> None:
        """Wait for the answer; submit again, as a web app would, what Redis took with it."""
        calling_back = asyncio.create_task(self._call_back(sent)) if sent.message.cancel_after is not None else None
        while not self.give_up.is_set() and not await self._answered(sent):
            if sent.message_id in self._ledger.lost:
                sent.lost = self._ledger.lost[sent.message_id]
                sent = await self._submit(sent.message, one_by_one, f"{sent.message.name} again {sent.message_id}")
        self._slots.release()
        if calling_back is not None:
            await calling_back

    async def _answered(self, sent: Submitted) -> bool:
        try:
            answer = await self._client.get(sent.message_id).wait(timeout=LOOK_AGAIN)
        except (AnswerTimeout, ServiceUnavailable):
            return False
        except MessageNotFound:
            await asyncio.sleep(RETRY)
            return False
        sent.status, sent.answered = answer.status, time.time()
        return True

    async def _call_back(self, sent: Submitted) -> None:
        await asyncio.sleep(sent.message.cancel_after or 0)
        with suppress(ServiceUnavailable, MessageNotFound):
            sent.cancelled = await self._client.get(sent.message_id).cancel()
