"""Prometheus metrics of the store: one collector over the latest snapshot of every process that has one."""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from prometheus_client import REGISTRY
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from store.stats import StoreStats

logger = logging.getLogger(__name__)

PATIENCE_S = 2.0
_EVENTS = ("promotions", "demotions", "discards", "refusals", "index_errors", "transfer_errors")


class StoreCollector(Collector):
    """Counters of each process are summed; what all processes share is taken from the service's own store."""

    def __init__(self) -> None:
        self._snapshots: dict[str, Mapping[str, Any]] = {}

    def update(self, process: str, stats: StoreStats | Mapping[str, Any]) -> None:
        """Take in the latest snapshot of a process, as `StoreStats` or as its fields; an empty one changes nothing."""
        fields = asdict(stats) if isinstance(stats, StoreStats) else stats
        if fields:
            self._snapshots[process] = fields

    def collect(self) -> Iterable[Metric]:
        """All families, none before the first snapshot."""
        snapshots = list(self._snapshots.values())
        if not snapshots:
            return
        yield from _tiers(snapshots[0]["tiers"])
        yield from _break_even(snapshots[0]["break_even"])
        yield from _lookups(snapshots)
        yield from _codec(snapshots)
        yield from _events(snapshots)


def _tiers(tiers: Mapping[str, Mapping[str, Any]]) -> Iterator[Metric]:
    used = GaugeMetricFamily("kvfuse_store_used_bytes", "Bytes of chunk files in a tier.", labels=["tier"])
    capacity = GaugeMetricFamily("kvfuse_store_capacity_bytes", "Bytes a tier may hold.", labels=["tier"])
    chunks = GaugeMetricFamily("kvfuse_store_chunks", "Chunks in a tier.", labels=["tier"])
    for name, tier in tiers.items():
        used.add_metric([name], tier["bytes"])
        capacity.add_metric([name], tier["capacity_bytes"])
        chunks.add_metric([name], tier["chunks"])
    yield from (used, capacity, chunks)


def _break_even(tiers: Mapping[str, Mapping[str, Any]]) -> Iterator[Metric]:
    load = GaugeMetricFamily("kvfuse_store_load_tokens_per_second", "One thread loading from a tier.", labels=["tier"])
    prefill = GaugeMetricFamily("kvfuse_store_prefill_tokens_per_second", "The engine computing a prompt.")
    worth = GaugeMetricFamily("kvfuse_store_worth_loading", "1 where loading beats computing.", labels=["tier"])
    decided = CounterMetricFamily("kvfuse_store_decisions", "Chunks decided about.", labels=["tier", "decision"])
    for name, tier in tiers.items():
        if tier["load_tokens_per_s"] is not None:
            load.add_metric([name], tier["load_tokens_per_s"])
        worth.add_metric([name], float(tier["worth_loading"]))
        decided.add_metric([name, "load"], tier["loaded"])
        decided.add_metric([name, "compute"], tier["computed"])
    prefill.add_metric([], max(tier["prefill_tokens_per_s"] for tier in tiers.values()))
    yield from (load, prefill, worth, decided)


def _lookups(snapshots: list[Mapping[str, Any]]) -> Iterator[Metric]:
    lookups = CounterMetricFamily("kvfuse_store_lookups", "Chunks asked for.", labels=["tier", "result"])
    misses = CounterMetricFamily("kvfuse_store_misses", "Chunks not served.", labels=["reason"])
    for name in snapshots[0]["tiers"]:
        hits = sum(snapshot["tiers"].get(name, {}).get("hits", 0) for snapshot in snapshots)
        lookups.add_metric([name, "hit"], hits)
    by_reason = _summed(snapshot["misses"] for snapshot in snapshots)
    lookups.add_metric(["none", "miss"], sum(by_reason.values()))
    for reason, count in by_reason.items():
        misses.add_metric([reason], count)
    yield from (lookups, misses)


def _codec(snapshots: list[Mapping[str, Any]]) -> Iterator[Metric]:
    seconds = CounterMetricFamily("kvfuse_store_codec_seconds", "Thread time in the codec.", labels=["op"])
    moved = CounterMetricFamily("kvfuse_store_codec_bytes", "Bytes through the codec.", labels=["op"])
    for op in ("encode", "decode"):
        seconds.add_metric([op], sum(snapshot[f"{op}_seconds"] for snapshot in snapshots))
    for op, field in (("encode_raw", "raw_bytes"), ("encode_stored", "stored_bytes"), ("decode_raw", "decoded_bytes")):
        moved.add_metric([op], sum(snapshot[field] for snapshot in snapshots))
    raw, stored = (sum(snapshot[field] for snapshot in snapshots) for field in ("raw_bytes", "stored_bytes"))
    ratio = GaugeMetricFamily("kvfuse_store_codec_ratio", "Raw bytes for one stored byte, of what was written.")
    ratio.add_metric([], raw / stored if stored else 0.0)
    backend = GaugeMetricFamily("kvfuse_store_backend", "Who deflates, and why.", labels=["backend", "reason"])
    for chosen in dict.fromkeys((snapshot["backend"], snapshot["backend_reason"]) for snapshot in snapshots):
        backend.add_metric(chosen, 1)
    yield from (seconds, moved, ratio, backend)


def _events(snapshots: list[Mapping[str, Any]]) -> Iterator[Metric]:
    counters = _summed(snapshot["counters"] for snapshot in snapshots)
    moved = CounterMetricFamily("kvfuse_store_bytes", "Bytes of chunk files opened and written.", labels=["tier", "op"])
    for tier in snapshots[0]["tiers"]:
        for op in ("read", "written"):
            moved.add_metric([tier, op], counters.pop(f"{tier}_{op}_bytes", 0))
    evictions = CounterMetricFamily("kvfuse_store_evictions", "Chunks that no tier kept, or that were evicted.")
    evictions.add_metric([], counters.pop("evictions", 0))
    events = CounterMetricFamily("kvfuse_store_events", "What else happened.", labels=["event"])
    for event in dict.fromkeys((*_EVENTS, *counters)):
        events.add_metric([event], counters.get(event, 0))
    yield from (moved, evictions, events)


def _summed(mappings: Iterable[Mapping[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for mapping in mappings:
        for name, value in mapping.items():
            total[name] = total.get(name, 0) + value
    return total


COLLECTOR = StoreCollector()
REGISTRY.register(COLLECTOR)


async def refresh(service: Any) -> None:
    """Take new snapshots of the service's store and of the engine's; what does not answer keeps its last one."""
    try:
        COLLECTOR.update("service", await asyncio.to_thread(service.store.stats))
        for engine, stats in (await asyncio.wait_for(service.engine.store_stats(), PATIENCE_S)).items():
            COLLECTOR.update(engine, stats)
    except Exception as error:  # before the start, after the stop, or an engine that hangs: metrics never fail for it
        logger.debug("no new store metrics: %s", error)
