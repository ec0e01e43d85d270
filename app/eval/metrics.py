"""What an answer, a distribution or a ranking is worth. Every function is pure; scores lie in 0..1 unless said."""

import math
import re
import string
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

LogProbs = NDArray[np.float32]
"""Natural-log probabilities of the whole vocabulary, `[vocabulary]`."""

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_NOT_ALPHANUMERIC = re.compile(r"[^a-z0-9]+")


def normalize(text: str) -> str:
    """Lower case without punctuation, articles and extra white space: SQuAD's official normalisation."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def best_of(score: Callable[[str, str], float], answer: str, accepted: Sequence[str]) -> float:
    """The best score of `answer` against any accepted answer; 0 when none is accepted."""
    return max((score(answer, candidate) for candidate in accepted), default=0.0)


def exact_match(answer: str, reference: str) -> float:
    """1 if both are equal after normalisation."""
    return float(normalize(answer) == normalize(reference))


def contains(answer: str, reference: str) -> float:
    """1 if the reference occurs in the answer, in whole words, after normalisation."""
    return float(f" {normalize(reference)} " in f" {normalize(answer)} ")


def f1(answer: str, reference: str) -> float:
    """Harmonic mean of precision and recall over normalised words (SQuAD); two empty texts are equal."""
    ours, theirs = normalize(answer).split(), normalize(reference).split()
    if not ours or not theirs:
        return float(ours == theirs)
    return _harmonic((Counter(ours) & Counter(theirs)).total(), len(ours), len(theirs))


def rouge_l(answer: str, reference: str) -> float:
    """F-measure of the longest common subsequence of words (Lin 2004), words as the package rouge-score cuts them."""
    ours, theirs = (_NOT_ALPHANUMERIC.sub(" ", text.lower()).split() for text in (answer, reference))
    return _harmonic(_common_subsequence(ours, theirs), len(ours), len(theirs))


def dense(logprobs: Mapping[int, float]) -> LogProbs:
    """Log-probabilities by token id as an array `[vocabulary]`; what is missing has no mass."""
    array = np.full(max(logprobs) + 1, -np.inf, dtype=np.float32)
    array[list(logprobs)] = list(logprobs.values())
    return array


def kl_divergence(reference: LogProbs, other: LogProbs) -> float:
    """KL(reference || other) in nats, at least 0, not bounded above."""
    likely = np.isfinite(reference)  # a token without mass in the reference adds nothing
    expected, found = reference[likely].astype(np.float64), other[likely].astype(np.float64)
    return max(0.0, float((np.exp(expected) * (expected - found)).sum()))


def top_agrees(reference: LogProbs, other: LogProbs) -> float:
    """1 if both distributions have the same most likely token."""
    return float(int(reference.argmax()) == int(other.argmax()))


def recall_at(ranking: Sequence[str], relevant: Collection[str], k: int) -> float:
    """Share of the relevant items among the first `k`. Raises ValueError when nothing is relevant."""
    _require(relevant)
    return len(set(ranking[:k]) & set(relevant)) / len(set(relevant))


def reciprocal_rank(ranking: Sequence[str], relevant: Collection[str]) -> float:
    """1 over the rank of the first relevant item, 0 when there is none. Raises ValueError when nothing is relevant."""
    _require(relevant)
    return next((1 / rank for rank, item in enumerate(ranking, start=1) if item in relevant), 0.0)


def ndcg_at(ranking: Sequence[str], relevant: Collection[str], k: int) -> float:
    """Normalised discounted cumulative gain of the first `k`, gains 0 or 1 (Jarvelin and Kekalainen 2002).

    Raises ValueError when nothing is relevant.
    """
    _require(relevant)
    gained = sum(1 / math.log2(rank + 1) for rank, item in enumerate(ranking[:k], start=1) if item in relevant)
    ideal = sum(1 / math.log2(rank + 1) for rank in range(1, min(k, len(set(relevant))) + 1))
    return gained / ideal


def _require(relevant: Collection[str]) -> None:
    if not relevant:
        raise ValueError("a ranking cannot be scored: no item is relevant")


def _harmonic(common: int, ours: int, theirs: int) -> float:
    return 2 * common / (ours + theirs) if common else 0.0


def _common_subsequence(first: Sequence[str], second: Sequence[str]) -> int:
    """Length of the longest common subsequence."""
    row = [0] * (len(second) + 1)
    for word in first:
        diagonal = 0
        for column, other in enumerate(second, start=1):
            diagonal, row[column] = row[column], diagonal + 1 if word == other else max(row[column], row[column - 1])
    return row[-1]
