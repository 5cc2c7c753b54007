"""The Celery application of a worker, under the name that commands use: ``celery -A roundelay_worker.app worker``."""

from roundelay_worker.taskqueue.app import app

__all__ = ["app"]
