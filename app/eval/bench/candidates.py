"""The evaluation sets that the cascade is measured on, and their candidates as the service's search finds them."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from app.eval.errors import EvalError
from cascade.embed import Embedder
from cascade.hybrid import HybridIndex
from cascade.pipeline import CANDIDATES
from cascade.rerank import Reranker, ZSumReranker
from cascade.scorers import MaxSimScorer
from cascade.token_vectors import Question, TokenVectors
from cascade.types import IndexedPassage, Passage, ScoredPassage

DATA = Path(__file__).parents[4] / "shared" / "data"


@dataclass(frozen=True)
class Case:
    """A question, the documents it may be answered from (None: all) and those that hold the answer."""

    text: str
    documents: tuple[str, ...] | None
    gold: frozenset[str]

    def recall(self, ids: Sequence[str]) -> float:
        """Share of the documents with the answer that are among `ids`, in percent."""
        return 100 * len(self.gold & set(ids)) / len(self.gold)

    def reciprocal_rank(self, order: Sequence[str]) -> float:
        """1 over the place of the first one, 0 if there is none."""
        return next((1 / rank for rank, id in enumerate(order, start=1) if id in self.gold), 0.0)


@dataclass(frozen=True)
class EvaluationSet:
    """Cases, and the passages of their documents by id: one passage a document."""

    passages: Mapping[str, Passage]
    cases: Sequence[Case]

    @classmethod
    def load(cls, name: str, corpus: str = "") -> "EvaluationSet":
        """A set whose questions bring their candidates or are asked of a whole corpus; EvalError if it is missing."""
        passages: dict[str, Passage] = {}
        cases = []
        for question in _lines(name):
            listed = {doc["id"]: _passage(doc) for doc in question["docs"]}
            passages |= {made.id: made for made in listed.values()}
            gold = frozenset(listed[id].id for id in question["gold_doc_ids"])
            cases.append(Case(question["question"], None if corpus else tuple(p.id for p in listed.values()), gold))
        if corpus:
            passages = {made.id: made for made in map(_passage, _lines(corpus))}
        return cls(passages, cases)


class Pool:
    """The passages of a set in an index, and what rerankers need of them."""

    def __init__(self, evaluation: EvaluationSet, embedder: Embedder) -> None:
        self._embedder = embedder
        self._passages = evaluation.passages
        texts = [f"{passage.title}\n{passage.text}" for passage in self._passages.values()]
        made = dict(zip(self._passages, embedder.embed(texts), strict=True))
        self.tokens = {id: embedding.tokens for id, embedding in made.items()}
        self.entries = [
            IndexedPassage(id, id, passage.title, passage.text, made[id].vector)
            for id, passage in self._passages.items()
        ]
        self.index = HybridIndex()
        self.index.add(self.entries)
        self.maxsim = MaxSimScorer(self._vectors)
        self.zsum = ZSumReranker(self.maxsim)
        self.asked = [self.question(case.text) for case in evaluation.cases]

    async def _vectors(self, ids: Sequence[str]) -> Mapping[str, TokenVectors]:
        return {id: self.tokens[id] for id in ids}

    def question(self, text: str) -> Question:
        """Embed a question, its words weighted by this pool."""
        question = self._embedder.question(text)
        return replace(question, weights=self.index.idf(question.words))

    def candidates(self, question: Question, case: Case) -> list[ScoredPassage]:
        """What the search passes to the reranker."""
        return [
            ScoredPassage(self._passages[hit.passage_id], hit.score, hit.dense_score, hit.sparse_score, rank)
            for rank, hit in enumerate(self.index.search(question, CANDIDATES, case.documents), start=1)
        ]

    async def rank(self, question: Question, case: Case, reranker: Reranker | None) -> Sequence[ScoredPassage]:
        """The candidates in a reranker's order, by default the service's."""
        return await (reranker or self.zsum).rerank(question, self.candidates(question, case))


def _lines(name: str) -> list[Any]:
    path = DATA / f"{name}.jsonl"
    if not path.is_file():
        raise EvalError(f"the cascade is measured on {path}, which is not there")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _passage(doc: Any) -> Passage:
    """Equal documents of several questions are one."""
    title, text = doc["title"].replace("_", " "), doc["text"]
    id = hashlib.sha256(f"{title}\n{text}".encode()).hexdigest()
    return Passage(id, id, 0, title, text, 0, len(text), (0,), "")
