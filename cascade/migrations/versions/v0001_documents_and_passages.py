"""Documents and passages."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """From an empty file."""
    op.create_table(
        "documents",
        sa.Column("seq", sa.Integer, primary_key=True),
        sa.Column("id", sa.Text, nullable=False, unique=True),
        sa.Column("sha256", sa.Text, nullable=False, unique=True),
        sa.Column("filename", sa.Text, nullable=False),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("media_type", sa.Text, nullable=False),
        sa.Column("bytes", sa.Integer, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("stage", sa.Text, nullable=False),
        sa.Column("error", sa.Text),
        sa.Column("passages", sa.Integer, nullable=False),
        sa.Column("passages_done", sa.Integer, nullable=False),
        sa.Column("tokens", sa.Integer, nullable=False),
        sa.Column("created_at", sa.Integer, nullable=False),
        sa.Column("updated_at", sa.Integer, nullable=False),
        sa.Column("revision", sa.Integer, nullable=False),
    )
    op.create_index("ix_documents_stage", "documents", ["stage"])
    op.create_table(
        "passages",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("document_id", sa.Text, sa.ForeignKey("documents.id", ondelete="CASCADE"), nullable=False),
        sa.Column("ordinal", sa.Integer, nullable=False),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("start", sa.Integer, nullable=False),
        sa.Column("end", sa.Integer, nullable=False),
        sa.Column("token_ids", sa.LargeBinary, nullable=False),
        sa.Column("chunk_key", sa.Text, nullable=False),
        sa.Column("embedding", sa.LargeBinary, nullable=False),
    )
    op.create_index("ix_passages_document_id", "passages", ["document_id"])
    op.create_index("ix_passages_chunk_key", "passages", ["chunk_key"])
    op.create_table(
        "state",
        sa.Column("profile", sa.Text, nullable=False),
        sa.Column("revision", sa.Integer, nullable=False),
    )
