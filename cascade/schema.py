"""The catalogue's tables in SQLite, as the newest migration leaves them."""

from typing import Any

from sqlalchemy import (
    Column,
    Engine,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    event,
)

BUSY_TIMEOUT_MS = 30_000

metadata = MetaData()

documents = Table(
    "documents",
    metadata,
    Column("seq", Integer, primary_key=True),  # order of arrival
    Column("id", Text, nullable=False, unique=True),
    Column("sha256", Text, nullable=False, unique=True),
    Column("filename", Text, nullable=False),
    Column("title", Text, nullable=False),
    Column("media_type", Text, nullable=False),
    Column("bytes", Integer, nullable=False),
    Column("text", Text, nullable=False),  # empty before it is parsed
    Column("stage", Text, nullable=False, index=True),
    Column("error", Text),
    Column("passages", Integer, nullable=False, default=0),
    Column("passages_done", Integer, nullable=False, default=0),
    Column("tokens", Integer, nullable=False, default=0),
    Column("created_at", Integer, nullable=False),
    Column("updated_at", Integer, nullable=False),
    Column("revision", Integer, nullable=False, default=0),  # of the catalogue when the document became ready
    Column("page_starts", Text, nullable=False, server_default="[]"),  # JSON
    Column("replaces", Text),  # id of the document that goes when this one is ready
)

# The bytes of a file until they are parsed; those of a file that cannot be parsed are kept for another try.
uploads = Table(
    "uploads",
    metadata,
    Column("document_id", ForeignKey(documents.c.id, ondelete="CASCADE"), primary_key=True),
    Column("content", LargeBinary, nullable=False),
)

passages = Table(
    "passages",
    metadata,
    Column("id", Text, primary_key=True),
    Column("document_id", ForeignKey(documents.c.id, ondelete="CASCADE"), nullable=False, index=True),
    Column("ordinal", Integer, nullable=False),
    Column("title", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("start", Integer, nullable=False),
    Column("end", Integer, nullable=False),
    Column("token_ids", LargeBinary, nullable=False),  # u32, little-endian
    Column("chunk_key", Text, nullable=False),
    Column("embedding", LargeBinary, nullable=False),  # f32, little-endian
    Column("page", Integer),
    Column("heading", Text, nullable=False, server_default=""),
    Column("token_vectors", LargeBinary, nullable=False, server_default=""),  # last: long, and rarely read
)
Index("ix_passages_chunk_key", passages.c.chunk_key)

# Files of a folder as last seen, and the document that holds their content.
sources = Table(
    "sources",
    metadata,
    Column("path", Text, primary_key=True),
    Column("document_id", ForeignKey(documents.c.id, ondelete="CASCADE"), nullable=False, index=True),
    Column("bytes", Integer, nullable=False),
    Column("mtime_ns", Integer, nullable=False),
)

# Chunks of deleted documents, until no tier holds them.
orphans = Table("orphans", metadata, Column("chunk_key", Text, primary_key=True))

collections = Table(
    "collections",
    metadata,
    Column("seq", Integer, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("name", Text, nullable=False),
    Column("metadata", Text, nullable=False),  # JSON
    Column("created_at", Integer, nullable=False),
    Column("active_at", Integer, nullable=False),
)

collection_documents = Table(
    "collection_documents",
    metadata,
    Column("collection_id", ForeignKey(collections.c.id, ondelete="CASCADE"), primary_key=True),
    Column("document_id", ForeignKey(documents.c.id, ondelete="CASCADE"), primary_key=True, index=True),
    Column("attributes", Text, nullable=False),  # JSON
    Column("created_at", Integer, nullable=False),
    Column("batch", Text),  # what was added together, last
)

# One row: what the passages were made with, and a count of the changes to what can be searched.
state = Table(
    "state",
    metadata,
    Column("profile", Text, nullable=False),
    Column("revision", Integer, nullable=False),
)


def configure_connections(engine: Engine) -> None:
    """Readers beside one writer, waiting instead of failing, and deletes that reach the passages."""

    @event.listens_for(engine, "connect")
    def _configure(connection: Any, _record: Any) -> None:
        cursor = connection.cursor()
        for pragma in (f"busy_timeout={BUSY_TIMEOUT_MS}", "journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON"):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()
