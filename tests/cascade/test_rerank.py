"""Candidates in a better order: sums of z-scores, the title link, relevance."""

from collections.abc import Mapping, Sequence

import httpx
import numpy as np
import pytest

from cascade.catalog import Catalog
from cascade.embed import Embedder
from cascade.errors import ScorerError
from cascade.link import link_bonus
from cascade.pipeline import Retriever
from cascade.rerank import NoReranker, ZSumReranker
from cascade.scorers import MaxSimScorer, RerankServerScorer
from cascade.select import TopKSelector
from cascade.token_vectors import Question, TokenVectors
from cascade.types import Passage, Relevance, ScoredPassage
from cascade.zscore import z_scores
from tests.cascade.conftest import AddReady

TEXTS = {
    "Harbour": "The harbour office opens at seven and closes when the last ferry has left.",
    "Ferry": "The ferry crosses the bay nine times a day. Its captain is Ilse Brandt.",
    "Bakery": "The bakery sells rye bread at dawn, and cakes on Sundays.",
}


def passage(title: str, text: str, document_id: str = "") -> Passage:
    return Passage(f"{title}-0", document_id or title, 0, title, text, 0, len(text), (1,), "k")


def candidate(title: str, dense: float = 0.5, sparse: float = 1.0) -> ScoredPassage:
    return ScoredPassage(passage(title, TEXTS[title]), 0.0, dense, sparse, 0)


@pytest.fixture(scope="module")
def reranker(embedder: Embedder) -> ZSumReranker:
    made = zip(TEXTS, embedder.embed([f"{title}\n{text}" for title, text in TEXTS.items()]), strict=True)
    stored = {f"{title}-0": embedding.tokens for title, embedding in made}

    async def vectors(ids: Sequence[str]) -> Mapping[str, TokenVectors]:
        return {id: stored[id] for id in ids if id in stored}

    return ZSumReranker(MaxSimScorer(vectors))


async def test_what_the_words_mean_together_decides(reranker: ZSumReranker, embedder: Embedder) -> None:
    question = embedder.question("When does the harbour office close?")
    ranked = await reranker.rerank(question, [candidate(title) for title in ("Bakery", "Ferry", "Harbour")])
    assert [scored.passage.title for scored in ranked] == ["Harbour", "Ferry", "Bakery"]
    assert [scored.rank for scored in ranked] == [1, 2, 3]
    assert [scored.score for scored in ranked] == sorted((scored.score for scored in ranked), reverse=True)
    assert ranked[0].scores["maxsim"] > ranked[1].scores["maxsim"] > ranked[2].scores["maxsim"]
    assert ranked[0].relevance is Relevance.GOOD


async def test_search_scores_count_too(reranker: ZSumReranker, embedder: Embedder) -> None:
    question = embedder.question("the")
    best_by_search = [candidate("Bakery", 0.9, 9.0), candidate("Harbour", 0.1, 0.0), candidate("Ferry", 0.1, 0.0)]
    assert (await reranker.rerank(question, best_by_search))[0].passage.title == "Bakery"


async def test_a_question_about_something_else_finds_nothing_relevant(
    reranker: ZSumReranker, embedder: Embedder
) -> None:
    question = embedder.question("Which enzyme unwinds the double helix of DNA?")
    ranked = await reranker.rerank(question, [candidate(title) for title in TEXTS])
    assert {scored.relevance for scored in ranked} == {Relevance.NONE}


async def test_further_scorers_have_their_say(reranker: ZSumReranker, embedder: Embedder) -> None:
    class LikesBread:
        name = "bread"

        async def score(self, question: Question, passages: Sequence[Passage]) -> Sequence[float]:
            return [1000.0 * ("bread" in passage.text) for passage in passages]

    question = embedder.question("Where is it?")
    with_bread = ZSumReranker(reranker.maxsim, (LikesBread(), LikesBread(), LikesBread(), LikesBread()))
    ranked = await with_bread.rerank(question, [candidate(title) for title in TEXTS])
    assert ranked[0].passage.title == "Bakery"
    assert ranked[0].scores["bread"] == 1000


async def test_no_candidates_stay_none(reranker: ZSumReranker, embedder: Embedder) -> None:
    assert await reranker.rerank(embedder.question("x"), []) == []


async def test_a_passage_deleted_meanwhile_scores_nothing(reranker: ZSumReranker, embedder: Embedder) -> None:
    gone = ScoredPassage(passage("Gone", "text"), 0.0, 0.5, 1.0, 0)
    ranked = await reranker.rerank(embedder.question("harbour office"), [gone, candidate("Harbour")])
    assert [scored.passage.title for scored in ranked] == ["Harbour", "Gone"]
    assert ranked[1].scores["maxsim"] == 0


async def test_the_default_finds_one_passage_for_one_answer(
    catalog: Catalog, embedder: Embedder, add_ready: AddReady
) -> None:
    for title, text in TEXTS.items():
        await add_ready(f"{title}.md", f"# {title}\n\n{text}")
    retriever = Retriever(catalog, embedder)
    selection = await retriever.search("Who is the captain of the ferry?", 6, 1000)
    assert [scored.passage.title for scored in selection.passages] == ["Ferry"]
    assert not selection.low_relevance
    nothing = await retriever.search("Which enzyme unwinds the double helix of DNA?", 6, 1000)
    assert (nothing.passages, nothing.low_relevance, nothing.considered) == ((), True, 3)


async def test_without_reranker_relevance_is_the_cosine(
    catalog: Catalog, embedder: Embedder, add_ready: AddReady
) -> None:
    await add_ready("Ferry.md", TEXTS["Ferry"])
    retriever = Retriever(catalog, embedder, NoReranker(), TopKSelector)
    assert not (await retriever.search("Who is the captain of the ferry?", 6, 1000)).low_relevance
    weak = await retriever.search("Which enzyme unwinds the double helix of DNA?", 6, 1000)
    assert (weak.low_relevance, len(weak.passages)) == (True, 1)


def test_z_scores_by_hand() -> None:
    assert z_scores([1, 3]).tolist() == [-1, 1]
    assert z_scores([2, 2, 2]).tolist() == [0, 0, 0]
    assert z_scores([]).tolist() == []


def test_the_document_named_in_the_best_passage_comes_second() -> None:
    passages = [
        passage("Harbour", TEXTS["Harbour"]),
        passage("Bakery", "Bread."),
        passage("Ferry (boat)", "Nine times."),
    ]
    scores = link_bonus(np.array([1.0, 0.2, -1.2]), passages)
    assert scores[0] == 1.0
    assert np.argsort(-scores).tolist() == [0, 2, 1]
    assert scores[2] == pytest.approx(0.8)
    assert link_bonus(np.array([1.0, 0.2, 0.1]), passages)[2] < 1.0, "the best passage keeps its place"


@pytest.mark.parametrize(
    "other",
    [
        passage("Ferry", "Another part.", document_id="Harbour"),
        passage("Harbour", "More about the same.", document_id="Harbour-2"),
        passage("Fer", "Too short a name."),
        passage("Ferr", "Only part of a word."),
        passage("Mill", "Not named."),
    ],
)
def test_what_is_no_link(other: Passage) -> None:
    scores = np.array([1.0, 0.0])
    assert link_bonus(scores, [passage("Harbour", TEXTS["Harbour"]), other]).tolist() == scores.tolist()


def server(answer: httpx.Response) -> RerankServerScorer:
    scorer = RerankServerScorer("http://rerank.test/v1/", "a-model", "key")
    scorer._client = httpx.AsyncClient(transport=httpx.MockTransport(lambda request: answer))
    return scorer


async def test_a_rerank_server_scores_by_index(embedder: Embedder) -> None:
    results = [{"index": 1, "relevance_score": 0.9}, {"index": 0, "relevance_score": 0.1}]
    scorer = server(httpx.Response(200, json={"results": results}))
    passages = [passage("a", "x"), passage("b", "y")]
    assert await scorer.score(embedder.question("q"), passages) == [0.1, 0.9]


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(500),
        httpx.Response(200, text="no json"),
        httpx.Response(200, json={"results": [{"index": 0, "relevance_score": 1}]}),
        httpx.Response(200, json=[]),
    ],
    ids=["error", "no json", "one missing", "another form"],
)
async def test_a_failing_rerank_server_is_named(embedder: Embedder, answer: httpx.Response) -> None:
    with pytest.raises(ScorerError, match=r"http://rerank.test/v1/rerank"):
        await server(answer).score(embedder.question("q"), [passage("a", "x"), passage("b", "y")])
