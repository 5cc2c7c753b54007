"""RabbitMQ as the broker, Redis for the readers. Skipped where it is not installed; required where CI is true."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.services import send
from harness.waiting import eventually
from harness.words import call

pytestmark = [pytest.mark.processes, pytest.mark.timeout(240)]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class Rabbit:
    """A server of our own, as whoever we are."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.url = f"amqp://guest:guest@127.0.0.1:{self.port}//"
        self.log = folder / "rabbit.log"
        self.env = {
            **os.environ,
            "HOME": str(folder),
            "RABBITMQ_NODENAME": f"test{self.port}@localhost",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "ERL_EPMD_PORT": str(free_port()),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
        }
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    server() or "",
                ],
                env=self.env,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        eventually(self.answers, "RabbitMQ starts", 90)

    def answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()[-2000:]
        with socket.socket() as attempt:
            return attempt.connect_ex(("127.0.0.1", self.port)) == 0

    def kill(self) -> None:
        if self.process is not None:
            os.killpg(self.process.pid, 9)
            self.process.wait(30)


def server() -> str | None:
    """Return the program itself: the wrapper of some distributions insists on a user of its own."""
    packaged = sorted(Path("/usr/lib/rabbitmq").glob("lib/rabbitmq_server-*/sbin/rabbitmq-server"))
    return str(packaged[-1]) if packaged else shutil.which("rabbitmq-server")


@pytest.fixture(scope="module")
def rabbit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rabbit]:
    if server() is None:
        if os.environ.get("CI") == "true":
            pytest.fail("RabbitMQ is required in CI: apt-get install rabbitmq-server")
        pytest.skip("RabbitMQ is not installed")
    rabbit = Rabbit(tmp_path_factory.mktemp("rabbit"))
    rabbit.start()
    yield rabbit
    rabbit.kill()


def test_everything_works_with_rabbitmq_as_the_broker_through_its_own_restart(deploy, rabbit):
    place = deploy(ROUNDELAY_BROKER_URL=rabbit.url)
    first = place.start()
    plain = place.ask(call("act", tag="mq"), call("look", tag="mq"), {"text": "done"}, name="mq")
    assert place.settled(plain)[0].text == "done"

    held = place.ask(call("look_async", tag="mq-held", seconds=50), {"text": "no"}, name="mq-held")
    place.began("mq-held")
    assert held.cancel() is True
    assert held.wait(20).status == "cancelled"

    orphan = place.ask(call("look_async", tag="mq-orphan", seconds=2), {"text": "again"}, name="mq-orphan")
    place.began("mq-orphan")
    send(place, "roundelay.answer", [orphan.message_id], orphan.message_id)
    first.kill()
    second = place.start()
    assert place.settled(orphan)[0].text == "again"

    under_way = place.ask(
        call("look_async", tag="mq-way", seconds=1), call("look", tag="mq-2"), {"text": "went on"}, name="mq-way"
    )
    place.began("mq-way")
    rabbit.kill()
    new = place.client.submit(place.scripted({"text": "late"}, name="mq-late"))
    assert place.settled(under_way)[0].text == "went on"
    rabbit.start()
    if second.code is not None:
        place.start()
    assert place.settled(new, patience=90)[0].text == "late"
    place.sound_at_rest()
