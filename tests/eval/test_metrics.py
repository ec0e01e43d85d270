"""Metrics against cases worked by hand and against the reference packages."""

import json
import math
import random

import numpy as np
import pytest
from rouge_score.rouge_scorer import RougeScorer

from app.eval import metrics
from app.eval.bootstrap import bootstrap, paired_difference
from tests.fresh import run_fresh


@pytest.mark.parametrize(
    ("answer", "reference", "expected"),
    [
        ("The Eiffel Tower!", "eiffel tower", 1.0),
        ("Eiffel", "Eiffel Tower", 2 / 3),  # precision 1, recall 1/2
        ("a red car and a red bus", "red red red", 2 * 2 / (5 + 3)),  # red, car, and, red, bus against three reds
        ("", "", 1.0),
        ("", "Lima", 0.0),
        ("Quito", "Lima", 0.0),
    ],
)
def test_f1(answer: str, reference: str, expected: float) -> None:
    assert metrics.f1(answer, reference) == pytest.approx(expected)


def test_exact_match_and_contains_ignore_case_articles_and_punctuation() -> None:
    assert metrics.exact_match("The Lima.", "lima") == 1
    assert metrics.exact_match("Lima city", "Lima") == 0
    assert metrics.contains("She lives in Lima, Peru.", "lima") == 1
    assert metrics.contains("She lives in Limassol.", "Lima") == 0


def test_best_of_takes_the_best_accepted_answer() -> None:
    assert metrics.best_of(metrics.f1, "Stanley Hall", ["G. Stanley Hall", "Stanley Hall"]) == 1
    assert metrics.best_of(metrics.f1, "Stanley Hall", []) == 0


def test_rouge_l_by_hand() -> None:
    # longest common subsequence of "police killed the gunman" and "police kill the gunman": 3 of 4 words each
    assert metrics.rouge_l("police killed the gunman", "police kill the gunman") == pytest.approx(0.75)
    assert metrics.rouge_l("", "x") == 0


def test_rouge_l_equals_the_reference_package() -> None:
    rng, scorer = random.Random(5), RougeScorer(["rougeL"], use_stemmer=False)
    words = ["the", "river", "runs", "to", "sea", "Up-stream", "1.5", "café", "don't"]
    for _ in range(200):
        ours, theirs = (" ".join(rng.choices(words, k=rng.randint(1, 12))) for _ in range(2))
        expected = scorer.score(theirs, ours)["rougeL"].fmeasure
        assert metrics.rouge_l(ours, theirs) == pytest.approx(expected), (ours, theirs)


def test_kl_by_hand() -> None:
    fair, biased = np.log(np.array([0.5, 0.5], np.float32)), np.log(np.array([0.75, 0.25], np.float32))
    assert metrics.kl_divergence(fair, biased) == pytest.approx(
        0.5 * math.log(0.5 / 0.75) + 0.5 * math.log(2), abs=1e-6
    )
    assert metrics.kl_divergence(fair, fair) == 0
    assert metrics.top_agrees(biased, np.log(np.array([0.6, 0.4], np.float32))) == 1
    assert metrics.top_agrees(biased, np.log(np.array([0.4, 0.6], np.float32))) == 0


def test_kl_of_an_impossible_token_is_finite_where_the_reference_has_no_mass() -> None:
    reference = np.array([0.0, -np.inf], np.float32)
    assert metrics.kl_divergence(reference, np.log(np.array([0.5, 0.5], np.float32))) == pytest.approx(math.log(2))


def test_ranking_by_hand() -> None:
    ranking, relevant = ["a", "b", "c", "d"], {"b", "d"}
    assert metrics.recall_at(ranking, relevant, 2) == 0.5
    assert metrics.reciprocal_rank(ranking, relevant) == 0.5
    gained, ideal = 1 / math.log2(3) + 1 / math.log2(5), 1 + 1 / math.log2(3)
    assert metrics.ndcg_at(ranking, relevant, 4) == pytest.approx(gained / ideal)
    assert metrics.reciprocal_rank(ranking, {"z"}) == 0
    with pytest.raises(ValueError, match="no item is relevant"):
        metrics.recall_at(ranking, set(), 2)


REFERENCE = """
import json, os, sys
os.environ["NUMBA_DISABLE_JIT"] = "1"
from ranx import Qrels, Run, evaluate

cases = json.loads(sys.argv[1])
qrels = Qrels({f"{number:02}": dict.fromkeys(relevant, 1) for number, (_, relevant) in enumerate(cases)})
run = Run({f"{number:02}": {item: 1 - place / 10 for place, item in enumerate(ranking)}
           for number, (ranking, _) in enumerate(cases)})
found = [evaluate(qrels, run, metric, return_mean=False).tolist() for metric in ("recall@3", "mrr", "ndcg@5")]
print(json.dumps(list(zip(*found))))
"""
"""The reference package compiles for half a minute unless numba is told not to, which takes a process of its own."""


def test_rankings_equal_the_reference_package() -> None:
    rng = random.Random(11)
    items = [f"d{number}" for number in range(12)]
    cases = [(rng.sample(items, 8), rng.sample(items, rng.randint(1, 4))) for _ in range(30)]
    reference = json.loads(run_fresh(REFERENCE, json.dumps(cases)).stdout)
    for (ranking, relevant), expected in zip(cases, reference, strict=True):
        found = (
            metrics.recall_at(ranking, set(relevant), 3),
            metrics.reciprocal_rank(ranking, set(relevant)),
            metrics.ndcg_at(ranking, set(relevant), 5),
        )
        assert found == pytest.approx(tuple(expected))


def test_bootstrap_covers_the_mean_and_repeats() -> None:
    values = [0.0] * 50 + [1.0] * 50
    interval = bootstrap(values)
    assert (interval.mean, interval.n) == (0.5, 100)
    # normal approximation of the interval: 0.5 +- 1.96 * 0.5 / sqrt(100)
    assert interval.low == pytest.approx(0.402, abs=0.03)
    assert interval.high == pytest.approx(0.598, abs=0.03)
    assert bootstrap(values) == interval


def test_pairing_finds_a_difference_that_is_small_against_the_spread() -> None:
    base = [float(number) for number in range(40)]
    assert paired_difference([value + 0.1 for value in base], base).significant
    assert not paired_difference(base, base).significant
    with pytest.raises(ValueError, match="zip"):
        paired_difference(base, base[1:])
