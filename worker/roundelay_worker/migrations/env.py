"""Run by Alembic: write the wanted revisions as SQL for the dialect that the caller names."""

from alembic import context

context.configure(
    dialect_name=context.config.attributes["dialect"],
    version_table=context.config.attributes["version_table"],
    transactional_ddl=False,
    dialect_opts={"paramstyle": "named"},
    literal_binds=True,
)
context.run_migrations()
