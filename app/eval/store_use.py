"""What a store did for one question, and what that comes to over many."""

from collections.abc import Mapping, Sequence
from typing import Any

_SUMS = ("raw_bytes", "stored_bytes", "decoded_bytes", "encode_seconds", "decode_seconds")


def store_use(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The difference between two `StoreStats` as mappings: sums, hits by tier, misses, and the byte coder's backend."""
    hits = {
        name: tier["hits"] - before["tiers"].get(name, {"hits": 0})["hits"] for name, tier in after["tiers"].items()
    }
    misses = {reason: count - before["misses"].get(reason, 0) for reason, count in after["misses"].items()}
    return {
        **{name: after[name] - before[name] for name in _SUMS},
        "hits": hits,
        "misses": {reason: count for reason, count in misses.items() if count},
        "backend": after["backend"],
        "backend_reason": after["backend_reason"],
    }


def add_up(uses: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Hits and misses of several `store_use`; MB/s of one thread each way, None where nothing was done."""
    sums = {name: sum(use[name] for use in uses) for name in _SUMS}
    return {
        "encode_mb_s": _rate(sums["raw_bytes"], sums["encode_seconds"]),
        "decode_mb_s": _rate(sums["decoded_bytes"], sums["decode_seconds"]),
        "hits": _total([use["hits"] for use in uses]),
        "misses": _total([use["misses"] for use in uses]),
        "backend": ", ".join(dict.fromkeys(use["backend"] for use in uses)),
        "backend_reason": ", ".join(dict.fromkeys(use["backend_reason"] for use in uses)),
    }


def _rate(size: int, seconds: float) -> float | None:
    return size / 1e6 / seconds if seconds else None


def _total(counts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    names = dict.fromkeys(name for one in counts for name in one)
    return {name: sum(one.get(name, 0) for one in counts) for name in names}
