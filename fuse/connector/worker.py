"""The worker's half of the connector: moves K/V between the store and the paged cache, and recomputes."""

import time
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

from vllm.logger import init_logger

from fuse.connector.evidence import LoadedEvidence
from fuse.connector.landing import Landing
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
_LOOK_S = 0.002
"""How often to see whether a load is about to end."""
_AHEAD_S = 0.02
"""The most that a request which arrives meanwhile may have to wait for a load that was not awaited."""
_KEPT = 1024
"""Reports that nobody has asked for, and choices, of the latest requests."""
_TELLING_TOKENS = 128
_TELLING_CHANGE = 0.25


@dataclass(frozen=True)
class _Fused:
    """What was `chosen`, what the load could not give, and all `runs` that were recomputed; seconds of both parts."""

    chosen: list[Run]
    missing: list[Run]
    runs: list[Run]
    select_s: float
    recompute_s: float


class FuseWorker:
    """Executes the scheduler's jobs. Everything but reading, decoding and encoding runs on the worker's own thread.

    Step order: `begin_step` (before the forward pass), the forward pass, `end_step`. Recomputes run in `begin_step`, so
    that the tail computed in the same step attends to finished K/V. A recompute awaits each layer of its load before it
    gets there; only where the device computes beside the loading threads does it begin before the load has ended, and
    only while no other request is running.
    """

    def __init__(self, model: PagedModel, store: TieredStore, threads: int) -> None:
        self._model = model
        self._store = store
        self._saver = Saver(model, store)
        self._pool = ThreadPoolExecutor(threads, "kvfuse-load", initializer=core_by_turn())
        self._loading: dict[str, Landing] = {}
        self._loaded: dict[str, Landing] = {}
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
        early = idle and self._model.staging.beside
        if idle:
            layers = [layer for landing in self._loading.values() for layer in landing.load.layers]
            wait(layers, _LOOK_S if early else _IDLE_WAIT_S)
        for request_id, landing in list(self._loading.items()):
            landing.advance()
            if landing.landed or (early and landing.seconds_left() < _AHEAD_S and request_id not in self._dropped):
                self._receive(request_id, landing)

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
        self._loading[job.request_id] = Landing(Load(job, self._model, self._store, self._pool), self._model)

    def _receive(self, request_id: str, landing: Landing) -> None:
        del self._loading[request_id]
        self._received.add(request_id)
        if request_id in self._dropped:
            self._dropped.discard(request_id)
        else:
            self._loaded[request_id] = landing

    def _drop(self, request_id: str) -> None:
        """Forget an aborted request. A load in flight still ends first: its blocks are freed when it has."""
        if (landing := self._loaded.pop(request_id, None)) is not None:
            landing.close()
        else:
            self._dropped.add(request_id)

    def _recompute(self, job: RecomputeJob) -> None:
        landing = self._loaded.pop(job.request_id)
        landed = landing.landed
        fused = self._fuse(landing, job)
        landing.load.agree()
        if landing.load.missing() != fused.missing:
            # A layer that came later was damaged, and what was recomputed before it has attended to that.
            fused = self._fuse(landing, job, fused.runs)
        if landed:
            self._tell_speed(count_positions(fused.runs), fused.recompute_s)
        self._file_report(landing, fused)

    def _fuse(self, landing: Landing, job: RecomputeJob, before: Sequence[Run] = ()) -> _Fused:
        """Choose and recompute, with the runs of an attempt `before`; the load has landed when this returns."""
        load = landing.load
        load.agree()
        missing = load.missing()
        evidence = LoadedEvidence(self._model, load, job.token_ids, job.block_ids)
        started = time.perf_counter()
        with landing.awaited():
            chosen = clip_runs(self._choose(load.job, evidence), load.job.start, load.job.plan.context_tokens)
            selected = time.perf_counter()
            chosen = merge_runs([*chosen, *before])
            runs = merge_runs([*chosen, *(run for run in missing if not evidence.computed or _behind(run, chosen))])
            self._model.recompute(runs, job.token_ids, job.block_ids)
            landing.finish()
        return _Fused(chosen, missing, runs, selected - started, time.perf_counter() - selected)

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

    def _file_report(self, landing: Landing, fused: _Fused) -> None:
        load, job = landing.load, landing.load.job
        computed = count_positions(fused.missing)
        recomputed = count_positions(merge_runs([*fused.missing, *fused.chosen])) - computed
        decode_s, rotate_s = load.thread_seconds()
        self._reports[job.tag] = FuseReport(
            reused=job.plan.context_tokens - job.start - computed - recomputed,
            recomputed=recomputed,
            computed=computed,
            cached=job.start,
            missed_chunks=load.missed_chunks(),
            declined_chunks=load.declined,
            load_s=landing.load_s,
            decode_s=decode_s,
            rotate_s=rotate_s,
            write_s=landing.write_s,
            select_s=fused.select_s,
            recompute_s=fused.recompute_s,
        )
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
