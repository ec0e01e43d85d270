"""What a restart finds of the index on disk, and that it is never wrong about the catalogue."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import numpy as np
import pytest

from cascade.catalog import Catalog
from cascade.hybrid import HybridIndex
from cascade.pipeline import Retriever
from cascade.saved_index import Indexed, load_index, save_index
from cascade.types import Hit, IndexedPassage
from tests.cascade.conftest import AddReady
from tests.cascade.test_hybrid import WORDS, asked, passage, unit

ROWS = 300


def made(exact_rows: int) -> HybridIndex:
    """Documents of three passages, some of them removed."""
    index, vectors = HybridIndex(exact_rows), unit(ROWS)
    texts = [" ".join(WORDS[n % 7 : n % 7 + n % 4]) for n in range(ROWS)]
    index.add([passage(f"d{n // 3}", texts[n], vectors[n], n % 3) for n in range(ROWS)])
    index.remove(["d3", "d77"])
    return index


def found(index: HybridIndex) -> list[list[Hit]]:
    return [index.search(asked("train leave harbour", vector), 20) for vector in unit(5, seed=3)]


@pytest.mark.parametrize("exact_rows", [1000, 50], ids=["exact", "graph"])
def test_a_loaded_index_is_the_saved_one(tmp_path: Path, exact_rows: int) -> None:
    index = made(exact_rows)
    save_index(Indexed(index, {"d1": 4}, 9), tmp_path / "index")
    loaded = load_index(tmp_path / "index", exact_rows)
    assert loaded is not None
    assert (loaded.revision, loaded.known["d1"], loaded.known["d2"]) == (9, 4, -1)
    assert found(loaded.index) == found(index)
    for each in (index, loaded.index):
        each.remove(["d5"])
        each.add([passage("new", "a train to the quay", unit(1, seed=4)[0])])
    assert found(loaded.index) == found(index)
    words = ["train", "quay", "form", "nowhere", ""]
    assert loaded.index.idf(words) == pytest.approx(index.idf(words))


def test_passages_of_stop_words_alone_are_kept(tmp_path: Path) -> None:
    index = HybridIndex()
    index.add([passage("the", "the", unit(1)[0])])
    save_index(Indexed(index, {}, 1), tmp_path / "index")
    loaded = load_index(tmp_path / "index")
    assert loaded is not None
    loaded.index.add([passage("new", "train", unit(1)[0])])
    assert [hit.passage_id for hit in found(loaded.index)[0]] == ["new-0", "the-0"]


class Watched(Retriever):
    """Notes which texts it reads from the catalogue."""

    def __init__(self, catalog: Catalog, embedder: object, saved: Path) -> None:
        super().__init__(catalog, embedder, saved=saved)  # type: ignore[arg-type]
        self.read: list[str] = []
        between = catalog.indexed_between

        async def watched(after: int, to: int) -> AsyncIterator[Sequence[IndexedPassage]]:
            async for batch in between(after, to):
                self.read += [each.title for each in batch]
                yield batch

        catalog.indexed_between = watched  # type: ignore[method-assign]

    def titles(self) -> set[str]:
        return {hit.passage_id for hit in self._now.index.search(asked("berth", np.ones(384, np.float32)), 50)}


Start = Callable[[], Awaitable[Watched]]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return tmp_path / "index.npz"


@pytest.fixture
async def start(tmp_path: Path, saved: Path) -> AsyncIterator[Start]:
    """Starts a retriever as a new process would, on the catalogue of the test."""
    async with AsyncExitStack() as stack:

        async def started() -> Watched:
            catalog = await Catalog.open(tmp_path / "catalog.sqlite", "profile")
            stack.push_async_callback(catalog.close)
            retriever = Watched(catalog, None, saved)
            await retriever.refresh()
            return retriever

        yield started


async def test_a_restart_reads_only_what_has_changed(start: Start, catalog: Catalog, add_ready: AddReady) -> None:
    first, second = [await add_ready(f"{name}.txt", f"berth {name}") for name in ("first", "second")]
    before = await start()
    assert before.read == ["first", "second"]
    await before.close()
    third = await add_ready("third.txt", "berth third")
    await catalog.delete(first.id)
    after = await start()
    assert after.read == ["third"]
    assert after.titles() == {f"{second.id}-0", f"{third.id}-0"}


@pytest.mark.parametrize("harm", ["cut", "flip", "junk", "gone", "other catalogue"])
async def test_a_file_that_does_not_fit_is_made_anew(
    start: Start, saved: Path, add_ready: AddReady, harm: str, caplog: pytest.LogCaptureFixture
) -> None:
    document = await add_ready("first.txt", "berth first")
    before = await start()
    await before.close()
    data = bytearray(saved.read_bytes())
    if harm == "cut":
        saved.write_bytes(data[: len(data) // 2])
    elif harm == "flip":
        at = data.index(np.float32(before._now.index._dense._vectors[0, 7]).tobytes())
        data[at] ^= 1
        saved.write_bytes(data)
    elif harm == "junk":
        saved.write_bytes(b"junk")
    elif harm == "gone":
        saved.unlink()
    else:
        save_index(Indexed(made(1000), {"d1": 1}, 2), saved)
    with caplog.at_level(logging.WARNING):
        after = await start()
    assert after.read == ["first"]
    assert after.titles() == {f"{document.id}-0"}
    assert ("cannot be used" in caplog.text) == (harm in ("cut", "flip", "junk"))


async def test_a_torn_save_leaves_the_older_file(start: Start, saved: Path, add_ready: AddReady) -> None:
    await add_ready("first.txt", "berth first")
    retriever = await start()
    await retriever.close()
    good = saved.read_bytes()
    saved.with_name(f"{saved.name}.part").mkdir()  # stands in for a disk that takes nothing
    await add_ready("second.txt", "berth second")
    await retriever.refresh()
    await retriever.close()
    assert saved.read_bytes() == good
    assert (await start()).read == ["second"]
