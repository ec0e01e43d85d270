"""The worker's half of the connector: moves K/V between the store and the paged cache, and recomputes."""

import time
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

import torch
from vllm.logger import init_logger

from fuse.connector.evidence import LoadedEvidence
from fuse.connector.loader import Load
from fuse.connector.metadata import FuseMetadata, FuseReport, LoadJob, RecomputeJob
from fuse.connector.model import PagedModel
from fuse.connector.saver import Saver, SaveResult
from fuse.connector.threads import core_by_turn
from fuse.policies import make_policy
from fuse.runs import Run, clip_runs, count_positions, merge_runs
from store.stats import StoreStats
from store.tiered import TieredStore

logger = init_logger(__name__)

_IDLE_WAIT_S = 0.1
_KEPT = 1024
"""Reports that nobody has asked for, and choices, of the latest requests."""
_TELLING_TOKENS = 128
_TELLING_CHANGE = 0.25


@dataclass
class _Loading:
    """A load in progress: `layer` is the next one to write."""

    load: Load
    slots: torch.Tensor
    skip: int
    layer: int = 0
    write_s: float = 0.0
    load_s: float = 0.0


class FuseWorker:
    """Executes the scheduler's jobs. Everything but reading, decoding and encoding runs on the worker's own thread.

    Step order: `begin_step` (before the forward pass), the forward pass, `end_step`. Recomputes run in `begin_step`, so
    that the tail computed in the same step attends to finished K/V.
    """

    def __init__(self, model: PagedModel, store: TieredStore, threads: int) -> None:
        self._model = model
        self._store = store
        self._saver = Saver(model, store)
        self._pool = ThreadPoolExecutor(threads, "kvfuse-load", initializer=core_by_turn())
        self._loading: dict[str, _Loading] = {}
        self._loaded: dict[str, _Loading] = {}
        self._dropped: set[str] = set()
        self._told_speed = 0.0
        self._received: set[str] = set()
        self._sent: set[str] = set()
        self._reports: OrderedDict[str, FuseReport] = OrderedDict()
        self._choices: OrderedDict[str, list[Run]] = OrderedDict()

    def begin_step(self, metadata: FuseMetadata) -> None:
        for request_id in metadata.dropped:
            self._drop(request_id)
        for recompute in metadata.recomputes:
            self._recompute(recompute)
        for save in metadata.saves:
            self._saver.save(save)
            self._sent.add(save.request_id)
        for load in metadata.loads:
            self._start(load)

    def end_step(self, idle: bool) -> None:
        """Write the layers that are ready; when `idle`, first wait a moment for them, as nothing else is to be done.

        For all of them: a write in between would take the cores from the threads that are loading.
        """
        if idle:
            wait([layer for loading in self._loading.values() for layer in loading.load.layers], _IDLE_WAIT_S)
        for request_id, loading in list(self._loading.items()):
            self._advance(loading)
            if loading.layer == len(self._model.layers):
                self._finish(request_id, loading)

    def take_finished(self) -> tuple[set[str], set[str]]:
        """Return the requests whose (saves, loads) ended since the last call."""
        finished = self._sent, self._received
        self._sent, self._received = set(), set()
        return finished

    def take_report(self, tag: str) -> FuseReport | None:
        """Return and forget the report of the request tagged `tag`; only the latest ones are kept."""
        return self._reports.pop(tag, None)

    def take_save(self, tag: str) -> SaveResult | None:
        """Return and forget the result of the save tagged `tag`, once it has ended; only the latest ones are kept."""
        return self._saver.take(tag)

    def store_stats(self) -> StoreStats:
        return self._store.stats()

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._saver.close()
        self._store.close()

    def _start(self, job: LoadJob) -> None:
        load = Load(job, self._model, self._store, self._pool)
        skip = int((load.positions < job.start).sum())
        slots = self._model.slots(job.block_ids, load.positions[skip:])
        self._loading[job.request_id] = _Loading(load, slots, skip)

    def _advance(self, loading: _Loading) -> None:
        layers = list(self._model.layers.values())
        for index in range(loading.layer, len(layers)):
            future = loading.load.layers[index]
            if not future.done():
                return
            if (kv := future.result()) is not None and len(loading.slots):
                started = time.perf_counter()
                self._model.write(layers[index], kv[0][loading.skip :], kv[1][loading.skip :], loading.slots)
                loading.write_s += time.perf_counter() - started
            loading.layer = index + 1

    def _finish(self, request_id: str, loading: _Loading) -> None:
        loading.load.close()
        loading.load_s = time.perf_counter() - loading.load.started
        del self._loading[request_id]
        self._received.add(request_id)
        if request_id in self._dropped:
            self._dropped.discard(request_id)
        else:
            self._loaded[request_id] = loading

    def _drop(self, request_id: str) -> None:
        """Forget an aborted request. A load in flight still ends first: its blocks are freed when it has."""
        if self._loaded.pop(request_id, None) is None:
            self._dropped.add(request_id)

    def _recompute(self, job: RecomputeJob) -> None:
        loading = self._loaded.pop(job.request_id)
        load, plan = loading.load, loading.load.job.plan
        load.agree()
        missing = load.missing()
        evidence = LoadedEvidence(self._model, load, job.token_ids, job.block_ids)
        started = time.perf_counter()
        chosen = clip_runs(self._choose(load.job, evidence), load.job.start, plan.context_tokens)
        selected = time.perf_counter()
        runs = merge_runs([*chosen, *(run for run in missing if not evidence.computed or _behind(run, chosen))])
        self._model.recompute(runs, job.token_ids, job.block_ids)
        ended = time.perf_counter()
        computed = count_positions(missing)
        decode_s, rotate_s = load.thread_seconds()
        self._tell_speed(count_positions(runs), ended - selected)
        recomputed = count_positions(merge_runs([*missing, *chosen])) - computed
        self._file_report(
            load.job.tag,
            FuseReport(
                reused=plan.context_tokens - load.job.start - computed - recomputed,
                recomputed=recomputed,
                computed=computed,
                cached=load.job.start,
                missed_chunks=load.missed_chunks(),
                declined_chunks=load.declined,
                load_s=loading.load_s,
                decode_s=decode_s,
                rotate_s=rotate_s,
                write_s=loading.write_s,
                select_s=selected - started,
                recompute_s=ended - selected,
            ),
        )

    def _choose(self, job: LoadJob, evidence: LoadedEvidence) -> list[Run]:
        """Choose once for a fused context, so that the part of it that is not cached is what it was.

        The K/V of the cached part are recomputed ones: judged by them, another choice would be made.
        """
        known = self._choices.pop(job.salt, None) if job.start else None
        chosen = self._model.ranks.first(_select(evidence)) if known is None else known
        self._choices[job.salt] = chosen
        _forget_oldest(self._choices)
        return chosen

    def _tell_speed(self, tokens: int, seconds: float) -> None:
        """Let the store know how fast the model computes, which it weighs loading against, when that has changed."""
        if tokens < _TELLING_TOKENS:
            return
        speed = tokens / seconds
        if abs(speed - self._told_speed) > _TELLING_CHANGE * self._told_speed:
            self._told_speed = speed
            self._store.tell_prefill_speed(speed)

    def _file_report(self, tag: str, report: FuseReport) -> None:
        self._reports[tag] = report
        _forget_oldest(self._reports)


def _behind(run: Run, chosen: Sequence[Run]) -> bool:
    """Whether `run`, computed already, has seen K/V that recomputing `chosen` will change."""
    return bool(chosen) and chosen[0][0] < run[0]


def _forget_oldest(kept: OrderedDict[str, Any]) -> None:
    while len(kept) > _KEPT:
        kept.popitem(last=False)


def _select(evidence: LoadedEvidence) -> list[Run]:
    """Let the plan's policy choose; one that fails costs a full recompute, never an answer."""
    plan = evidence.plan
    try:
        return make_policy(plan.policy).select(evidence)
    except Exception:
        logger.exception("recompute policy %s failed: everything is recomputed", plan.policy.name)
        return [(0, plan.context_tokens)]
