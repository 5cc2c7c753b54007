"""The history of the tables, for Alembic; shipped, so that any worker can bring its database up to date.

Migrations are rendered to SQL (Alembic's offline mode) and run through the store's own drivers, since
SQLAlchemy has no driver of its own for PostgreSQL here. So a migration is made of ``op`` calls only and reads
no rows. It only adds: workers of the version before go on beside it.
"""

from typing import Final

VERSION_TABLE: Final = "roundelay_version"
"""Alembic's table, under a name of its own: a web app may keep its own history in the same database."""

REVISIONS: Final = ("0001", "0002")
"""All of them, in order; known without Alembic, so that a worker whose database is up to date need not load it."""
