"""The catalogue keeps its promises in a real SQLite file."""

import asyncio
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy.exc import IntegrityError

from cascade.catalog import SQL_BATCH, Added, Catalog
from cascade.errors import CatalogVersionError, ProfileChanged, UnknownDocument
from cascade.parse import ParsedDocument
from cascade.token_vectors import Embedding, TokenVectors
from cascade.types import Document, IndexedPassage, MediaType, Passage, SourceText, Stage
from tests.cascade.conftest import sha_key


def passage(document_id: str, ordinal: int, token_ids: Sequence[int]) -> Passage:
    text = f"passage {ordinal} 🎉"
    return Passage(
        f"{document_id}-{ordinal}", document_id, ordinal, "title", text, 0, 5, tuple(token_ids), sha_key(token_ids)
    )


def embeddings(count: int) -> list[Embedding]:
    vectors = np.random.default_rng(count).standard_normal((count, 3, 4)).astype(np.float32)
    return [Embedding(tokens[0], TokenVectors.of(tokens)) for tokens in vectors]


async def indexed(catalog: Catalog, after: int = 0) -> list[IndexedPassage]:
    batches = catalog.indexed_between(after, await catalog.revision())
    return [entry async for batch in batches for entry in batch]


async def queue(catalog: Catalog, text: str) -> Document:
    return (await catalog.add(f"{text}.txt", text.encode(), MediaType.TEXT)).document


async def make_ready(catalog: Catalog, text: str, *token_ids: Sequence[int]) -> Document:
    document = await queue(catalog, text)
    made = [passage(document.id, ordinal, ids) for ordinal, ids in enumerate(token_ids or [[1, 2]])]
    return await catalog.complete(document.id, made, embeddings(len(made)))


async def test_a_document_is_listed_at_once(catalog: Catalog) -> None:
    content = b"# The title\n\nSome text."
    result = await catalog.add("a.md", content, MediaType.MARKDOWN)
    document = result.document
    assert result.outcome is Added.CREATED
    assert document.id.startswith("file-")
    assert (document.filename, document.title, document.bytes) == ("a.md", "a.md", len(content))
    assert (document.stage, document.error, document.passages) == (Stage.QUEUED, None, 0)
    assert await catalog.list() == [document]
    assert await catalog.get(document.id) == document
    assert await catalog.upload(document.id) == content
    assert await catalog.source(document.id) == SourceText("")


async def test_the_text_takes_the_place_of_the_file(catalog: Catalog) -> None:
    document = (await catalog.add("a.pdf", b"%PDF", MediaType.PDF)).document
    parsed = await catalog.parsed(document.id, ParsedDocument("The title", "Page one.\n\nTwo.", MediaType.PDF, (0, 11)))
    assert parsed.title == "The title"
    assert await catalog.source(document.id) == SourceText("Page one.\n\nTwo.", (0, 11))
    assert await catalog.upload(document.id) is None


async def test_a_file_that_cannot_be_parsed_is_kept_for_another_try(catalog: Catalog) -> None:
    document = (await catalog.add("a.pdf", b"%PDF", MediaType.PDF)).document
    await catalog.advance(document.id, Stage.PARSING)
    await catalog.fail(document.id, "torn")
    assert (await catalog.retry(document.id)).stage is Stage.QUEUED
    assert await catalog.upload(document.id) == b"%PDF"


async def test_the_same_content_is_the_same_document(catalog: Catalog) -> None:
    first = await queue(catalog, "text")
    again = await catalog.add("other name.txt", b"text", MediaType.TEXT)
    assert (again.document, again.outcome) == (first, Added.DUPLICATE)


async def test_adding_the_same_content_at_once_queues_it_once(catalog: Catalog) -> None:
    results = await asyncio.gather(*(catalog.add("a.txt", b"text", MediaType.TEXT) for _ in range(8)))
    assert sorted(result.outcome.name for result in results) == ["CREATED", *["DUPLICATE"] * 7]
    assert len({result.document.id for result in results}) == 1


async def test_a_failed_document_stays_listed_and_can_be_tried_again(catalog: Catalog) -> None:
    document = await queue(catalog, "text")
    await catalog.fail(document.id, "engine stopped")
    failed = await catalog.get(document.id)
    assert (failed.stage, failed.error) == (Stage.FAILED, "engine stopped")
    left = await catalog.add("text.txt", b"text", MediaType.TEXT, retry=False)
    assert (left.outcome, left.document) == (Added.DUPLICATE, failed)
    again = await catalog.add("text.txt", b"text", MediaType.TEXT)
    assert again.outcome is Added.RETRIED
    assert (again.document.id, again.document.stage, again.document.error) == (document.id, Stage.QUEUED, None)


async def test_progress_is_visible(catalog: Catalog) -> None:
    document = await queue(catalog, "text")
    await catalog.advance(document.id, Stage.PRECOMPUTING, passages=5, done=2, tokens=900)
    seen = (await catalog.list(Stage.PRECOMPUTING))[0]
    assert (seen.passages, seen.passages_done, seen.tokens) == (5, 2, 900)
    assert await catalog.list(Stage.READY, Stage.QUEUED) == []


async def test_passages_come_back_exactly(catalog: Catalog) -> None:
    document = await queue(catalog, "text")
    made = [passage(document.id, 0, [0, 1, 70_000, 2**32 - 1]), passage(document.id, 1, [5])]
    vectors = embeddings(2)
    ready = await catalog.complete(document.id, made, vectors)
    assert (ready.stage, ready.passages, ready.passages_done, ready.tokens) == (Stage.READY, 2, 2, 5)
    assert await catalog.document_passages(document.id) == made
    assert await catalog.passages([made[1].id, "unknown", made[0].id]) == [made[1], made[0]]
    entries = await indexed(catalog)
    assert [(entry.id, entry.title, entry.text) for entry in entries] == [(p.id, p.title, p.text) for p in made]
    np.testing.assert_array_equal([entry.embedding for entry in entries], [made.vector for made in vectors])
    tokens = await catalog.token_vectors([made[1].id, "unknown"])
    np.testing.assert_array_equal(tokens[made[1].id].codes, vectors[1].tokens.codes)
    assert list(tokens) == [made[1].id]


async def test_completing_is_all_or_nothing(catalog: Catalog) -> None:
    document = await queue(catalog, "text")
    await catalog.advance(document.id, Stage.PRECOMPUTING)
    revision = await catalog.revision()
    twice_the_same_id = [passage(document.id, 0, [1]), passage(document.id, 0, [2])]
    with pytest.raises(IntegrityError):
        await catalog.complete(document.id, twice_the_same_id, embeddings(2))
    with pytest.raises(ValueError, match="shorter"):
        await catalog.complete(document.id, [passage(document.id, 0, [1])], embeddings(0))
    with pytest.raises(ValueError, match="without a passage"):
        await catalog.complete(document.id, [], embeddings(0))
    assert (await catalog.get(document.id)).stage is Stage.PRECOMPUTING
    assert await catalog.document_passages(document.id) == []
    assert await catalog.revision() == revision


async def test_completing_again_replaces(catalog: Catalog) -> None:
    document = await make_ready(catalog, "text", [1], [2])
    await catalog.complete(document.id, [passage(document.id, 0, [3])], embeddings(1))
    assert [p.token_ids for p in await catalog.document_passages(document.id)] == [(3,)]


async def test_work_on_a_deleted_document_ends(catalog: Catalog) -> None:
    document = await queue(catalog, "text")
    await catalog.advance(document.id, Stage.PRECOMPUTING)
    await catalog.delete(document.id)
    for call in (
        catalog.get(document.id),
        catalog.source(document.id),
        catalog.upload(document.id),
        catalog.retry(document.id),
        catalog.parsed(document.id, ParsedDocument("t", "t", MediaType.TEXT)),
        catalog.advance(document.id, Stage.PRECOMPUTING),
        catalog.fail(document.id, "reason"),
        catalog.complete(document.id, [passage(document.id, 0, [1])], embeddings(1)),
        catalog.delete(document.id),
    ):
        with pytest.raises(UnknownDocument, match=document.id):
            await call
    assert await catalog.list() == []
    assert await catalog.passages([f"{document.id}-0"]) == []


async def test_deleting_takes_the_passages_along(catalog: Catalog) -> None:
    document = await make_ready(catalog, "one", [1], [2])
    kept = await make_ready(catalog, "two", [3])
    await catalog.delete(document.id)
    assert await catalog.passages([f"{document.id}-0", f"{kept.id}-0"]) == await catalog.document_passages(kept.id)
    assert list(await catalog.ready()) == [kept.id]


async def test_chunks_that_another_document_uses_are_no_orphans(catalog: Catalog) -> None:
    document = await make_ready(catalog, "one", [1, 2], [3, 4])
    await make_ready(catalog, "two", [1, 2])
    assert await catalog.orphans() == []
    await catalog.delete(document.id, [sha_key([5])])
    assert set(await catalog.orphans()) == {sha_key([3, 4]), sha_key([5])}


async def test_orphans_are_remembered_until_they_are_gone(tmp_path: Path) -> None:
    catalog = await Catalog.open(tmp_path / "c.sqlite", "p")
    document = await make_ready(catalog, "one", *([n] for n in range(3 * SQL_BATCH)))
    await catalog.delete(document.id)
    await catalog.close()
    catalog = await Catalog.open(tmp_path / "c.sqlite", "p")
    orphans = await catalog.orphans()
    assert len(orphans) == 3 * SQL_BATCH
    await catalog.forget_orphans(orphans[1:])
    assert await catalog.orphans() == [orphans[0]]
    await catalog.close()


async def test_an_orphan_that_is_used_again_is_none(catalog: Catalog) -> None:
    document = await make_ready(catalog, "one", [1])
    await catalog.delete(document.id)
    await make_ready(catalog, "two", [1])
    assert await catalog.orphans() == []


async def test_ids_are_never_used_again(catalog: Catalog) -> None:
    document = await queue(catalog, "text")
    await catalog.delete(document.id)
    assert (await queue(catalog, "text")).id != document.id


async def test_a_restart_queues_what_was_in_flight(tmp_path: Path) -> None:
    catalog = await Catalog.open(tmp_path / "c.sqlite", "p")
    embedding, waiting, failed, precomputing = [await queue(catalog, name) for name in "abcd"]
    ready = await make_ready(catalog, "ready")
    await catalog.advance(embedding.id, Stage.EMBEDDING)
    await catalog.advance(precomputing.id, Stage.PRECOMPUTING, passages=9, done=4)
    await catalog.fail(failed.id, "reason")
    await catalog.close()

    catalog = await Catalog.open(tmp_path / "c.sqlite", "p")
    assert [document.id for document in await catalog.resume()] == [embedding.id, waiting.id, precomputing.id]
    assert (await catalog.get(precomputing.id)).passages_done == 0
    assert await catalog.get(ready.id) == ready
    assert (await catalog.get(failed.id)).error == "reason"
    await catalog.close()


async def test_another_profile_queues_ready_documents_again(tmp_path: Path) -> None:
    first = await Catalog.open(tmp_path / "c.sqlite", "model one")
    document = await make_ready(first, "text")
    second = await Catalog.open(tmp_path / "c.sqlite", "model two")
    assert (await second.get(document.id)).stage is Stage.QUEUED
    assert await second.document_passages(document.id) == []
    with pytest.raises(ProfileChanged, match="model one"):
        await first.revision()
    with pytest.raises(ProfileChanged):
        await first.complete(document.id, [passage(document.id, 0, [1])], embeddings(1))
    await first.close()
    await second.close()


async def test_the_same_profile_changes_nothing(tmp_path: Path) -> None:
    first = await Catalog.open(tmp_path / "c.sqlite", "model")
    document = await make_ready(first, "text")
    second = await Catalog.open(tmp_path / "c.sqlite", "model")
    assert await second.get(document.id) == document
    assert await second.revision() == await first.revision()
    await first.close()
    await second.close()


async def test_a_file_of_another_schema_version_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite"
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version=99")
    with pytest.raises(CatalogVersionError, match="99"):
        await Catalog.open(path, "p")
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)


async def test_a_new_file_can_be_opened_by_several_at_once(tmp_path: Path) -> None:
    opened = await asyncio.gather(*(Catalog.open(tmp_path / "new" / "c.sqlite", "p") for _ in range(5)))
    document = await queue(opened[0], "text")
    assert [await catalog.get(document.id) for catalog in opened] == [document] * 5
    for catalog in opened:
        await catalog.close()


async def test_many_writers_and_readers_wait_for_each_other(tmp_path: Path) -> None:
    catalogs = [await Catalog.open(tmp_path / "c.sqlite", "p") for _ in range(3)]
    documents = await asyncio.gather(*(make_ready(catalogs[n % 3], f"text {n}", [n]) for n in range(24)))
    assert len(await catalogs[0].ready()) == 24
    await asyncio.gather(*(catalogs[n % 3].delete(document.id) for n, document in enumerate(documents)))
    assert await catalogs[1].list() == []
    for catalog in catalogs:
        await catalog.close()


async def test_the_revision_grows_with_what_can_be_searched(catalog: Catalog) -> None:
    start = await catalog.revision()
    waiting = await queue(catalog, "waiting")
    await catalog.advance(waiting.id, Stage.EMBEDDING)
    assert await catalog.revision() == start
    one = await make_ready(catalog, "one")
    after_one = await catalog.revision()
    assert after_one > start
    two = await make_ready(catalog, "two")
    assert [entry.document_id for entry in await indexed(catalog, after_one)] == [two.id]
    assert set(await catalog.ready()) == {one.id, two.id}
    before = await catalog.revision()
    await catalog.delete(two.id)
    assert await catalog.revision() > before
