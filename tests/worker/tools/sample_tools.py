"""Tools that the tests run, some in child processes that import this module."""

import asyncio
import contextvars
import dataclasses
import os
import signal
import subprocess
import threading
import time
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, Field, field_validator

from roundelay_worker import ToolContext, ToolError, tool

RELEASE = threading.Event()
"""Lets the threads of overrun tools go at the end of a test."""

VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("VARIABLE", default="unset")
PREPARED: list[str] = []


def prepare() -> None:
    PREPARED.append("prepared")


def fail_to_prepare() -> None:
    raise RuntimeError("secret of the set-up")


@tool(effect="read")
def echo(text: str) -> str:
    """Say it again."""
    return text


@tool(effect="read")
async def echo_async(text: str) -> str:
    """Say it again."""
    await asyncio.sleep(0)
    return text


@tool(effect="read")
def variable() -> str:
    """Tell the context variable."""
    return VARIABLE.get()


@tool(effect="read")
def whoami(context: ToolContext, suffix: str = "") -> dict[str, object]:
    """Tell the call."""
    return {"user": context.user_id, "key": context.idempotency_key, "context": context.context, "suffix": suffix}


@tool(effect="read")
def hang() -> str:
    """Hang until released."""
    RELEASE.wait(30)
    return "late"


@tool
def hang_writing() -> str:
    """Hang until released."""
    RELEASE.wait(30)
    return "late write"


@tool(effect="read")
async def hang_async() -> str:
    """Hang until cancelled."""
    await asyncio.sleep(30)
    return "never"


@tool
async def hang_writing_async() -> str:
    """Hang until cancelled."""
    await asyncio.sleep(30)
    return "never"


@tool
async def swallow_cancellation() -> str:
    """Hang until released, whatever is asked."""
    while not RELEASE.is_set():
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            continue
    return "late after all"


@tool(effect="read")
async def claims_to_be_cancelled() -> str:
    """Raise CancelledError of its own accord."""
    raise asyncio.CancelledError


@tool(effect="read")
def refuse() -> str:
    """Fail with words for the model."""
    raise ToolError("no such order", code="no_order", recovery="ask for the number")


@tool
def explode(how: Literal["value", "exit", "interrupt", "stop"] = "value") -> str:
    """Fail with a secret."""
    kinds = {"value": ValueError, "exit": SystemExit, "interrupt": KeyboardInterrupt, "stop": StopIteration}
    raise kinds[how]("secret")


class PanicException(BaseException):
    """What an extension written in Rust raises when it panics."""


@tool(effect="read")
async def explode_async(how: Literal["value", "exit", "group", "closed", "interrupt", "panic"] = "value") -> str:
    """Fail with a secret."""
    if how == "group":
        raise BaseExceptionGroup("secret", [SystemExit("secret")])
    kinds = {
        "value": ValueError,
        "exit": SystemExit,
        "closed": GeneratorExit,
        "interrupt": KeyboardInterrupt,
        "panic": PanicException,
    }
    raise kinds[how]("secret")


def _receipt() -> dict[object, object]:
    photo = {"photo": b"\xff\xfe", "name": "a"}
    return {"id": 7, "customer": object(), "rows": [photo], "nan": float("nan"), ("a", 1): 1}


@tool
def pays() -> object:
    """Pay, and return more than JSON can carry."""
    return _receipt()


@tool
async def pays_async() -> object:
    """Pay, and return more than JSON can carry."""
    return _receipt()


@tool(isolated=True)
def pays_alone() -> object:
    """Pay, and return more than JSON can carry."""
    return _receipt()


class Order(BaseModel):
    number: int
    price: Decimal

    @field_validator("number")
    @classmethod
    def _known(cls, number: int) -> int:
        if number == 13:
            raise ValueError(f"{number} is a secret")
        if number == 14:
            raise ToolError("order 14 is closed")
        return number


@dataclasses.dataclass
class Receipt:
    order: Order
    total: Decimal


@tool
def buy(order: Order, count: Annotated[int, Field(ge=1)] = 1) -> Receipt:
    """Buy something."""
    return Receipt(order, order.price * count)


class Raising:
    """Fails whatever is asked of it."""

    def __getattribute__(self, name: str) -> object:
        raise RuntimeError("secret")


class Holder(BaseModel):
    model_config = {"arbitrary_types_allowed": True}
    order: Order
    thing: object


@tool(effect="read")
def returns(kind: str) -> object:
    """Return something odd."""
    loop: list[object] = []
    loop.append(loop)
    odd = {
        "object": object(),
        "generator": (n for n in range(3)),
        "loop": loop,
        "raising": Raising(),
        "model": Holder(order=Order(number=1, price=Decimal(2)), thing=object()),
        "nan": [float("nan"), float("inf")],
        "surrogate": "a\ud800b\x00c",
        "huge": "x" * 5_000_000,
        "huge list": ["x" * 100] * 50_000,
        "none": None,
        "bytes": b"\xff\xfe",
    }
    return odd[kind]


@tool(effect="read")
def returns_coroutine() -> object:
    """Forget to await."""
    return echo_async("x")


@tool(effect="read")
def report(context: ToolContext) -> str:
    """Show progress."""
    for number in range(50):
        context.progress(f"step {number}" + "." * 1000)
    return "done"


def _append(path: str, line: str) -> None:
    with Path(path).open("a") as journal:
        journal.write(f"{line}\n")


@tool(effect="read", isolated=True)
def isolated_echo(text: str, context: ToolContext) -> dict[str, object]:
    """Say it again, elsewhere."""
    context.progress(f"working on {text}")
    print("this goes to stderr")  # noqa: T201
    return {
        "text": text,
        "pid": os.getpid(),
        "prepared": PREPARED,
        "user": context.user_id,
        "context": context.context,
        "deadline": context.deadline,
    }


@tool(effect="read", isolated=True)
def isolated_refuse() -> str:
    """Fail with words for the model."""
    raise ToolError("no such order", code="no_order", recovery="ask for the number")


@tool(effect="read", isolated=True)
def isolated_explode() -> str:
    """Fail with a secret."""
    raise ValueError("secret")


@tool(isolated=True)
def isolated_family(journal: str, how: Literal["hang", "return", "die", "spin"]) -> str:
    """Start processes, write down their ids, and end in some way."""
    _append(journal, str(os.getpid()))
    children = [
        subprocess.Popen(["sleep", "60"]),
        subprocess.Popen(["sleep", "60"], start_new_session=True),
        subprocess.Popen(["sh", "-c", "sleep 60 & echo $!; wait"], stdout=subprocess.PIPE, text=True),
    ]
    _append(journal, children[2].stdout.readline().strip())
    for child in children:
        _append(journal, str(child.pid))
    shell = ["sh", "-c", "setsid sleep 60 >/dev/null 2>&1 & echo $!"]
    _append(journal, subprocess.run(shell, check=True, capture_output=True, text=True).stdout.strip())
    _append(journal, "ready")
    if how == "return":
        return "done"
    if how == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "spin":
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
    while how == "spin":
        pass
    time.sleep(60)
    return "never"


@tool(isolated=True)
def isolated_write_dies() -> str:
    """Die in the middle of a write."""
    os._exit(3)


@tool(effect="read", isolated=True)
def isolated_read_dies() -> str:
    """Die in the middle of a read."""
    os._exit(3)


def _verify_transfer(amount: int, context: ToolContext) -> object:
    answers = {1: True, 2: False, 3: None, 4: {"id": context.idempotency_key}, 7: 0}
    if amount == 5:
        raise RuntimeError("secret")
    if amount == 6:
        RELEASE.wait(30)
    return answers.get(amount)


async def _verify_async(amount: int) -> bool:
    await asyncio.sleep(60 if amount == 6 else 0)
    return amount == 1


@tool(verify=_verify_transfer)
def transfer(amount: int, to: str = "me") -> str:
    """Move money."""
    return f"{amount} to {to}"


@tool(verify=_verify_async)
async def transfer_async(amount: int) -> str:
    """Move money."""
    return f"{amount}"


@tool(effect="read", isolated=True)
def isolated_environment() -> list[str]:
    """Name the variables of this process."""
    return sorted(os.environ)


@tool(effect="read")
def plan(steps: list[dict[str, str]]) -> int:
    """Count the steps."""
    return len(steps)
