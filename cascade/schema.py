"""The catalogue's tables in SQLite."""

from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    event,
    insert,
    text,
)

from cascade.errors import CatalogVersionError

SCHEMA_VERSION = 1  # kept in SQLite's user_version
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
    Column("text", Text, nullable=False),
    Column("stage", Text, nullable=False, index=True),
    Column("error", Text),
    Column("passages", Integer, nullable=False, default=0),
    Column("passages_done", Integer, nullable=False, default=0),
    Column("tokens", Integer, nullable=False, default=0),
    Column("created_at", Integer, nullable=False),
    Column("updated_at", Integer, nullable=False),
    Column("revision", Integer, nullable=False, default=0),  # of the catalogue when the document became ready
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
)
Index("ix_passages_chunk_key", passages.c.chunk_key)

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


def prepare(connection: Connection, profile: str) -> None:
    """Create the tables in a new file; CatalogVersionError when the file has another schema version."""
    connection.execute(text("BEGIN IMMEDIATE"))  # the driver opens no transaction for table definitions
    found = connection.execute(text("PRAGMA user_version")).scalar_one()
    if found == SCHEMA_VERSION:
        return
    if found != 0:
        raise CatalogVersionError(f"the catalogue has schema version {found}, this program needs {SCHEMA_VERSION}")
    metadata.create_all(connection)
    connection.execute(insert(state).values(profile=profile, revision=1))
    connection.execute(text(f"PRAGMA user_version={SCHEMA_VERSION}"))
