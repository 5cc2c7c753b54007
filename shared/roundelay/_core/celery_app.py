"""A Celery app that no other application's configuration reaches.

A web app has Celery settings of its own, in ``CELERY_CONFIG_MODULE``, a ``celeryconfig.py`` on its path, or
``CELERY_LOADER``, ``CELERY_BROKER_URL`` and ``CELERY_RESULT_BACKEND``. Celery 5.6 reads them for every app of a
process; with another broker, eager tasks or another serializer ours would go nowhere.
"""

from typing import Any, Final

from celery import Celery

_OWN: Final = {"task_ignore_result": True}


def isolated_app(broker_url: str, **options: Any) -> Celery:
    """Return an app whose settings are those that its maker gives, and Celery's own defaults."""
    app = Celery("roundelay", loader="celery.loaders.app:AppLoader", config_source=_OWN, broker=broker_url, **options)
    app.backend_cls = "disabled"
    app.conf.update(broker_read_url=broker_url, broker_write_url=broker_url)  # else CELERY_BROKER_URL comes first
    return app
