"""Catalogue files of every age open, and end with the same tables."""

import sqlite3
from pathlib import Path

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import create_engine

from cascade.catalog import Catalog
from cascade.schema import metadata
from cascade.types import SourceText, Stage

# What the first release wrote.
FIRST_RELEASE = """
CREATE TABLE documents (seq INTEGER NOT NULL, id TEXT NOT NULL, sha256 TEXT NOT NULL, filename TEXT NOT NULL,
    title TEXT NOT NULL, media_type TEXT NOT NULL, bytes INTEGER NOT NULL, text TEXT NOT NULL, stage TEXT NOT NULL,
    error TEXT, passages INTEGER NOT NULL, passages_done INTEGER NOT NULL, tokens INTEGER NOT NULL,
    created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, revision INTEGER NOT NULL,
    PRIMARY KEY (seq), UNIQUE (id), UNIQUE (sha256));
CREATE INDEX ix_documents_stage ON documents (stage);
CREATE TABLE passages (id TEXT NOT NULL, document_id TEXT NOT NULL, ordinal INTEGER NOT NULL, title TEXT NOT NULL,
    text TEXT NOT NULL, start INTEGER NOT NULL, "end" INTEGER NOT NULL, token_ids BLOB NOT NULL,
    chunk_key TEXT NOT NULL, embedding BLOB NOT NULL, PRIMARY KEY (id),
    FOREIGN KEY(document_id) REFERENCES documents (id) ON DELETE CASCADE);
CREATE INDEX ix_passages_document_id ON passages (document_id);
CREATE INDEX ix_passages_chunk_key ON passages (chunk_key);
CREATE TABLE state (profile TEXT NOT NULL, revision INTEGER NOT NULL);
INSERT INTO state VALUES ('p', 7);
INSERT INTO documents VALUES (1, 'file-1', 'sha', 'a.md', 'Title', 'text/markdown', 5, 'Text.', 'ready', NULL, 1, 1,
    3, 10, 11, 6);
INSERT INTO documents VALUES (2, 'file-2', 'sha2', 'b.md', 'b', 'text/markdown', 5, 'Text.', 'failed', 'reason', 0,
    0, 0, 10, 11, 0);
INSERT INTO passages VALUES ('file-1-0', 'file-1', 0, 'Title', 'Text.', 0, 5, x'01000000', 'key', x'0000803f');
PRAGMA user_version=1;
"""


def differences(path: Path) -> list[object]:
    engine = create_engine(f"sqlite:///{path}")
    with engine.connect() as connection:
        return list(compare_metadata(MigrationContext.configure(connection), metadata))


async def test_the_migrations_lead_to_the_schema(tmp_path: Path) -> None:
    await (await Catalog.open(tmp_path / "c.sqlite", "p")).close()
    assert differences(tmp_path / "c.sqlite") == []


async def test_a_catalogue_of_the_first_release_opens(tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite"
    with sqlite3.connect(path) as db:
        db.executescript(FIRST_RELEASE)
    catalog = await Catalog.open(path, "p")
    ready, failed = await catalog.list()
    assert (ready.id, ready.stage, failed.stage, failed.error) == ("file-1", Stage.QUEUED, Stage.FAILED, "reason")
    assert await catalog.source("file-1") == SourceText("Text.")
    assert await catalog.upload("file-1") is None
    assert await catalog.document_passages("file-1") == []
    assert await catalog.revision() > 7
    await catalog.close()
    assert differences(path) == []


async def test_a_path_with_a_percent_sign(tmp_path: Path) -> None:
    await (await Catalog.open(tmp_path / "100% real" / "c.sqlite", "p")).close()
