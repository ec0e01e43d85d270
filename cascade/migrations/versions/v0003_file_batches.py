"""Documents that were put into a collection together."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Members so far are of no batch."""
    op.add_column("collection_documents", sa.Column("batch", sa.Text))
