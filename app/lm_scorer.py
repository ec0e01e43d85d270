"""Query likelihood: how probable the main model finds the question after reading a passage, from its stored KV."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from app.engine import Engine
from app.language import Language
from cascade.token_vectors import Question
from cascade.types import Passage
from fuse.plan import FusePlan, PolicySpec, Segment
from store.keys import ChunkKey

LEAD = "Question:"
MAX_QUESTION_TOKENS = 256


@dataclass(frozen=True)
class LmScorer:
    """log P(question | passage) (Sachan et al. 2022), in nats; only the question's tokens are computed.

    A passage whose chunk is missing is computed in the same request. One request a passage, all at once: the engine
    batches them.
    """

    engine: Engine
    language: Language
    name: str = "lm"

    async def score(self, question: Question, passages: Sequence[Passage]) -> Sequence[float]:
        """See `cascade.scorers.Scorer`."""
        lead = self.language.plain.encode(LEAD)
        asked = self.language.plain.encode(f" {question.text}")[:MAX_QUESTION_TOKENS]
        return await asyncio.gather(*(self._likelihood(passage, lead, asked) for passage in passages))

    async def _likelihood(self, passage: Passage, lead: Sequence[int], asked: Sequence[int]) -> float:
        head = self.language.scheme.head
        segments = (Segment(len(head)), Segment(len(passage.token_ids), ChunkKey(passage.chunk_key)))
        plan = FusePlan(self.language.fingerprint, segments, PolicySpec("none")) if self.engine.fusable else None
        before = [*head, *passage.token_ids, *lead]
        return await self.engine.log_likelihood(before, asked, plan)
