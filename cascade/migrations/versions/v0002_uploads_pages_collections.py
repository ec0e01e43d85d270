"""Uploads, pages and headings, token vectors, folders' files, collections."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Ready documents are embedded again: their passages have no token vectors yet. Their KV is kept."""
    op.add_column("documents", sa.Column("page_starts", sa.Text, nullable=False, server_default="[]"))
    op.add_column("documents", sa.Column("replaces", sa.Text))
    op.add_column("passages", sa.Column("page", sa.Integer))
    op.add_column("passages", sa.Column("heading", sa.Text, nullable=False, server_default=""))
    op.add_column("passages", sa.Column("token_vectors", sa.LargeBinary, nullable=False, server_default=""))
    op.execute("DELETE FROM passages")
    op.execute("UPDATE documents SET stage = 'queued', passages = 0, passages_done = 0 WHERE stage = 'ready'")
    op.execute("UPDATE state SET revision = revision + 1")
    op.create_table(
        "uploads",
        sa.Column("document_id", sa.Text, sa.ForeignKey("documents.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("content", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "sources",
        sa.Column("path", sa.Text, primary_key=True),
        sa.Column("document_id", sa.Text, sa.ForeignKey("documents.id", ondelete="CASCADE"), nullable=False),
        sa.Column("bytes", sa.Integer, nullable=False),
        sa.Column("mtime_ns", sa.Integer, nullable=False),
    )
    op.create_index("ix_sources_document_id", "sources", ["document_id"])
    op.create_table("orphans", sa.Column("chunk_key", sa.Text, primary_key=True))
    op.create_table(
        "collections",
        sa.Column("seq", sa.Integer, primary_key=True),
        sa.Column("id", sa.Text, nullable=False, unique=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("metadata", sa.Text, nullable=False),
        sa.Column("created_at", sa.Integer, nullable=False),
        sa.Column("active_at", sa.Integer, nullable=False),
    )
    op.create_table(
        "collection_documents",
        sa.Column("collection_id", sa.Text, sa.ForeignKey("collections.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("document_id", sa.Text, sa.ForeignKey("documents.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("attributes", sa.Text, nullable=False),
        sa.Column("created_at", sa.Integer, nullable=False),
    )
    op.create_index("ix_collection_documents_document_id", "collection_documents", ["document_id"])
