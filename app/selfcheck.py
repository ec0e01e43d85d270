"""The gate that a model passes before it is served fused: its fused prefill must equal its ordinary prefill."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.engine import Engine
from app.engine_values import EngineDown, EngineError, Sampling
from app.language import Language
from fuse.plan import FusePlan, PolicySpec, Segment
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
_TAIL = "The lighthouse keeper of Aldmoor counts every ship. In March he counted"


@dataclass(frozen=True)
class SelfCheck:
    """The outcome. The numbers are distances between next-token distributions, 0 (equal) to 1.

    exact_reuse, full_recompute: of a fused prefill to the ordinary one; at most the limit when the check is passed.
    control: of an ordinary prefill without the passage to one with it; above the limit, or the check shows nothing.
    """

    passed: bool
    reason: str
    exact_reuse: float = math.nan
    full_recompute: float = math.nan
    control: float = math.nan


async def check_fusion(engine: Engine, language: Language) -> SelfCheck:
    """Compare two fused prefills with ordinary ones, on two short passages.

    Reused without recompute, a passage at the place where it was computed must give the same distribution: what was
    read from the cache, encoded, decoded and written back is right. Recomputed whole, any passages must: the recompute
    pass is right.

    Raises:
        EngineDown: it stopped answering, which says nothing of its model.
    """
    if not engine.fusable:
        return SelfCheck(False, engine.refusal)
    reason = ""
    for _ in range(1 + len(_TEXTS)):  # each try removes a chunk that was damaged since an earlier start
        try:
            return await _check(engine, language)
        except EngineDown:
            raise
        except EngineError as error:
            reason = str(error)
    return SelfCheck(False, reason)


async def _check(engine: Engine, language: Language) -> SelfCheck:
    passages = [language.plain.encode(text) for text in _TEXTS]
    for passage in passages:
        await _save(engine, language, passage)
    reuse = await _distance(engine, language, passages[:1], "none")
    full = await _distance(engine, language, passages, "full")
    control = await _control(engine, language, passages)
    return SelfCheck(not (reason := _reason(max(reuse, full), control)), reason, reuse, full, control)


def _reason(distance: float, control: float) -> str:
    if distance > _LIMIT:
        return f"fused prefill differs from ordinary prefill by {distance:.3f} (limit {_LIMIT})"
    if control <= _LIMIT:
        return f"the self-check shows nothing: without its passage the model answers alike ({control:.3f})"
    return ""


async def _save(engine: Engine, language: Language, passage: Sequence[int]) -> None:
    head = language.scheme.head
    key = chunk_key(language.fingerprint, _SALT, passage)
    await engine.save([SaveStep.exact(key, language.fingerprint, (*head, *passage), len(head))])


async def _distance(engine: Engine, language: Language, passages: Sequence[Sequence[int]], policy: str) -> float:
    segments = [Segment(len(passage), chunk_key(language.fingerprint, _SALT, passage)) for passage in passages]
    plan = FusePlan(language.fingerprint, (Segment(len(language.scheme.head)), *segments), PolicySpec(policy))
    token_ids = _prompt(language, passages)
    ordinary, _ = await _next_token(engine, token_ids, None, f"{_SALT}-ordinary-{policy}")
    fused, report = await _next_token(engine, token_ids, plan, f"{_SALT}-{policy}")
    if report.get("missed_chunks") != 0:
        raise EngineError(f"the self-check's passages were not fused: {dict(report) or 'no report'}")
    return total_variation(ordinary, fused)


async def _control(engine: Engine, language: Language, passages: Sequence[Sequence[int]]) -> float:
    present, _ = await _next_token(engine, _prompt(language, passages), None, f"{_SALT}-present")
    absent, _ = await _next_token(engine, _prompt(language, passages[1:]), None, f"{_SALT}-absent")
    return total_variation(present, absent)


def _prompt(language: Language, passages: Sequence[Sequence[int]]) -> list[int]:
    context = [token for passage in passages for token in passage]
    return [*language.scheme.head, *context, *language.plain.encode(_TAIL)]


async def _next_token(
    engine: Engine, token_ids: Sequence[int], plan: FusePlan | None, salt: str
) -> tuple[Mapping[int, float], Mapping[str, Any]]:
    pieces = [piece async for piece in engine.generate(token_ids, Sampling(1, logprobs=_TOP), plan, salt)]
    if not pieces or not pieces[0].logprobs:
        raise EngineError("the engine returned no log-probabilities")
    return pieces[0].logprobs[0], pieces[-1].report


def total_variation(first: Mapping[int, float], second: Mapping[int, float]) -> float:
    """Return half the summed difference of two distributions, given the log-probabilities of their likely tokens."""
    tokens = first.keys() | second.keys()
    return sum(abs(math.exp(first.get(t, -math.inf)) - math.exp(second.get(t, -math.inf))) for t in tokens) / 2
