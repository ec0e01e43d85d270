"""Bank: chunks that a lab computes and stores, each once, under one ingest scheme."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from blake3 import blake3

from app.engine import Engine
from app.engine_values import Saved
from app.eval.errors import EvalError
from app.eval.prompt import Prompt
from app.language import Language
from cascade.types import Passage
from fuse.scheme import IngestScheme, Predecessor
from store.chunk import KVChunk
from store.keys import ChunkKey, chunk_key

if TYPE_CHECKING:
    from store.tiered import TieredStore

_SALT = "kvfuse-eval"


class Bank:
    """`fingerprint` is what its chunks are stored under: of the model and the scheme."""

    def __init__(self, engine: Engine, scheme: IngestScheme, fingerprint: str) -> None:
        self.fingerprint = fingerprint
        self._engine = engine
        self._scheme = scheme
        self._banked: dict[str, Saved] = {}

    @classmethod
    def ours(cls, engine: Engine, language: Language) -> "Bank":
        """The bank of the service's own ingest scheme."""
        return cls(engine, language.scheme, language.fingerprint)

    @classmethod
    def alone(cls, engine: Engine, language: Language) -> "Bank":
        """The bank of passages computed by themselves, as CacheBlend and plain reuse have them."""
        scheme = IngestScheme.alone(language.scheme.head)
        derived = blake3(f"{language.fingerprint} {scheme.describe()}".encode()).hexdigest()
        return cls(engine, scheme, derived)

    def key(self, token_ids: Sequence[int], purpose: str = "") -> ChunkKey:
        """The key of a passage's chunk; copies made for another `purpose` have one of their own."""
        return chunk_key(self.fingerprint, f"{_SALT}{purpose}", token_ids)

    def own(self, prompt: Prompt) -> Prompt:
        """The same prompt over this bank's chunks."""
        passages = [replace(passage, chunk_key=self.key(passage.token_ids)) for passage in prompt.passages]
        return replace(prompt, passages=tuple(passages), fingerprint=self.fingerprint)

    async def store(self, passages: Iterable[Passage]) -> Saved:
        """Compute and store the chunks that are not stored yet; bytes of them all."""
        total = Saved(0, 0)
        before: Passage | None = None
        for passage in passages:
            if passage.chunk_key not in self._banked:
                self._banked[passage.chunk_key] = await self._save(passage, before)
            total += self._banked[passage.chunk_key]
            before = passage
        return total

    async def _save(self, passage: Passage, before: Passage | None) -> Saved:
        """Store a passage's chunk, computed behind `before` if that is its predecessor in the document."""
        predecessor = None
        if before and (before.document_id, before.ordinal + 1) == (passage.document_id, passage.ordinal):
            predecessor = Predecessor(ChunkKey(before.chunk_key), before.token_ids)
        key = ChunkKey(passage.chunk_key)
        return await self._engine.save(self._scheme.steps(key, self.fingerprint, passage.token_ids, predecessor))


def stored_chunk(store: "TieredStore", key: ChunkKey, fingerprint: str) -> KVChunk:
    """A stored chunk whole. Raises EvalError when it is not stored."""
    reader = store.open(key, fingerprint)
    if reader is None:
        raise EvalError(f"chunk {key[:16]} is not stored: it cannot be copied")
    with reader:
        info = reader.info
        return KVChunk(
            key, fingerprint, info.layout, info.base_position, reader.read(), reader.scores(), info.predecessor
        )
