"""The web app's own Celery is another application: nothing that configures it reaches ours."""

import json
import subprocess
import sys

import pytest

from inputs import shared_input
from roundelay import names

pytestmark = pytest.mark.services

CONFIGURATION = """
broker_url = 'amqp://127.0.0.1:1//'
result_backend = 'db+nonsense://'
task_always_eager = True
task_serializer = 'pickle'
task_routes = {'*': {'queue': 'elsewhere'}}
task_compression = 'gzip'
task_default_exchange = 'elsewhere'
"""
SUBMIT = """
import logging, sys, time
logging.basicConfig(level="WARNING")
from roundelay import Client
client = Client({url!r}, prefix={prefix!r})
client.submit("warm")
began = time.monotonic()
client.submit("one")
print(time.monotonic() - began < 1.5)
from celery import current_app
print(current_app.conf.broker_url)
"""


def submitted(url, prefix, folder, **environment):
    code, environment = SUBMIT.format(url=url, prefix=prefix), {"PYTHONPATH": str(folder), **environment}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    assert "task_not_sent" not in done.stderr
    return done.stdout.split()


@pytest.fixture(params=["own", "shared"])
def configuration(request):
    return CONFIGURATION if request.param == "own" else shared_input("celery-config-module-of-the-web-app.py").decode()


def is_ours(raw, prefix):
    tasks = [json.loads(task) for task in raw.lrange(names.messages_queue(prefix), 0, -1)]
    ids = [task["headers"]["id"] for task in tasks]
    return len(ids) == 2 and all(task["headers"]["root_id"] == task["headers"]["id"] for task in tasks)


def test_a_configuration_module_of_the_web_app_does_not_reach_us(url, prefix, raw, tmp_path, configuration):
    (tmp_path / "webconf.py").write_text(configuration)

    quick, theirs = submitted(url, prefix, tmp_path, CELERY_CONFIG_MODULE="webconf")

    assert quick == "True"
    assert is_ours(raw, prefix)
    assert theirs.startswith("amqp://"), "their own app has it all the same"


def test_a_celeryconfig_on_the_path_does_not_reach_us(url, prefix, raw, tmp_path):
    (tmp_path / "celeryconfig.py").write_text(CONFIGURATION)

    assert submitted(url, prefix, tmp_path)[0] == "True"
    assert is_ours(raw, prefix)


def test_other_variables_of_the_web_apps_celery_do_not_reach_us(url, prefix, raw, tmp_path):
    variables = ("CELERY_BROKER_URL", "CELERY_BROKER_READ_URL", "CELERY_BROKER_WRITE_URL")
    theirs = dict.fromkeys(variables, "amqp://127.0.0.1:1//")

    assert submitted(url, prefix, tmp_path, **theirs, CELERY_RESULT_BACKEND="db+nonsense://")[0] == "True"
    assert submitted(url, f"{prefix}-l", tmp_path, CELERY_LOADER="celery.loaders.default.Loader")[0] == "True"
    assert is_ours(raw, prefix)
    assert is_ours(raw, f"{prefix}-l")


def test_the_app_that_both_use_has_the_settings_of_its_maker_alone(tmp_path):
    (tmp_path / "webconf.py").write_text(CONFIGURATION)
    code = (
        "from roundelay._core.celery_app import isolated_app; app = isolated_app('redis://h:1/0')\n"
        "conf = app.conf\n"
        "print(conf.broker_read_url, conf.broker_write_url, conf.task_serializer, conf.task_always_eager,"
        " conf.task_routes, conf.task_compression, type(app.backend).__name__)"
    )
    environment = {"PYTHONPATH": str(tmp_path), "CELERY_CONFIG_MODULE": "webconf", "CELERY_BROKER_URL": "amqp://no"}

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)

    assert done.stdout.split() == [
        "redis://h:1/0", "redis://h:1/0", "json", "False", "None", "None", "DisabledBackend"
    ]  # fmt: skip
