"""A new version takes the place of the old one, at the moment it is ready and not before."""

from collections.abc import Sequence

import pytest

from cascade.catalog import Added, Catalog
from cascade.changes import SourceFile
from cascade.errors import UnknownDocument
from cascade.types import Document, MediaType, Stage
from tests.cascade.conftest import sha_key
from tests.cascade.test_catalog import embeddings, passage


def source(path: str, mtime_ns: int = 1) -> SourceFile:
    return SourceFile(path, 3, mtime_ns)


async def add(catalog: Catalog, text: str, path: str = "", mtime_ns: int = 1, replaces: str | None = None) -> Document:
    file = source(path, mtime_ns) if path else None
    return (await catalog.add("name.txt", text.encode(), MediaType.TEXT, file, replaces)).document


async def ready(catalog: Catalog, document: Document, *token_ids: Sequence[int]) -> None:
    made = [passage(document.id, ordinal, ids) for ordinal, ids in enumerate(token_ids or [[1]])]
    await catalog.complete(document.id, made, embeddings(len(made)))


async def ids(catalog: Catalog) -> set[str]:
    return {document.id for document in await catalog.list()}


@pytest.mark.parametrize("by_file", [True, False])
async def test_the_old_version_answers_until_the_new_one_is_ready(catalog: Catalog, by_file: bool) -> None:
    path = "dir/a.txt" if by_file else ""
    old = await add(catalog, "old", path)
    await ready(catalog, old, [1], [2])
    new = await add(catalog, "new", path, mtime_ns=2, replaces=None if by_file else old.id)
    assert new.replaces == old.id
    assert set(await catalog.ready()) == {old.id}
    await ready(catalog, new, [2], [3])
    assert set(await catalog.ready()) == {new.id}
    assert (await catalog.get(new.id)).replaces is None
    assert await catalog.orphans() == [sha_key([1])]
    with pytest.raises(UnknownDocument):
        await catalog.get(old.id)


async def test_the_same_name_without_asking_replaces_nothing(catalog: Catalog) -> None:
    old, new = await add(catalog, "old"), await add(catalog, "new")
    await ready(catalog, new)
    assert await ids(catalog) == {old.id, new.id}


async def test_a_new_version_that_fails_leaves_the_old_one(catalog: Catalog) -> None:
    old = await add(catalog, "old", "a.txt")
    await ready(catalog, old)
    new = await add(catalog, "new", "a.txt")
    await catalog.fail(new.id, "torn")
    assert set(await catalog.ready()) == {old.id}
    await catalog.retry(new.id)
    await ready(catalog, new, [5])
    assert await ids(catalog) == {new.id}


async def test_what_another_file_still_holds_stays(catalog: Catalog) -> None:
    old = await add(catalog, "shared", "a.txt")
    assert (await add(catalog, "shared", "b.txt")).id == old.id
    await ready(catalog, old)
    new = await add(catalog, "changed", "a.txt")
    await ready(catalog, new)
    assert await ids(catalog) == {old.id, new.id}
    await ready(catalog, await add(catalog, "changed too", "b.txt"))
    assert old.id not in await ids(catalog)


async def test_a_file_that_changes_to_what_is_there_leaves_one_document(catalog: Catalog) -> None:
    a, b = await add(catalog, "one", "a.txt"), await add(catalog, "two", "b.txt")
    await ready(catalog, a)
    await ready(catalog, b)
    before = await catalog.revision()
    assert (await add(catalog, "one", "b.txt")).id == a.id
    assert await ids(catalog) == {a.id}
    assert await catalog.revision() > before


async def test_an_unchanged_file_is_known_unread(catalog: Catalog) -> None:
    document = await add(catalog, "text", "a.txt", mtime_ns=7)
    assert await catalog.known(source("a.txt", 7)) == document
    assert await catalog.known(source("a.txt", 8)) is None
    assert await catalog.known(source("b.txt", 7)) is None
    await catalog.delete(document.id)
    assert await catalog.known(source("a.txt", 7)) is None


async def test_a_known_failure_is_left_alone_unless_asked_for(catalog: Catalog) -> None:
    document = await add(catalog, "text", "a.txt")
    await catalog.fail(document.id, "torn")
    left = await catalog.add("name.txt", b"text", MediaType.TEXT, source("a.txt"), retry=False)
    assert (left.outcome, left.document.stage) == (Added.DUPLICATE, Stage.FAILED)
    again = await catalog.add("name.txt", b"text", MediaType.TEXT, source("a.txt"), retry=True)
    assert (again.outcome, again.document.stage) == (Added.RETRIED, Stage.QUEUED)


async def test_a_version_that_never_became_ready_is_passed_over(catalog: Catalog) -> None:
    first = await add(catalog, "one")
    await ready(catalog, first)
    second = await add(catalog, "two", replaces=first.id)
    third = await add(catalog, "three", replaces=second.id)
    assert await catalog.obsolete(third.id) == second.id
    assert await catalog.obsolete(second.id) is None, "the first one is ready"
    await catalog.delete(second.id)
    assert (await catalog.get(third.id)).replaces == first.id
    await ready(catalog, third)
    assert await ids(catalog) == {third.id}


async def test_a_version_that_another_file_holds_is_not_obsolete(catalog: Catalog) -> None:
    first = await add(catalog, "one", "a.txt")
    second = await add(catalog, "two", "a.txt")
    await add(catalog, "two", "b.txt")
    assert second.replaces == first.id
    third = await add(catalog, "three", "a.txt")
    assert (third.replaces, await catalog.obsolete(third.id)) == (second.id, None)


async def test_nothing_is_added_in_the_place_of_nothing(catalog: Catalog) -> None:
    with pytest.raises(UnknownDocument):
        await add(catalog, "new", replaces="file-none")
    assert await ids(catalog) == set()
