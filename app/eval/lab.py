"""Lab: one engine with a store of its own, and requests to it measured from the outside."""

import secrets
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import numpy as np

from app.config import Settings
from app.engine import Engine
from app.engine_local import LocalEngine
from app.engine_values import EngineConfig, EngineError, Sampling, Saved
from app.eval.bank import Bank, stored_chunk
from app.eval.errors import EvalError
from app.eval.metrics import LogProbs, dense
from app.eval.prompt import Prompt, make_prompt
from app.eval.scratch import Scratch
from app.heads import Heads
from app.language import GENERIC_PASSAGES, Language
from cascade.errors import CascadeError
from cascade.types import Document, MediaType, Passage, SourceText, Stage
from fuse.plan import FusePlan, PolicySpec
from store.config import StoreConfig
from store.keys import ChunkKey


@dataclass(frozen=True)
class Answer:
    """One answer and what it took, in seconds of wall time from sending the request.

    token_times: when each token arrived; the first is the time to first token.
    report: the worker's account of fusing (fields of `FuseReport`), empty for an ordinary prefill.
    """

    text: str
    token_times: tuple[float, ...]
    cached_tokens: int
    report: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ttft(self) -> float:
        return self.token_times[0]

    @property
    def gaps(self) -> tuple[float, ...]:
        """Time between one token and the next."""
        return tuple(later - earlier for earlier, later in pairwise(self.token_times))

    def stages(self) -> dict[str, float]:
        """Split the time to first token.

        `decode` is reading and decoding and `rotate` re-rotating: they overlap in threads, and share the elapsed time
        of loading as the threads' seconds do. `write` is putting the result into the paged cache, `select` choosing
        tokens, `recompute` recomputing them, `tail` the rest: the question's prefill, scheduling and sampling.
        """
        if not self.report:
            return {"prefill": self.ttft}
        seconds = {name: float(self.report[f"{name}_s"]) for name in ("load", "write", "select", "recompute")}
        loading = seconds.pop("load")
        decode, rotate = float(self.report["decode_s"]), float(self.report["rotate_s"])
        turned = (loading - seconds["write"]) * (rotate / (decode + rotate) if rotate else 0.0)
        split = {"decode": loading - seconds["write"] - turned, "rotate": turned, **seconds}
        return {**split, "tail": self.ttft - sum(split.values())}


class Lab:
    """Measures one engine. Requests are meant to run one at a time unless load is what is measured."""

    def __init__(self, engine: Engine, language: Language, store: StoreConfig, passage_tokens: int) -> None:
        self.engine = engine
        self.language = language
        self.passage_tokens = passage_tokens
        self._store = store
        self._ours = Bank.ours(engine, language)
        self._alone = Bank.alone(engine, language)
        self._nonce = secrets.token_hex(8)  # nothing that another lab left in the engine's prefix cache is hit
        self._heads: dict[str, Heads] = {}

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: Settings) -> AsyncIterator["Lab"]:
        """Start the engine that `settings` describe, with a store of its own; both are gone at the end.

        Raises:
            EvalError: the folder holds no model, or one that cannot be fused.
        """
        language = _language(settings)
        with Scratch() as memory, Scratch(Path(gettempdir())) as disk:
            store = replace(
                settings.store_config(), memory_dir=memory / "memory", disk_dir=disk / "disk", remote_url=""
            )
            engine = LocalEngine(EngineConfig.of(settings, language.model, store))
            try:
                await engine.start()
                if not engine.fusable:
                    raise EvalError(f"{language.model.name} cannot be fused: {engine.refusal}")
                lab = cls(engine, language, store, settings.passage_tokens)
                await lab.warm_up()
                yield lab
            finally:
                await engine.stop()

    async def warm_up(self) -> None:
        """Send the first requests, which compile kernels for seconds, so that none of those measured does."""
        passages = self.passages("warm-up", "", "".join(GENERIC_PASSAGES))
        await self.bank(passages)
        prompt = make_prompt(self.language, "chat", "What does the ferry cross?", passages)
        for policy in (None, PolicySpec("none"), PolicySpec("hybrid", {"share": 0.15})):
            await self.answer(prompt, policy, Sampling(2), "warm-up")

    def passages(self, id: str, title: str, text: str, media_type: MediaType = MediaType.TEXT) -> list[Passage]:
        """Split and tokenise one document as the service does."""
        from cascade.passages import PassageMaker

        maker = PassageMaker(self.language.plain, self._ours.key, self.passage_tokens)
        return maker.make(_document(id, title, media_type), SourceText(text))

    async def bank(self, passages: Iterable[Passage]) -> Saved:
        """Compute and store the chunks that this lab has not stored yet; bytes of them all."""
        return await self._ours.store(passages)

    async def alone(self, prompt: Prompt) -> Prompt:
        """The same prompt over chunks of its passages computed by themselves, stored when this returns."""
        prompt = self._alone.own(prompt)
        await self._alone.store(prompt.passages)
        return prompt

    async def store_stats(self) -> Mapping[str, Any]:
        """What the engine's side of the store did since it started, as `StoreStats` fields."""
        (stats,) = (await self.engine.store_stats()).values()
        return stats

    def layer_bytes(self, passages: Sequence[Passage]) -> dict[str, list[int]]:
        """Stored bytes of K and V by layer, over stored passages."""
        from store.format import read_header
        from store.tiers.directory import DirectoryTier

        tier = DirectoryTier("memory", self._store.memory_dir, 1)
        total: list[Any] = []
        for passage in passages:
            if (source := tier.open(ChunkKey(passage.chunk_key))) is not None:
                header = read_header(source)
                payloads = np.diff(header.offsets).reshape(header.checksums.shape)
                total.append(payloads.sum(axis=(1, 3)))
        layers = sum(total)
        return {"k": layers[:, 0].tolist(), "v": layers[:, 1].tolist()} if total else {}

    def misplaced(self, prompt: Prompt) -> Prompt:
        """The same prompt over copies of its chunks that claim to have been computed where it uses them."""
        starts = [len(prompt.head)]
        for passage in prompt.passages:
            starts.append(starts[-1] + len(passage.token_ids))
        changes = [(f"-at-{start}", {"base_position": start}) for start in starts[:-1]]
        return self._copied(prompt, self._store, changes)

    def uncompressed(self, prompt: Prompt) -> Prompt:
        """The same prompt over copies of its chunks that are stored as they are."""
        store = replace(self._store, codec="raw")
        return self._copied(prompt, store, [("-raw", {}) for _ in prompt.passages])

    def _copied(self, prompt: Prompt, config: StoreConfig, copies: Sequence[tuple[str, Mapping[str, Any]]]) -> Prompt:
        """Copy each passage's chunk for a purpose of its own, with what it changes, into the store of `config`."""
        from store.tiered import TieredStore

        passages = list[Passage]()
        with TieredStore(config) as store:
            for passage, (purpose, changes) in zip(prompt.passages, copies, strict=True):
                key = self._ours.key(passage.token_ids, purpose)
                store.put(
                    replace(stored_chunk(store, ChunkKey(passage.chunk_key), prompt.fingerprint), key=key, **changes)
                )
                passages.append(replace(passage, chunk_key=key))
        return replace(prompt, passages=tuple(passages))

    async def answer(self, prompt: Prompt, policy: PolicySpec | None, sampling: Sampling, salt: str) -> Answer:
        """Generate one answer, by an ordinary prefill if `policy` is None.

        Requests of one `salt` (and one plan) share the engine's prefix cache: a salt never used before measures cold.
        """
        token_ids = prompt.token_ids()
        plan, salt = await self._plan(prompt, policy, salt)
        text, times, last = "", list[float](), None
        started = time.perf_counter()
        async for piece in self.engine.generate(token_ids, sampling, plan, salt):
            times += [time.perf_counter() - started] * piece.tokens
            text += piece.text
            last = piece
        if last is None or not times:
            raise EngineError("the engine ended a request without a token")
        return Answer(text, tuple(times), last.cached_tokens, last.report)

    async def next_token(self, prompt: Prompt, so_far: Sequence[int], policy: PolicySpec | None, salt: str) -> LogProbs:
        """Return the distribution of the token after `prompt` and the answer `so_far`, `[vocabulary]`.

        What was fused for the prompt alone is taken from the engine's prefix cache for the later tokens, as it is when
        an answer is generated. Asking for the whole vocabulary takes far longer than the token: never time this.
        """
        plan, salt = await self._plan(prompt, policy, salt)
        plan = replace(plan, answered=len(so_far)) if plan else None
        token_ids = [*prompt.token_ids(), *so_far]
        async for piece in self.engine.generate(token_ids, Sampling(1, logprobs=-1), plan, salt):
            if piece.logprobs:
                return dense(piece.logprobs[0])
        raise EngineError("the engine returned no log-probabilities")

    async def _plan(self, prompt: Prompt, policy: PolicySpec | None, salt: str) -> tuple[FusePlan | None, str]:
        """Return the prompt's plan, none for an ordinary prefill, and the salt that its request carries.

        Its head is stored first, as the service's is by the time that it matters.
        """
        salt = f"{self._nonce}-{salt}"
        if policy is None:
            return None, salt
        heads = self._heads.setdefault(prompt.fingerprint, Heads(self.engine, prompt.fingerprint, self._nonce))
        plan = prompt.plan(policy, await heads.stored(prompt.head))
        return plan, plan.cache_salt(salt, prompt.token_ids())


def _language(settings: Settings) -> Language:
    from app.models import prepare_models

    model = settings.model or prepare_models(settings.home).llm
    try:
        return Language.load(model, settings.dtype, settings.ingest_passes, cache_dir=settings.home)
    except (OSError, CascadeError) as error:
        raise EvalError(f"{model} is no model that can be read: {error}") from error


def _document(id: str, title: str, media_type: MediaType) -> Document:
    """A document that no catalogue holds."""
    return Document(
        id=id,
        filename=id,
        title=title,
        media_type=media_type,
        sha256="",
        bytes=0,
        stage=Stage.READY,
        error=None,
        passages=0,
        passages_done=0,
        tokens=0,
        created_at=0,
        updated_at=0,
    )
