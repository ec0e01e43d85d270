"""The headline figures of a summary under flat names."""

from collections.abc import Mapping
from typing import Any

EVERYTHING = "all"
"""The name under which a summary of several data sets keeps the figures over all of them."""

_SPREADS = ("kl", "ttft_s", "speedup", "inter_token_s")
_PARTS = ("mean", "p50", "p95", "p99")
NAMES = frozenset(
    {"em", "f1", "rouge_l", "contains", "f1_vs_full", "agreement", "kl_worst_question", "flops_share"}
    | {"reused", "recomputed", "computed"}
    | {f"{name.removesuffix('_s')}_{part}" for name in _SPREADS for part in _PARTS}
)
"""Every name that `figures` may give."""


def overall(summary: Mapping[str, Any]) -> dict[str, Any]:
    """The arms over all data sets."""
    datasets = summary["datasets"]
    arms: dict[str, Any] = datasets[EVERYTHING] if EVERYTHING in datasets else next(iter(datasets.values()), {})
    return arms


def figures(arm: Mapping[str, Any]) -> dict[str, float]:
    """One arm's headline figures under flat names: those of tables, of `compare` and of `--fail-if`."""
    flat = {name: interval["mean"] for name, interval in arm["quality"].items() if name != "kl"}
    for name in _SPREADS:
        if arm[name] is not None:
            flat |= {f"{name.removesuffix('_s')}_{part}": arm[name][part] for part in _PARTS}
    if arm["kl_worst_question"] is not None:
        flat["kl_worst_question"] = arm["kl_worst_question"]
    flat |= {name: arm["tokens"][name] for name in ("reused", "recomputed", "computed")}
    return flat | {"flops_share": arm["flops_share"]}
