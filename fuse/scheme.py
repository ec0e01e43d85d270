"""IngestScheme: in which contexts a passage is prefilled before its KV is stored."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from blake3 import blake3

from fuse.plan import SaveOrder, SaveStage
from store.keys import ChunkKey


@dataclass(frozen=True)
class Predecessor:
    """The passage before another one in its document."""

    key: ChunkKey
    token_ids: tuple[int, ...]


@dataclass(frozen=True)
class SaveStep:
    """One prefill of an ingest: the whole prompt, and what of it is saved."""

    token_ids: tuple[int, ...]
    order: SaveOrder

    @classmethod
    def exact(cls, key: ChunkKey, fingerprint: str, token_ids: Sequence[int], start: int = 0) -> "SaveStep":
        """Return the prefill that stores the KV of `token_ids[start:]` as it is in prompts that begin like this one."""
        return cls(tuple(token_ids), SaveOrder(key, fingerprint, start, len(token_ids)))


@dataclass(frozen=True)
class IngestScheme:
    """A passage is prefilled behind the fixed head and other passages, never first: that alone halves its divergence.

    In two passes, the first behind two passages, a generic one and its real predecessor (another generic one for a
    document's first), the second behind the generic one alone: the KV of the first is kept, with each token's variance
    between the two. The second prompt of a passage is how the first one of its successor begins, so that the engine's
    prefix cache saves a pass over every passage but a document's last, up to whole blocks (measured on 8 passages of
    206 tokens and blocks of 128: a quarter of the tokens less). In one pass, behind a generic passage only.

    Behind its predecessor without the generic one a passage is worse (measured at `hybrid` 15 %, 8 questions: KL 0.027
    against 0.015 behind that predecessor, 0.060 against 0.036 elsewhere), and so it is behind one generic passage
    instead of two (13 questions, nothing recomputed: 0.314 against 0.267; `variance` 15 %: 0.119 against 0.089).

    head: token ids of the ingest head; generic: two passages of plain prose, the one that is always there and the one
    in a predecessor's place; passes: 1 or 2.
    """

    head: tuple[int, ...]
    generic: tuple[tuple[int, ...], tuple[int, ...]]
    passes: int = 2

    def __post_init__(self) -> None:
        if self.passes not in (1, 2):
            raise ValueError(f"an ingest has 1 or 2 passes, not {self.passes}")

    @classmethod
    def alone(cls, head: tuple[int, ...]) -> "IngestScheme":
        """Return the scheme of CacheBlend's own code, to compare with: a passage behind nothing but the first token.

        Without that token, which models use as the sink of their attention, the passage's own first ones become sinks.
        """
        return cls(head[:1], ((), ()), passes=1)

    def describe(self) -> str:
        """Return what enters the fingerprint: the scheme and its fixed tokens."""
        fixed = json.dumps([self.head, self.generic])
        return f"head+generic+before+passage/{self.passes}:{blake3(fixed.encode()).hexdigest()}"

    def prompt_tokens(self, passage_tokens: int) -> int:
        """Return how long an ingest prompt gets with passages of `passage_tokens` tokens, its output included."""
        before = max(passage_tokens, len(self.generic[1])) if self.passes == 2 else 0
        return len(self.head) + len(self.generic[0]) + before + passage_tokens + 1

    def steps(
        self, key: ChunkKey, fingerprint: str, passage: Sequence[int], predecessor: Predecessor | None = None
    ) -> list[SaveStep]:
        """Return the prefills that store `passage`, in the order they must run."""
        if self.passes == 1:
            return [self._step(key, fingerprint, passage, self.generic[0], "", SaveStage.ONLY)]
        context = (*self.generic[0], *(predecessor.token_ids if predecessor else self.generic[1]))
        before = predecessor.key if predecessor else ""
        return [
            self._step(key, fingerprint, passage, context, before, SaveStage.FIRST),
            self._step(key, fingerprint, passage, self.generic[0], before, SaveStage.SECOND),
        ]

    def _step(
        self,
        key: ChunkKey,
        fingerprint: str,
        passage: Sequence[int],
        context: tuple[int, ...],
        predecessor: str,
        stage: SaveStage,
    ) -> SaveStep:
        start = len(self.head) + len(context)
        order = SaveOrder(key, fingerprint, start, start + len(passage), predecessor, stage)
        return SaveStep((*self.head, *context, *passage), order)
