"""Loading a plan's chunks: read, decode and re-rotate in threads, layer by layer, ready to be written."""

import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from vllm.logger import init_logger

from fuse.connector.metadata import LoadJob
from fuse.connector.model import PagedModel
from fuse.plan import Span
from fuse.rope import Rotation
from fuse.runs import Run, merge_runs
from store.chunk import Bits
from store.errors import ChunkUnavailable, CorruptChunk
from store.keys import ChunkKey
from store.reader import ChunkReader
from store.stats import MissReason
from store.tiered import TieredStore

logger = init_logger(__name__)

LayerKV = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Source:
    """An open chunk, its rows in the load's packed buffers and its stored variance scores."""

    span: Span
    reader: ChunkReader
    row: int
    scores: NDArray[np.float16] | None

    @property
    def exact(self) -> bool:
        """Whether it begins the prompt, as it did when it was computed: nothing that it depends on has changed."""
        return self.span.start == self.reader.info.base_position == 0


class Load:
    """One request's chunks on their way into the paged cache.

    Buffers are packed: only the tokens of chunks that could be opened have rows, in position order. Created and
    advanced on the worker's thread; the layers are prepared in `pool`.
    """

    def __init__(self, job: LoadJob, model: PagedModel, store: TieredStore, pool: ThreadPoolExecutor) -> None:
        self.job = job
        self.started = time.perf_counter()
        self._model = model
        self._store = store
        self._open = ExitStack()
        self._failed: set[Span] = set()
        self.declined = 0
        self._sources = self._open_chunks()
        self._rows = sum(source.reader.info.tokens for source in self._sources)
        positions = [torch.arange(source.span.start, source.span.end) for source in self._sources]
        self.positions = torch.cat(positions) if positions else torch.empty(0, dtype=torch.int64)
        self._rotation = self._rotation_of(self.positions)
        self._rotation_made = model.staging.mark()
        self._spent = [(0.0, 0.0)] * len(model.layers)
        self._layers = [pool.submit(self._prepare_or_fail, index) for index in range(len(model.layers))]

    @property
    def layers(self) -> list[Future[LayerKV | None]]:
        """K and V `[rows, kv_heads, head_dim]` of each layer, in forward order, on the device; `None`: failed."""
        return self._layers

    def thread_seconds(self) -> tuple[float, float]:
        """Return the time that the loading threads spent (reading and decoding, re-rotating), summed over threads."""
        decode, rotate = zip(*self._spent, strict=True)
        return sum(decode), sum(rotate)

    def usable(self) -> list[Source]:
        """Return the chunks that were loaded whole. Final once every layer is done."""
        return [source for source in self._sources if source.span not in self._failed]

    def agree(self) -> None:
        """Leave what is not usable on every rank: before anything is computed, and once every layer is done."""
        spans = list(self.job.plan.spans())
        usable = {source.span for source in self.usable()}
        kept = self._model.ranks.common([span in usable for span in spans])
        self._failed.update(span for span, common in zip(spans, kept, strict=True) if span in usable and not common)

    def missing(self) -> list[Run]:
        """Return the context runs that have no usable KV. Final once every layer is done."""
        loaded = [source.span for source in self.usable()]
        spans = (span for span in self.job.plan.spans() if span not in loaded and span.end > self.job.start)
        return merge_runs((max(span.start, self.job.start), span.end) for span in spans)

    def missed_chunks(self) -> int:
        """Count the chunks that the plan names and the store could not give."""
        named = sum(span.key is not None and span.end > self.job.start for span in self.job.plan.spans())
        return named - len(self._sources) - self.declined + len(self._failed)

    def close(self) -> None:
        """Release the chunk files; waits for layers that are being prepared."""
        for layer in self._layers:
            layer.cancel()
        for layer in self._layers:
            if not layer.cancelled():
                layer.exception()
        self._open.close()

    def _open_chunks(self) -> list[Source]:
        sources: list[Source] = []
        row = 0
        for span in self.job.plan.spans():
            if span.key is None or span.end <= self.job.start:
                continue
            reader = self._open_chunk(span.key, span.end - span.start)
            if reader is None:
                continue
            self._open.enter_context(reader)
            if reader.info.tokens != span.end - span.start:
                logger.warning("a plan names a chunk of %d tokens for %s", reader.info.tokens, span)
                continue  # the chunk stays: others may name it rightly
            if reader.info.layout != self._model.kv_layout:
                self._store.discard(span.key, MissReason.BAD_HEADER.value)
                continue
            try:
                sources.append(Source(span, reader, row, reader.scores()))
            except CorruptChunk as error:
                self._discard(span.key, error)
                continue
            row += reader.info.tokens
        return sources

    def _open_chunk(self, key: ChunkKey, tokens: int) -> ChunkReader | None:
        """Open a chunk unless computing it would be faster than loading it from where it is."""
        tier = self._store.lookup(key)
        if tier.hit and not self._store.worth_loading(tokens, tier.value).worth_loading:
            self.declined += 1
            return None
        return self._store.open(key, self.job.plan.fingerprint)

    def _rotation_of(self, positions: torch.Tensor) -> Rotation | None:
        shifts = positions.clone()
        for source in self._sources:
            rows = slice(source.row, source.row + source.reader.info.tokens)
            shifts[rows] = source.span.start - source.reader.info.base_position
        if not shifts.any() or not len(shifts):
            return None
        return self._model.rotary.rotation(shifts.to(self._model.device))

    def _prepare_or_fail(self, layer: int) -> LayerKV | None:
        try:
            return self._prepare(layer)
        except Exception:
            logger.exception("layer %d could not be loaded: its chunks are recomputed", layer)
            self._failed.update(source.span for source in self._sources)
            return None

    def _prepare(self, layer: int) -> LayerKV:
        started = time.perf_counter()
        shape = (self._rows, len(self._model.heads), self._model.kv_layout.head_dim)
        staging = self._model.staging
        keys, values = (staging.empty(shape, self._model.dtype) for _ in range(2))
        raw_keys, raw_values = self._model.bits(keys), self._model.bits(values)
        for source in self._sources:
            rows = slice(source.row, source.row + source.reader.info.tokens)
            self._read(source, layer, raw_keys[rows].transpose(1, 0, 2), raw_values[rows].transpose(1, 0, 2))
        decoded = time.perf_counter()
        with staging.lane(self._rotation_made):
            keys, values = staging.place(keys), staging.place(values)
            if self._rotation is not None:
                self._rotation.apply(keys)
        self._spent[layer] = decoded - started, time.perf_counter() - decoded
        return keys, values

    def _read(self, source: Source, layer: int, keys: Bits, values: Bits) -> None:
        if source.span in self._failed:
            return
        try:
            source.reader.read_layer(layer, keys, values, heads=self._model.heads)
        except CorruptChunk as error:
            if source.span not in self._failed:
                self._failed.add(source.span)
                self._discard(source.reader.info.key, error)
        except ChunkUnavailable as error:
            logger.warning("recomputing a chunk whose tier stopped answering: %s", error)
            self._failed.add(source.span)

    def _discard(self, key: ChunkKey, error: CorruptChunk) -> None:
        logger.warning("recomputing a damaged chunk: %s", error)
        self._store.discard(key, MissReason.CORRUPT.value)
