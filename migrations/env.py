"""Alembic's environment: the connection comes from `durable.migrate`, never from a file."""

from __future__ import annotations

from alembic import context

from durable.schema import SCHEMA, metadata

_OPTIONS = {
    "target_metadata": metadata,
    "version_table_schema": SCHEMA,
    "include_schemas": True,
    "include_name": lambda name, kind, parents: kind != "schema" or name == SCHEMA,
    "compare_server_default": True,
}

if context.is_offline_mode():
    context.configure(dialect_name="postgresql", literal_binds=True, **_OPTIONS)
    with context.begin_transaction():
        context.run_migrations()
else:
    context.configure(connection=context.config.attributes["connection"], **_OPTIONS)
    with context.begin_transaction():
        context.run_migrations()
