"""The gate that a model passes before it is served fused: its fused prefill must equal its ordinary prefill."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.engine import Engine, EngineError, Sampling
from app.language import Language
from fuse.plan import FusePlan, PolicySpec, SaveOrder, Segment
from fuse.scheme import SaveStep
from store.keys import chunk_key

_TOP = 20
_SALT = "selfcheck"
_LIMIT = 0.1
"""Largest total variation distance between two next-token distributions that rounding explains.

A logit of a bf16 model moves in steps of 0.125 at magnitudes of 16 to 32, and a prefill cut differently into batches
moves some of them by one step: up to 0.03 for the most likely token.
"""
_TEXTS = (
    "The lighthouse keeper of Aldmoor counts every ship. In March he counted ninety-one, mostly grain barges.\n\n",
    "The bakery on Quay Street opens at five. Its owner, Ilse Brandt, sells rye bread to the crews at dawn.\n\n",
)
_QUESTION = "How many ships were counted in March?"


@dataclass(frozen=True)
class SelfCheck:
    """The outcome. `exact_reuse` and `full_recompute` are distances to an ordinary prefill, 0 (equal) to 1."""

    passed: bool
    reason: str
    exact_reuse: float = math.nan
    full_recompute: float = math.nan


async def check_fusion(engine: Engine, language: Language) -> SelfCheck:
    """Compare two fused prefills with ordinary ones, on two short passages.

    Reused without recompute, a passage at the place where it was computed must give the same distribution: what was
    read from the cache, encoded, decoded and written back is right. Recomputed whole, any passages must: the recompute
    pass is right.
    """
    if not engine.fusable:
        return SelfCheck(False, engine.refusal)
    try:
        passages = [language.plain.encode(text) for text in _TEXTS]
        for passage in passages:
            await _save(engine, language, passage)
        reuse = await _distance(engine, language, passages[:1], "none")
        full = await _distance(engine, language, passages, "full")
    except EngineError as error:
        return SelfCheck(False, str(error))
    passed = max(reuse, full) <= _LIMIT
    reason = "" if passed else f"fused prefill differs from ordinary prefill by {max(reuse, full):.3f} (limit {_LIMIT})"
    return SelfCheck(passed, reason, reuse, full)


async def _save(engine: Engine, language: Language, passage: Sequence[int]) -> None:
    head = language.scheme.head
    key = chunk_key(language.fingerprint, _SALT, passage)
    order = SaveOrder(key, language.fingerprint, len(head), len(head) + len(passage))
    await engine.save([SaveStep((*head, *passage), order)])


async def _distance(engine: Engine, language: Language, passages: Sequence[Sequence[int]], policy: str) -> float:
    segments = [Segment(len(passage), chunk_key(language.fingerprint, _SALT, passage)) for passage in passages]
    plan = FusePlan(language.fingerprint, (Segment(len(language.scheme.head)), *segments), PolicySpec(policy))
    token_ids = [*language.scheme.head, *(token for passage in passages for token in passage)]
    token_ids += language.plain.encode(_QUESTION)
    ordinary = await _next_token(engine, token_ids, None, f"selfcheck-ordinary-{policy}")
    fused = await _next_token(engine, token_ids, plan, f"selfcheck-{policy}")
    return total_variation(ordinary, fused)


async def _next_token(
    engine: Engine, token_ids: Sequence[int], plan: FusePlan | None, salt: str
) -> Mapping[int, float]:
    async for piece in engine.generate(token_ids, Sampling(1, logprobs=_TOP), plan, salt):
        if piece.logprobs:
            return piece.logprobs[0]
    raise EngineError("the engine returned no log-probabilities")


def total_variation(first: Mapping[int, float], second: Mapping[int, float]) -> float:
    """Return half the summed difference of two distributions, given the log-probabilities of their likely tokens."""
    tokens = first.keys() | second.keys()
    return sum(abs(math.exp(first.get(t, -math.inf)) - math.exp(second.get(t, -math.inf))) for t in tokens) / 2
