"""Query likelihood over stored KV: how much faster than computing every passage, and what it adds to the order."""

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean

from tqdm import tqdm

from app.engine import Engine
from app.eval.bench.candidates import Case, EvaluationSet, Pool
from app.eval.bench.result import Figure, Row
from app.eval.lab import Lab
from app.lm_scorer import LmScorer
from cascade.passages import render_passage
from cascade.rerank import Reranker, ScorerReranker, ZSumReranker
from cascade.scorers import Scorer
from cascade.token_vectors import Question
from cascade.types import Passage, ScoredPassage
from fuse.plan import FusePlan
from store.keys import chunk_key

ALONE, COMBINED = "maxsim alone", "zsum3 + lm"


class FromScratch:
    """An engine that scores without stored KV."""

    fusable = False

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def log_likelihood(
        self, before: Sequence[int], token_ids: Sequence[int], plan: FusePlan | None = None
    ) -> float:
        """See Engine."""
        return await self._engine.log_likelihood(before, token_ids)


@dataclass(frozen=True)
class Given:
    """Scores that are known already, by passage."""

    scores: Mapping[str, float]
    name: str = "lm"

    async def score(self, question: Question, passages: Sequence[Passage]) -> Sequence[float]:
        """See Scorer."""
        return [self.scores[passage.id] for passage in passages]


async def measure_likelihood(
    lab: Lab, sets: Mapping[str, tuple[EvaluationSet, Pool]], limit: int | None
) -> tuple[dict[tuple[str, str], Row], Row]:
    """Recall by set and method, and speed, over the first `limit` questions of each set."""
    seconds: dict[str, list[float]] = defaultdict(list)
    rows: dict[tuple[str, str], Row] = {}
    for name, (evaluation, pool) in sets.items():
        recall: dict[str, list[float]] = defaultdict(list)
        questions = list(zip(pool.asked, evaluation.cases, strict=True))[:limit]
        for question, case in tqdm(questions, desc=f"Query likelihood, {name}", unit="question"):
            candidates = [_for_lab(lab, scored) for scored in pool.candidates(question, case)]
            given = await _score(lab, question, [scored.passage for scored in candidates], seconds)
            await _first(question, case, candidates, _rerankers(pool, given), recall)
        for method, hits in recall.items():
            title = f"{name}, {len(questions)} questions: {method}"
            rows[name, method] = Row(title, {"R@1": Figure.of([mean(hits)], "%")}, method == ALONE, "likelihood")
    stored, scratch = seconds["stored"], seconds["scratch"]
    speed = Row(
        "lm, a passage",
        {
            "over stored KV": Figure.of([1000 * value for value in stored], "ms"),
            "from scratch": Figure.of([1000 * value for value in scratch], "ms"),
            "speed-up": Figure.of([base / value for base, value in zip(scratch, stored, strict=True)], "x"),
        },
        table="likelihood, time",
    )
    return rows, speed


def _rerankers(pool: Pool, lm: Scorer) -> Mapping[str, Reranker]:
    return {
        ALONE: ScorerReranker(pool.maxsim, pool.maxsim),
        "zsum3": pool.zsum,
        "lm alone": ScorerReranker(pool.maxsim, lm),
        COMBINED: ZSumReranker(pool.maxsim, (lm,)),
    }


async def _score(lab: Lab, question: Question, passages: Sequence[Passage], seconds: dict[str, list[float]]) -> Given:
    """Score over stored KV and from scratch; notes the seconds a passage of both."""
    await lab.bank(passages)
    scorers = {
        "stored": LmScorer(lab.engine, lab.language),
        "scratch": LmScorer(FromScratch(lab.engine), lab.language),  # type: ignore[arg-type]
    }
    scores: dict[str, Sequence[float]] = {}
    for name, scorer in scorers.items():
        started = time.perf_counter()
        scores[name] = await scorer.score(question, passages)
        seconds[name].append((time.perf_counter() - started) / len(passages))
    return Given({passage.id: score for passage, score in zip(passages, scores["stored"], strict=True)})


async def _first(
    question: Question,
    case: Case,
    candidates: Sequence[ScoredPassage],
    rerankers: Mapping[str, Reranker],
    recall: dict[str, list[float]],
) -> None:
    for name, reranker in rerankers.items():
        best = (await reranker.rerank(question, candidates))[0]
        recall[name].append(case.recall([best.passage.id]))


def _for_lab(lab: Lab, scored: ScoredPassage) -> ScoredPassage:
    """The candidate with the token ids and the key that it has in this lab."""
    passage = scored.passage
    ids = tuple(lab.language.plain.encode(render_passage(passage.title, passage.text)))
    key = chunk_key(lab.language.fingerprint, "kvfuse-bench-cascade", ids)
    return replace(scored, passage=replace(passage, token_ids=ids, chunk_key=key))
