"""``roundelay beat``: Celery's scheduler, for schedules of your own; besides, it ends what is overdue.

Roundelay itself needs no schedule. But where every worker is down, this process still gives people an answer.
"""

from collections.abc import Mapping

from roundelay_worker.cli.parser import Options
from roundelay_worker.cli.programs import celery, replace_by
from roundelay_worker.settings import Settings, make_home


def run(options: Options, env: Mapping[str, str]) -> int:  # noqa: ARG001  # every command is called alike
    """Become the scheduler; its schedule file lies in the home folder."""
    settings = Settings.from_env(env)
    make_home(settings.home)
    words = ("--schedule", str(settings.home / "beat-schedule"), "--loglevel", settings.log_level, "--pidfile=")
    return replace_by(celery("beat", *words), env)
