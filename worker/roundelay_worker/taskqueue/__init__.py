"""Everything that knows Celery: its application, tasks, pool, consumer and broker."""
