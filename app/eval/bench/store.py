"""What the store adds to the codec: reading from each tier, putting, computing again; and what it survives."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from tempfile import gettempdir

from app.config import Settings
from app.eval.bench.chunks import CHUNK_TOKENS, FINGERPRINT, real_chunk, real_kv
from app.eval.bench.churn import churned
from app.eval.bench.codec import Target, encode, opened
from app.eval.bench.registry import Size
from app.eval.bench.result import Bar, BenchResult, Figure, Row
from app.eval.bench.timing import in_turns, repeated
from app.eval.errors import EvalError
from app.eval.scratch import Scratch
from app.models import prepare_models
from store import ChunkKey, KVChunk, LookupResult, StoreConfig, TieredStore, chunk_key
from store.deflate import Backend
from store.warm import warm_up

PROCESSES = 8
_TRIES = 5
_DECODING, _MEMORY = "decoding alone (CPU)", "memory tier (CPU)"
_PREFILL = "computing the tokens again, by torch"
_AGAIN = "put again"
_BASELINES = {_DECODING, _PREFILL}


@dataclass(frozen=True)
class StoreCase:
    """How often a process is killed at work, and for how many seconds eight of them work on one store."""

    kills: int
    seconds: int


CASES = {Size.SHORT: StoreCase(25, 3), Size.FULL: StoreCase(1000, 60)}


def run(settings: Settings, size: Size) -> BenchResult:
    """Measure on a chunk of a real model, then kill and hammer."""
    model = prepare_models(settings.home).llm
    return measure_store(real_chunk(real_kv(model)), CASES[size], {_PREFILL: _prefill(model)})


def measure_store(chunk: KVChunk, case: StoreCase, others: Mapping[str, list[float]]) -> BenchResult:
    """Measure beside the times of `others`. Raises EvalError where the store breaks a promise."""
    times = {**_times(chunk), **others}
    outcomes = _survive(case)
    return BenchResult(
        "store",
        f"The store: one chunk of {chunk.tokens} tokens, {chunk.raw_bytes / 1e6:.1f} MB of K and V",
        tuple(_row(name, chunk, taken) for name, taken in times.items()),
        (
            Bar("memory tier over decoding alone", median(times[_MEMORY]) / median(times[_DECODING]), 1.3, False),
            Bar(
                "a stored chunk is smaller by, %", 100 * (1 - encode(chunk).stored_bytes / chunk.raw_bytes), 33.5, True
            ),
            Bar("kills survived", outcomes["kills"]["kills"], case.kills, True),
            Bar(f"pins left by {PROCESSES} processes", outcomes["processes"]["pins"], 0, False),
        ),
        {"case": vars(case), **outcomes},
        _notes(case, outcomes),
    )


def _times(chunk: KVChunk) -> dict[str, list[float]]:
    """Seconds by what was done; elapsed, but for the two that are compared."""
    warm_up()
    target, encoded = Target(chunk), encode(chunk)
    with _store() as store:
        key = _only_in(store, chunk, LookupResult.MEMORY)
        decoding, memory = in_turns(lambda: target.fill(opened(encoded)), lambda: _read(store, key, target))
        return {
            _DECODING: decoding,
            _MEMORY: memory,
            "disk tier, first read": _first_reads(store, chunk, LookupResult.DISK),
            "remote tier (a folder), first read": _first_reads(store, chunk, LookupResult.REMOTE),
            "put": [_put(store, _copy(chunk, f"put {number}")) for number in range(_TRIES)],
            _AGAIN: repeated(lambda: store.put(_copy(chunk, "put 0")), time.perf_counter),
        }


@contextmanager
def _store() -> Iterator[TieredStore]:
    """Open a store on tmpfs and disk whose remote tier is a folder."""
    with Scratch() as memory, Scratch(Path(gettempdir())) as folder:
        config = StoreConfig(memory / "memory", folder / "disk", 1 << 30, 1 << 32, backend=Backend.SOFTWARE, threads=1)
        with TieredStore(replace(config, remote_url=(folder / "remote").as_uri())) as store:
            yield store


def _copy(chunk: KVChunk, name: str) -> KVChunk:
    return replace(chunk, key=chunk_key(FINGERPRINT, name, [0]))


def _only_in(store: TieredStore, chunk: KVChunk, tier: LookupResult) -> ChunkKey:
    """Put a copy of the chunk under a key of its own and let it sink to `tier`."""
    key = _copy(chunk, tier.value).key
    store.put(_copy(chunk, tier.value))
    store.settle()
    store.control.demote([key], tier.value)
    return key


def _read(store: TieredStore, key: ChunkKey, target: Target) -> None:
    reader = store.open(key, FINGERPRINT)
    if reader is None:
        raise EvalError(f"the store lost chunk {key}")
    with reader:
        target.fill(reader)


def _put(store: TieredStore, chunk: KVChunk) -> float:
    return _seconds(lambda: store.put(chunk))


def _first_reads(store: TieredStore, chunk: KVChunk, tier: LookupResult) -> list[float]:
    """Seconds of reading a chunk that only `tier` has."""
    target, times = Target(chunk), []
    for _ in range(_TRIES):
        key = _only_in(store, chunk, tier)
        times.append(_seconds(lambda: _read(store, key, target)))  # noqa: B023
        store.settle()
        store.delete(key)
    return times


def _prefill(model_dir: Path) -> list[float]:
    """Seconds of computing as many tokens by the model in torch, on all cores."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.bfloat16)
    ids = torch.arange(1000, 1000 + CHUNK_TOKENS)[None]
    with torch.inference_mode():
        return repeated(lambda: model(ids, use_cache=True, logits_to_keep=1), time.perf_counter)


def _seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def _survive(case: StoreCase) -> dict[str, dict[str, int]]:
    with Scratch(Path(gettempdir())) as kills, Scratch(Path(gettempdir())) as hammered:
        return {
            "kills": churned("kill", kills, 99, case.kills),
            "processes": churned("hammer", hammered, 11, PROCESSES, case.seconds),
        }


def _row(name: str, chunk: KVChunk, times: list[float]) -> Row:
    figures = {"time": Figure.of([1e3 * taken for taken in times], "ms")}
    if name not in (_AGAIN, _PREFILL):
        figures["K and V"] = Figure.of([chunk.raw_bytes / 1e6 / taken for taken in times], "MB/s")
    return Row(name, figures, baseline=name in _BASELINES)


def _notes(case: StoreCase, outcomes: Mapping[str, Mapping[str, int]]) -> tuple[str, ...]:
    kills, work = outcomes["kills"], outcomes["processes"]
    return (
        f"Killed {kills['kills']} times at random moments ({kills['puts']} puts, {kills['recovered']} half-written "
        "files removed): nothing wrong, nothing lost that was promised, nothing left over. "
        f"{PROCESSES} processes on one store for {case.seconds} s: {work['hits']} reads compared, {work['puts']} puts, "
        f"{work['moves']} moves, {work['deletes']} deletions, every byte right and the index in agreement.",
    )
