"""Alembic's entry: philorag hands over an open connection (see `philorag.storage.migrations`)."""

from __future__ import annotations

from alembic import context

connection = context.config.attributes.get("connection")
if connection is None:
    raise SystemExit("Run migrations with `philorag db upgrade`, which knows the database and takes the lock.")
context.configure(connection=connection, transaction_per_migration=True)
with context.begin_transaction():
    context.run_migrations()
