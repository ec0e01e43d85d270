"""Changes of the catalogue's schema, oldest first; alembic runs them."""
