"""Collections of documents, and filters over their attributes."""

from typing import Any

import pytest

from cascade.catalog import Catalog
from cascade.collections import Collections
from cascade.errors import FilterError, UnknownCollection, UnknownDocument
from cascade.filters import AllOf, AnyOf, Comparison, Filter, Operation
from cascade.types import MediaType
from tests.cascade.test_replace import add, ready

SHIP = {"kind": "ship", "tons": 90.0, "afloat": True}


async def test_a_collection_is_made_changed_and_deleted(catalog: Catalog) -> None:
    collections = catalog.collections
    made = await collections.create("harbour", {"owner": "town"})
    assert await collections.list() == [made]
    changed = await collections.change(made.id, "port", None)
    assert (changed.name, changed.metadata) == ("port", {"owner": "town"})
    assert (await collections.change(made.id, None, {})).metadata == {}
    await collections.delete(made.id)
    assert await collections.list() == []


async def test_documents_come_and_go_with_their_attributes(catalog: Catalog) -> None:
    collections = catalog.collections
    one, two = await collections.create("one", {}), await collections.create("two", {})
    document = await add(catalog, "text")
    await collections.put(one.id, document.id, SHIP)
    await collections.put(two.id, document.id, {})
    assert (await collections.member(one.id, document.id)).attributes == SHIP
    assert (await collections.put(one.id, document.id, {"kind": "tug"})).attributes == {"kind": "tug"}
    await collections.remove(one.id, document.id)
    assert await collections.members(one.id) == []
    assert [member.document for member in await collections.members(two.id)] == [document]
    await collections.delete(two.id)
    assert await catalog.get(document.id) == document


async def test_a_deleted_document_is_in_no_collection(catalog: Catalog) -> None:
    collection = await catalog.collections.create("c", {})
    document = await add(catalog, "text")
    await catalog.collections.put(collection.id, document.id, {})
    await catalog.delete(document.id)
    assert await catalog.collections.members(collection.id) == []


async def test_a_new_version_takes_the_place_in_every_collection(catalog: Catalog) -> None:
    collection = await catalog.collections.create("c", {})
    old = await add(catalog, "old", "a.txt")
    await ready(catalog, old)
    await catalog.collections.put(collection.id, old.id, SHIP)
    new = await add(catalog, "new", "a.txt")
    await ready(catalog, new)
    (member,) = await catalog.collections.members(collection.id)
    assert (member.document.id, member.attributes) == (new.id, SHIP)


async def test_what_is_not_there_is_named(catalog: Catalog) -> None:
    collections: Collections = catalog.collections
    made = await collections.create("c", {})
    document = await add(catalog, "text")
    for call in (
        collections.get("vs-none"),
        collections.change("vs-none", "x", None),
        collections.delete("vs-none"),
        collections.members("vs-none"),
        collections.put("vs-none", document.id, {}),
        collections.member("vs-none", document.id),
        collections.remove("vs-none", document.id),
        collections.searched("vs-none"),
    ):
        with pytest.raises(UnknownCollection, match="vs-none"):
            await call
    for other in (
        collections.put(made.id, "file-none", {}),
        collections.member(made.id, "file-none"),
        collections.remove(made.id, "file-none"),
    ):
        with pytest.raises(UnknownDocument, match="file-none"):
            await other


@pytest.mark.parametrize(
    ("operation", "value", "passes"),
    [
        ("eq", "ship", True),
        ("eq", "tug", False),
        ("ne", "tug", True),
        ("in", ("tug", "ship"), True),
        ("nin", ("tug", "ship"), False),
        ("gt", "barge", True),
        ("lt", 5, False),
        ("gte", 5, False),
    ],
)
def test_text_is_compared(operation: str, value: Any, passes: bool) -> None:
    assert Comparison("kind", Operation(operation), value).matches(SHIP) is passes


@pytest.mark.parametrize(("operation", "passes"), [("gt", False), ("gte", True), ("lt", False), ("lte", True)])
def test_numbers_are_compared(operation: str, passes: bool) -> None:
    assert Comparison("tons", Operation(operation), 90).matches(SHIP) is passes
    assert not Comparison("tons", Operation(operation), "90").matches(SHIP)


@pytest.mark.parametrize("operation", Operation)
def test_an_absent_attribute_differs_from_everything(operation: Operation) -> None:
    value = ("x",) if operation in ("in", "nin") else "x"
    assert Comparison("absent", operation, value).matches(SHIP) is (operation in ("ne", "nin"))


def test_conditions_join() -> None:
    ship, heavy = Comparison("kind", Operation.EQ, "ship"), Comparison("tons", Operation.GT, 100)
    cases: list[tuple[Filter, bool]] = [
        (AllOf((ship, heavy)), False),
        (AnyOf((ship, heavy)), True),
        (AllOf((ship, AnyOf((heavy, ship)))), True),
        (AllOf(()), True),
        (AnyOf(()), False),
    ]
    for condition, passes in cases:
        assert condition.matches(SHIP) is passes


@pytest.mark.parametrize(("operation", "value"), [(Operation.EQ, ("a",)), (Operation.IN, "a")])
def test_a_value_of_the_wrong_kind_is_refused(operation: Operation, value: Any) -> None:
    with pytest.raises(FilterError, match="kind"):
        Comparison("kind", operation, value)


async def test_members_pass_the_filter(catalog: Catalog) -> None:
    collection = await catalog.collections.create("c", {})
    for number, kind in enumerate(("ship", "tug", "ship")):
        document = (await catalog.add("n.txt", f"{kind} {number}".encode(), MediaType.TEXT)).document
        await catalog.collections.put(collection.id, document.id, {"kind": kind})
    assert len(await catalog.collections.members(collection.id, Comparison("kind", Operation.EQ, "ship"))) == 2
