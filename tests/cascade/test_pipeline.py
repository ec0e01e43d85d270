"""From question to selection over a living catalogue."""

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from cascade.catalog import Catalog
from cascade.embed import Embedder
from cascade.pipeline import Retriever
from cascade.rerank import NoReranker
from cascade.select import TopKSelector
from cascade.token_vectors import Question
from cascade.types import Document, ScoredPassage, Selection
from tests.cascade.conftest import AddReady

LEAVE = "# Leave\n\nEvery clerk may take 25 days of annual leave. Requests go to the zebra desk."
TRAVEL = "# Travel\n\nA train ticket to the coast costs 40 crowns. Receipts are kept for a year."
PHONES = "# Phones\n\nThe passcode of a work phone has 16 digits and is changed every spring."


def documents_of(selection: Selection) -> set[str]:
    return {scored.passage.document_id for scored in selection.passages}


@pytest.fixture
async def library(add_ready: AddReady) -> list[Document]:
    texts = {"leave.md": LEAVE, "travel.md": TRAVEL, "phones.md": PHONES}
    return [await add_ready(name, text) for name, text in texts.items()]


@pytest.fixture
def retriever(catalog: Catalog, embedder: Embedder) -> Retriever:
    """Everything that is found is chosen: these tests are about what is found."""
    return Retriever(catalog, embedder, NoReranker(), TopKSelector)


async def test_the_passage_with_the_answer_comes_first(retriever: Retriever, library: list[Document]) -> None:
    selection = await retriever.search("How much does the train cost?", k=2, token_budget=1000)
    first, second = selection.passages
    assert first.passage.document_id == library[1].id
    assert "40 crowns" in first.passage.text
    assert (first.rank, second.rank) == (1, 2)
    assert first.score > second.score
    assert first.dense_score > 0.3
    assert first.sparse_score > 0
    assert selection.considered == 3
    assert not selection.low_relevance
    assert set(selection.timings_ms) == {"refresh", "embed", "search", "load", "rerank", "select"}
    assert all(milliseconds >= 0 for milliseconds in selection.timings_ms.values())


async def test_the_token_budget_holds(retriever: Retriever, library: list[Document]) -> None:
    selection = await retriever.search("How much does the train cost?", k=3, token_budget=50)
    assert sum(len(scored.passage.token_ids) for scored in selection.passages) <= 50
    assert len(selection.passages) == 1


async def test_a_question_beside_everything_is_flagged(retriever: Retriever, library: list[Document]) -> None:
    assert (await retriever.search("Who painted the Mona Lisa?", 3, 1000)).low_relevance


async def test_only_the_given_documents_are_searched(retriever: Retriever, library: list[Document]) -> None:
    wanted = {library[0].id, library[2].id}
    selection = await retriever.search("How much does the train cost?", 3, 1000, document_ids=wanted)
    assert documents_of(selection) == wanted
    assert (await retriever.search("train", 3, 1000, document_ids=[])).passages == ()


async def test_no_documents_at_all(retriever: Retriever) -> None:
    selection = await retriever.search("Anything?", 3, 1000)
    assert (selection.passages, selection.considered, selection.low_relevance) == ((), 0, True)


@pytest.mark.parametrize("question", ["", "?!", "<|im_end|>", "日本語 🎉", "word " * 5000])
async def test_odd_questions_are_answered(retriever: Retriever, library: list[Document], question: str) -> None:
    assert len((await retriever.search(question, 3, 1000)).passages) == 3


async def test_documents_come_and_go_between_searches(
    retriever: Retriever, catalog: Catalog, add_ready: AddReady, library: list[Document]
) -> None:
    assert documents_of(await retriever.search("zebra desk", 5, 1000)) == {document.id for document in library}
    await catalog.delete(library[0].id)
    added = await add_ready("new.md", "# New\n\nThe zebra desk moved to the third floor.")
    selection = await retriever.search("zebra desk", 5, 1000)
    assert selection.passages[0].passage.document_id == added.id
    assert documents_of(selection) == {library[1].id, library[2].id, added.id}


async def test_changes_by_another_process_are_seen(
    tmp_path: Path, embedder: Embedder, library: list[Document], retriever: Retriever
) -> None:
    await retriever.refresh()
    other = await Catalog.open(tmp_path / "catalog.sqlite", "profile")
    await other.delete(library[1].id)
    await other.close()
    assert library[1].id not in documents_of(await retriever.search("train ticket", 5, 1000))


async def test_a_document_that_is_not_ready_is_not_found(
    retriever: Retriever, catalog: Catalog, library: list[Document]
) -> None:
    await catalog.fail(library[0].id, "its chunks were lost")
    await catalog.delete(library[1].id)
    assert documents_of(await retriever.search("annual leave", 5, 1000)) == {library[2].id}


class GatedEmbedder(Embedder):
    """Holds a search where the index was chosen but nothing is found yet."""

    def __init__(self, model: Path) -> None:
        super().__init__(model)
        self.entered, self.go_on = threading.Event(), threading.Event()

    def question(self, text: str) -> Question:
        self.entered.set()
        assert self.go_on.wait(30)
        return super().question(text)


async def test_a_document_deleted_during_the_search_is_not_returned(
    catalog: Catalog, embedder_dir: Path, library: list[Document]
) -> None:
    gated = GatedEmbedder(embedder_dir)
    search = asyncio.create_task(Retriever(catalog, gated, NoReranker(), TopKSelector).search("train ticket", 5, 1000))
    assert await asyncio.to_thread(gated.entered.wait, 30)
    await catalog.delete(library[1].id)
    gated.go_on.set()
    selection = await search
    assert documents_of(selection) == {library[0].id, library[2].id}
    assert [scored.rank for scored in selection.passages] == [1, 2]


async def test_searches_beside_adding_and_deleting_see_a_consistent_library(
    retriever: Retriever, catalog: Catalog, add_ready: AddReady, library: list[Document]
) -> None:
    ready, deleted = {document.id for document in library}, set[str]()

    async def change(n: int) -> None:
        document = await add_ready(f"{n}.txt", f"The train number {n} leaves from platform {n}.")
        ready.add(document.id)
        if n % 2:
            ready.discard(document.id)
            await catalog.delete(document.id)
            deleted.add(document.id)

    async def ask(_: int) -> None:
        must, must_not = set(ready), set(deleted)
        found = documents_of(await retriever.search("train platform", 20, 10_000))
        assert must & ready <= found
        assert not must_not & found

    await asyncio.gather(*(call(n) for n in range(10) for call in (change, ask, ask)))
    assert documents_of(await retriever.search("train", 20, 10_000)) == ready


async def test_a_reranker_has_the_last_word_on_order(
    catalog: Catalog, embedder: Embedder, library: list[Document]
) -> None:
    class Backwards:
        async def rerank(self, question: Question, candidates: Sequence[ScoredPassage]) -> Sequence[ScoredPassage]:
            assert question.text == "train ticket"
            return candidates[::-1]

    plain = await Retriever(catalog, embedder, NoReranker(), TopKSelector).search("train ticket", 3, 1000)
    backwards = await Retriever(catalog, embedder, Backwards(), TopKSelector).search("train ticket", 3, 1000)
    assert len(plain.passages) == 3
    assert [p.passage for p in backwards.passages] == [p.passage for p in plain.passages[::-1]]


async def test_another_selector_can_cut(catalog: Catalog, embedder: Embedder, library: list[Document]) -> None:
    class OnlyTheLast:
        def __init__(self, k: int, token_budget: int) -> None:
            self.rule = f"last of {k} within {token_budget}"

        def select(self, candidates: Sequence[ScoredPassage]) -> Selection:
            return Selection(tuple(candidates[-1:]), self.rule, len(candidates), low_relevance=False)

    selection = await Retriever(catalog, embedder, selector=OnlyTheLast).search("train ticket", 3, 1000)
    assert (selection.rule, len(selection.passages)) == ("last of 3 within 1000", 1)
    assert selection.timings_ms
