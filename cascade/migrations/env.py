"""Runs the migrations on the connection that `cascade.migrate` hands over, inside its transaction."""

from alembic import context

from cascade.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
