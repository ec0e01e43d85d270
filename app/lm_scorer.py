"""Query likelihood: how probable the main model finds the question after reading a passage, from its stored KV."""

import asyncio
import logging
from collections.abc import Sequence

from app.engine import Engine
from app.engine_values import EngineError, Saved
from app.language import Language
from cascade.token_vectors import Question
from cascade.types import Passage
from fuse.plan import FusePlan, PolicySpec, SaveOrder, Segment
from fuse.scheme import SaveStep
from store.keys import ChunkKey, chunk_key

logger = logging.getLogger(__name__)

LEAD = "Question:"
MAX_QUESTION_TOKENS = 256
_HEAD_SALT = "\0head"
"""No tenant's: the head holds nothing of theirs, and no passage may have its key."""


class LmScorer:
    """log P(question | passage) (Sachan et al. 2022), in nats; only the question's tokens are computed.

    A passage whose chunk is missing is computed in the same request. One request a passage, all at once: the engine
    batches them. The ingest head in front is stored like a passage at the first question.
    """

    name = "lm"

    def __init__(self, engine: Engine, language: Language) -> None:
        self._engine = engine
        self._language = language
        self._head_save: asyncio.Future[Saved] | None = None

    async def score(self, question: Question, passages: Sequence[Passage]) -> Sequence[float]:
        """See `cascade.scorers.Scorer`."""
        lead = self._language.plain.encode(LEAD)
        asked = self._language.plain.encode(f" {question.text}")[:MAX_QUESTION_TOKENS]
        head = await self._stored_head() if self._engine.fusable else None
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

    async def _stored_head(self) -> Segment:
        """Return the head's segment; without a key, and so computed each time, if it could not be stored."""
        head, fingerprint = self._language.scheme.head, self._language.fingerprint
        key = chunk_key(fingerprint, _HEAD_SALT, head)
        if self._head_save is None:
            step = SaveStep(head, SaveOrder(key, fingerprint, 0, len(head)))
            self._head_save = asyncio.ensure_future(self._engine.save([step]))
        try:
            await asyncio.shield(self._head_save)
        except EngineError as error:
            logger.warning("the ingest head is computed for every passage: %s", error)
            self._head_save = None
            return Segment(len(head))
        return Segment(len(head), key)
