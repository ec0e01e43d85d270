"""Examining one tiny model: what the gate says of it, and how its keys and answers move with the position."""

import asyncio
import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from app.engine import Engine
from app.engine_values import EngineConfig, Sampling
from app.language import Language
from app.selfcheck import SelfCheck, check_fusion, total_variation
from fuse.connector.config import FuseConfig
from fuse.plan import FusePlan, PolicySpec, SaveOrder, Segment
from fuse.rope import RotaryTable
from fuse.scheme import SaveStep
from store.chunk import KVChunk
from store.config import StoreConfig
from store.keys import ChunkKey, chunk_key
from store.tiered import TieredStore
from tests.e2e.inline import InlineEngine
from tests.e2e.models import TinyModel

PASSAGES = (
    "The ferry to Ostrand leaves at nine from the northern pier. It carries forty cars and a cargo of red bricks.\n\n",
    "Ilse Brandt bought the old mill in spring. She repaired its wheel and now grinds rye for three villages.\n\n",
    "A storm took the roof of the boathouse in November; the club has met in the school ever since.\n\n",
)
_TAIL = "The ferry to Ostrand leaves at"
_FAR = 300
"""Tokens of filler in front of the second copy of a passage."""


@dataclass(frozen=True)
class Examination:
    """What was found; numbers are NaN when fusion is refused.

    tokens: length of an answer to a request with a plan, which no model may fail over. turned, unturned: largest
    relative difference of a token's first-layer keys between a chunk computed far away and one computed near, with and
    without re-rotation. moved, misplaced: distance of a prefill fused without recompute to the ordinary one, with and
    without re-rotation.
    """

    refusal: str
    check: SelfCheck
    tokens: int
    turned: float = math.nan
    unturned: float = math.nan
    moved: float = math.nan
    misplaced: float = math.nan


def examine(tiny: TinyModel, folder: Path, tokenizer: Path) -> Examination:
    """Make the model, start an engine with it in this process, and examine it. Once a process."""
    rotary = tiny.write(folder / "model", tokenizer)
    return asyncio.run(_examine(tiny, folder, rotary))


async def _examine(tiny: TinyModel, folder: Path, rotary: RotaryTable | None) -> Examination:
    language = Language.load(folder / "model", "bfloat16", passes=1)
    store = StoreConfig(folder / "memory", folder / "disk", codec="raw")
    connector = FuseConfig(store).to_extra_config()
    config = EngineConfig(language.model, "bfloat16", connector, max_model_len=1024, num_gpu_blocks=32)
    engine = InlineEngine(config, tiny.engine)
    await engine.start()
    check = await check_fusion(engine, language)
    prompt = language.plain.encode(_TAIL)
    plan = FusePlan(language.fingerprint, (Segment(len(prompt) - 1),), PolicySpec("none"))
    pieces = [piece async for piece in engine.generate(prompt, Sampling(4), plan, "planned")]
    found = Examination(engine.refusal, check, sum(piece.tokens for piece in pieces))
    if engine.fusable and rotary is not None:
        with TieredStore(store) as chunks:
            found = await _Positions(engine, language, chunks, rotary).measure(found)
    return found


@dataclass(frozen=True)
class _Positions:
    """Chunks of the same passages computed at different positions."""

    engine: Engine
    language: Language
    chunks: TieredStore
    rotary: RotaryTable

    async def measure(self, found: Examination) -> Examination:
        passages = [self.language.plain.encode(text) for text in PASSAGES]
        near = [await self._save(passage, 0, "near") for passage in passages]
        far = await self._save(passages[0], _FAR, "far")
        ordinary, moved, misplaced = await self._distributions(passages, near)
        return dataclasses.replace(
            found,
            turned=_largest_difference(self._first_keys(far, turned_by=-_FAR), self._first_keys(near[0])),
            unturned=_largest_difference(self._first_keys(far), self._first_keys(near[0])),
            moved=total_variation(ordinary, moved),
            misplaced=total_variation(ordinary, misplaced),
        )

    async def _save(self, passage: Sequence[int], shift: int, salt: str) -> ChunkKey:
        """Store the passage as computed behind the head and `shift` tokens of filler."""
        filler = (self.language.plain.encode(PASSAGES[1]) * shift)[:shift]
        before = [*self.language.scheme.head, *filler]
        key = chunk_key(self.language.fingerprint, salt, passage)
        order = SaveOrder(key, self.language.fingerprint, len(before), len(before) + len(passage))
        await self.engine.save([SaveStep((*before, *passage), order)])
        return key

    async def _distributions(
        self, passages: Sequence[Sequence[int]], keys: Sequence[ChunkKey]
    ) -> list[dict[int, float]]:
        """Next-token log-probabilities behind all passages: ordinary, fused, and fused without re-rotation."""
        head = self.language.scheme.head
        prompt = [*head, *(token for passage in passages for token in passage), *self.language.plain.encode(_TAIL)]
        segments = [Segment(len(head)), *(Segment(len(p), key) for p, key in zip(passages, keys, strict=True))]
        plan = FusePlan(self.language.fingerprint, tuple(segments), PolicySpec("none"))
        plans = {"ordinary": None, "moved": plan, "misplaced": self._misplace(plan)}
        return [await self._next_token(prompt, plan, salt) for salt, plan in plans.items()]

    def _misplace(self, plan: FusePlan) -> FusePlan:
        """Return the plan over chunks that claim to have been computed where it uses them: they are not rotated."""
        segments = []
        for segment, span in zip(plan.segments, plan.spans(), strict=True):
            if segment.key is not None:
                chunk = self._read(segment.key)
                key = ChunkKey(segment.key[::-1])
                self.chunks.put(dataclasses.replace(chunk, key=key, base_position=span.start))
                segment = dataclasses.replace(segment, key=key)
            segments.append(segment)
        return dataclasses.replace(plan, segments=tuple(segments))

    async def _next_token(self, prompt: Sequence[int], plan: FusePlan | None, salt: str) -> dict[int, float]:
        pieces = [piece async for piece in self.engine.generate(prompt, Sampling(1, logprobs=20), plan, salt)]
        if plan is not None:
            assert pieces[-1].report["reused"] == sum(segment.tokens for segment in plan.segments if segment.key)
        return dict(pieces[0].logprobs[0])

    def _first_keys(self, key: ChunkKey, turned_by: int = 0) -> torch.Tensor:
        keys = torch.from_numpy(self._read(key).data[0, 0].copy()).view(torch.bfloat16).transpose(0, 1)
        self.rotary.rotation(torch.full((len(keys),), turned_by)).apply(keys)
        return keys

    def _read(self, key: ChunkKey) -> KVChunk:
        reader = self.chunks.open(key, self.language.fingerprint)
        assert reader is not None
        with reader:
            info = reader.info
            return KVChunk(info.key, info.fingerprint, info.layout, info.base_position, reader.read())


def _largest_difference(found: torch.Tensor, expected: torch.Tensor) -> float:
    difference = (found.float() - expected.float()).flatten(1).norm(dim=1)
    return float((difference / expected.float().flatten(1).norm(dim=1)).max())
