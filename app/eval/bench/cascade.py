"""Which passages the cascade passes on, and in what time, beside plain rank fusion."""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import mean
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from app.config import Settings
from app.eval.bench.candidates import EvaluationSet, Pool
from app.eval.bench.likelihood import ALONE, COMBINED, measure_likelihood
from app.eval.bench.registry import Size
from app.eval.bench.result import Bar, BenchResult, Figure, Row
from app.eval.running import on_lab, run_to_end
from app.models import prepare_models
from cascade.embed import Embedder
from cascade.hybrid import HybridIndex
from cascade.pipeline import CANDIDATES
from cascade.rerank import NoReranker, Reranker
from cascade.select import GapSelector, Selector, TopKSelector
from cascade.token_vectors import Question, TokenVectors, similarity
from cascade.types import IndexedPassage

NO_BUDGET = 1 << 30
UNITS = {"MRR": "", "passed on": "passages"}
LARGE = 100_000
LARGE_ROW = "a choice among 100,000"
PREFILL_MS = 1500  # of 1.5k tokens, at the 1,000 tokens/s that two busy cores do
SHORT_QUESTIONS = 3  # of each set, for the likelihood: every one has its 10 to 20 candidates computed

T = TypeVar("T")


@dataclass(frozen=True)
class Method:
    """How to order (None: the service's way) and how to cut; `selector` is called with a token budget."""

    name: str
    reranker: Reranker | None
    selector: Callable[[int], Selector]


METHODS = (
    Method("RRF, top 3", NoReranker(), partial(TopKSelector, 3)),
    Method("zsum3, top 3", None, partial(TopKSelector, 3)),
    Method("zsum3, gap", None, partial(GapSelector, 6)),
)
SETS = {
    "handbook (1,550)": ("handbook", "handbook_corpus"),
    "xquad lists": ("xquad_en",),
    "hotpotqa lists": ("hotpotqa",),
    "musique lists": ("musique",),
}
SINGLE = ("handbook (1,550)", "xquad lists")


def run(settings: Settings, size: Size) -> BenchResult:
    """Measure without an engine, then the likelihood with one. Raises EvalError where the data is not there."""
    sets = {name: EvaluationSet.load(*files) for name, files in SETS.items()}
    embedder = Embedder(settings.embedder or prepare_models(settings.home).embedder)
    pools = {name: Pool(evaluation, embedder) for name, evaluation in sets.items()}
    rows = run_to_end(_choices(sets, pools))
    figures = _large_latency(pools[SINGLE[0]], sets[SINGLE[0]].cases[0].text)
    latency = Row(LARGE_ROW, figures, table="time")
    limit = SHORT_QUESTIONS if size is Size.SHORT else None
    single = {name: (sets[name], pools[name]) for name in SINGLE}
    recall, speed = on_lab(settings, lambda lab: measure_likelihood(lab, single, limit))
    return BenchResult(
        "cascade",
        "Choosing passages",
        (*rows.values(), *recall.values(), speed, latency),
        (*_bars(rows, latency), *_likelihood_bars(recall, speed)),
        {name: {"questions": len(found.cases), "passages": len(found.passages)} for name, found in sets.items()},
        (
            f"The latency's bar is 5 % of {PREFILL_MS} ms, an ordinary prefill of 1.5k tokens at 1,000 tokens/s. "
            f"Likelihood (lm) is measured on the first questions of a set only, in the short run on {SHORT_QUESTIONS}: "
            "enough for its speed, not for its recall.",
        ),
    )


async def _choices(sets: Mapping[str, EvaluationSet], pools: Mapping[str, Pool]) -> dict[str, Row]:
    rows = {}
    for name, evaluation in sets.items():
        for method in METHODS:
            title, baseline = f"{name}: {method.name}", isinstance(method.reranker, NoReranker)
            rows[title] = Row(title, await _measure(pools[name], evaluation, method), baseline)
    return rows


async def _measure(pool: Pool, evaluation: EvaluationSet, method: Method) -> dict[str, Figure]:
    found: dict[str, list[float]] = defaultdict(list)
    for question, case in zip(pool.asked, evaluation.cases, strict=True):
        ranked = await pool.rank(question, case, method.reranker)
        order = [scored.passage.id for scored in ranked]
        chosen = [scored.passage.id for scored in method.selector(NO_BUDGET).select(ranked).passages]
        for k in (1, 2, 3, 5):
            found[f"R@{k}"].append(case.recall(order[:k]))
        found["MRR"].append(case.reciprocal_rank(order))
        found["passed on"].append(len(chosen))
        found["gold passed on"].append(case.recall(chosen))
    return {name: Figure.of([mean(values)], UNITS.get(name, "%")) for name, values in found.items()}


def _large_latency(pool: Pool, question: str) -> dict[str, Figure]:
    """Milliseconds of a choice among LARGE passages: those of the pool again and again, with shaken vectors."""
    random, index = np.random.default_rng(0), HybridIndex()
    while len(index) < LARGE:
        at = len(index)
        batch = [
            replace(entry, id=f"{entry.id}+{at}", document_id=f"{entry.id}+{at}", embedding=_shaken(entry, random))
            for entry in pool.entries[: LARGE - at]
        ]
        index.add(batch)
    found: dict[str, list[float]] = defaultdict(list)
    for _ in range(9):
        asked, embed_ms = _timed(lambda: pool.question(question))
        hits, search_ms = _timed(partial(index.search, asked, CANDIDATES, None))
        tokens = [pool.tokens[hit.passage_id.partition("+")[0]].to_bytes() for hit in hits]
        _, maxsim_ms = _timed(partial(_similarity, asked, tokens))
        for name, value in (("embed", embed_ms), ("search", search_ms), ("maxsim", maxsim_ms)):
            found[name].append(value)
        found["all"].append(embed_ms + search_ms + maxsim_ms)
    return {name: Figure.of(values, "ms") for name, values in found.items()}


def _shaken(entry: IndexedPassage, random: np.random.Generator) -> NDArray[np.float32]:
    vector = entry.embedding + random.standard_normal(len(entry.embedding)).astype(np.float32) / 40
    unit: NDArray[np.float32] = vector / np.linalg.norm(vector)
    return unit


def _similarity(asked: Question, stored: Sequence[bytes]) -> NDArray[np.float32]:
    return similarity(asked, [TokenVectors.from_bytes(data, len(asked.vector)) for data in stored])


def _timed(call: Callable[[], T]) -> tuple[T, float]:
    start = time.perf_counter()
    value = call()
    return value, 1000 * (time.perf_counter() - start)


def _bars(rows: Mapping[str, Row], latency: Row) -> tuple[Bar, ...]:
    handbook, hotpot = rows["handbook (1,550): zsum3, gap"].figures, rows["hotpotqa lists: zsum3, gap"].figures
    return (
        Bar("handbook R@1, %", handbook["R@1"].median, 82, at_least=True),
        Bar("handbook R@2, %", handbook["R@2"].median, 93, at_least=True),
        Bar("handbook R@5, %", handbook["R@5"].median, 98, at_least=True),
        Bar("hotpotqa R@3, %", hotpot["R@3"].median, 80, at_least=True),
        Bar("handbook passages passed on", handbook["passed on"].median, 3.0, at_least=False),
        Bar("handbook gold passed on, %", handbook["gold passed on"].median, 96, at_least=True),
        Bar(f"{LARGE_ROW}, ms", latency.figures["all"].median, 0.05 * PREFILL_MS, at_least=False),
    )


def _likelihood_bars(recall: Mapping[tuple[str, str], Row], speed: Row) -> tuple[Bar, ...]:
    def first(name: str, method: str) -> float:
        return recall[name, method].figures["R@1"].median

    return (
        Bar("lm from scratch over lm on stored KV, a passage", speed.figures["speed-up"].median, 2.5, at_least=True),
        *(
            Bar(f"{name}: zsum3 + lm R@1 beside maxsim alone, %", first(name, COMBINED), first(name, ALONE), True)
            for name in SINGLE
        ),
    )
