"""Query likelihood: how probable the main model finds the question after reading a passage, from its stored KV."""

import asyncio
from collections.abc import Sequence

from app.engine import Engine
from app.heads import Heads
from app.language import Language
from cascade.token_vectors import Question
from cascade.types import Passage
from fuse.plan import FusePlan, PolicySpec, Segment
from store.keys import ChunkKey

LEAD = "Question:"
MAX_QUESTION_TOKENS = 256


class LmScorer:
    """log P(question | passage) (Sachan et al. 2022), in nats; only the question's tokens are computed.

    A passage whose chunk is missing is computed in the same request. One request a passage, all at once: the engine
    batches them. The ingest head in front is stored like a passage at the first question.
    """

    name = "lm"

    def __init__(self, engine: Engine, language: Language) -> None:
        self._engine = engine
        self._language = language
        self._heads = Heads(engine, language.fingerprint)

    async def score(self, question: Question, passages: Sequence[Passage]) -> Sequence[float]:
        """See `cascade.scorers.Scorer`."""
        lead = self._language.plain.encode(LEAD)
        asked = self._language.plain.encode(f" {question.text}")[:MAX_QUESTION_TOKENS]
        head = await self._heads.stored(self._language.scheme.head) if self._engine.fusable else None
        return await asyncio.gather(*(self._likelihood(head, passage, lead, asked) for passage in passages))

    async def _likelihood(
        self, head: Segment | None, passage: Passage, lead: Sequence[int], asked: Sequence[int]
    ) -> float:
        before = [*self._language.scheme.head, *passage.token_ids, *lead]
        if head is None:
            return await self._engine.log_likelihood(before, asked)
        segments = (head, Segment(len(passage.token_ids), ChunkKey(passage.chunk_key)))
        plan = FusePlan(self._language.fingerprint, segments, PolicySpec("none"))
        return await self._engine.log_likelihood(before, asked, plan)
