"""Saving: K/V out of the paged cache, scored against a second context, encoded and stored in the background."""

from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import torch
from vllm.logger import init_logger

from fuse.connector.metadata import SaveJob
from fuse.connector.model import PagedModel
from fuse.connector.threads import stand_aside
from fuse.plan import SaveOrder, SaveStage
from store.chunk import KVChunk
from store.tiered import TieredStore

logger = init_logger(__name__)

_HELD = 64
"""First passes that may wait for their second; beyond it the oldest is stored without scores."""
_RESULTS_KEPT = 1024


@dataclass(frozen=True)
class SaveResult:
    """The outcome of one save: bytes of the chunk, or the error that prevented it."""

    key: str
    raw_bytes: int = 0
    stored_bytes: int = 0
    error: str = ""


@dataclass(frozen=True)
class _Copy:
    """A passage's K/V `[layers, 2, tokens, kv_heads, head_dim]` on the host, as one pass left it."""

    order: SaveOrder
    tag: str
    data: torch.Tensor


class Saver:
    """Stores the K/V of finished ingest requests. Called on the worker's thread; encoding runs in one of its own.

    Among tensor-parallel ranks the first one stores what all of them hold.

    A passage saved in two passes is held after the first until the second has given its variance scores.
    """

    def __init__(self, model: PagedModel, store: TieredStore) -> None:
        self._model = model
        self._store = store
        self._thread = ThreadPoolExecutor(1, "kvfuse-save", initializer=stand_aside)
        self._held: OrderedDict[str, _Copy] = OrderedDict()
        self._saves: OrderedDict[str, Future[SaveResult]] = OrderedDict()

    def save(self, job: SaveJob) -> None:
        """Copy the job's K/V out of the paged cache, whose blocks are free to go when this returns."""
        data = self._model.ranks.whole(self._gather(job))
        if data is None:
            return
        copy = _Copy(job.order, job.tag, data)
        if job.order.stage is SaveStage.FIRST:
            self._hold(copy)
            return
        first = self._held.pop(job.order.key, None) if job.order.stage is SaveStage.SECOND else None
        self._store_later(first or copy, copy if first else None)

    def take(self, tag: str) -> SaveResult | None:
        """Return and forget the result of the save tagged `tag`, once it has ended."""
        save = self._saves.get(tag)
        return self._saves.pop(tag).result() if save is not None and save.done() else None

    def close(self) -> None:
        self._thread.shutdown()

    def _gather(self, job: SaveJob) -> torch.Tensor:
        reader = self._model.paged.reader(job.block_ids, job.order.start, job.order.end)
        return torch.stack([torch.stack(reader.read(layer.kv_cache)) for layer in self._model.layers.values()]).cpu()

    def _hold(self, copy: _Copy) -> None:
        self._held[copy.order.key] = copy
        if len(self._held) > _HELD:
            _, oldest = self._held.popitem(last=False)
            self._store_later(oldest, None)

    def _store_later(self, kept: _Copy, other: _Copy | None) -> None:
        self._saves[kept.tag] = self._thread.submit(self._put, kept, other)
        while len(self._saves) > _RESULTS_KEPT:
            self._saves.popitem(last=False)

    def _put(self, kept: _Copy, other: _Copy | None) -> SaveResult:
        order = kept.order
        try:
            chunk = KVChunk(
                key=order.key,
                fingerprint=order.fingerprint,
                layout=self._model.kv_layout,
                base_position=order.start,
                predecessor=order.predecessor,
                data=self._model.bits(kept.data).transpose(0, 1, 3, 2, 4),
                scores=self._variance(kept, other).numpy() if other else None,
            )
            result = self._store.put(chunk)
        except Exception as error:
            logger.exception("chunk %s could not be stored", order.key)
            return SaveResult(order.key, error=f"{type(error).__name__}: {error}")
        return SaveResult(order.key, result.raw_bytes, result.stored_bytes)

    def _variance(self, first: _Copy, second: _Copy) -> torch.Tensor:
        """Return each token's relative change of K and V between two contexts, over all layers: float16 `[tokens]`."""
        shifts = torch.full((first.data.shape[2],), first.order.start - second.order.start)
        rotation = self._model.rotary.rotation(shifts)
        total = torch.zeros(first.data.shape[2])
        for kept, other in zip(first.data, second.data.clone(), strict=True):
            rotation.apply(other[0])
            for one, two in zip(kept.float(), other.float(), strict=True):
                total += (one - two).flatten(1).norm(dim=1) / one.flatten(1).norm(dim=1).clamp_min(1e-6)
        return total.to(torch.float16)
