"""Arms: the ways of computing one prompt that a run compares, by name and budget."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from app.eval.errors import EvalError
from app.eval.prompt import Prompt
from fuse.plan import PolicySpec
from fuse.policies import POLICIES


class Reuse(Enum):
    """Where an arm's K/V may come from."""

    NOTHING = "nothing"
    PREFIX = "prefix"  # the engine's prefix cache, warm for the same passages in the same order
    REORDERED = "reordered"  # the engine's prefix cache, warm for the same passages in reversed order
    CHUNKS = "chunks"
    ALONE = "alone"  # chunks of passages computed by themselves
    MISPLACED = "misplaced"  # chunks that claim to have been computed where they are used: never re-rotated
    OUTSIDE = "outside"  # whatever a server outside has cached


FULL = "full"
"""The reference: an ordinary prefill, nothing cached."""
_ORDINARY = {
    FULL: Reuse.NOTHING,
    "prefix-cache": Reuse.PREFIX,
    "prefix-reordered": Reuse.REORDERED,
    "outside": Reuse.OUTSIDE,
}
_RECOMPUTE_ALL = "full-recompute"
"""The fusion path's own policy `full`, which must equal an ordinary prefill: a self-check, not a way to serve."""
CONTROL = "unrotated"
"""Reuse without re-rotation, for the gate: an engine that does not differ from it does not re-rotate."""
_ALONE = {"naive": "none", "cacheblend": "deviation"}
"""Policies over passages computed by themselves: plain reuse and CacheBlend as their own codes do it."""
MEANINGS = {
    FULL: "An ordinary prefill of the whole prompt, nothing cached: what all others are compared with.",
    "prefix-cache": "An ordinary prefill after the same passages were asked about in the same order: the engine's own "
    "prefix cache at its best.",
    "prefix-reordered": "The same after the passages were asked about in reversed order: of no use to prefix caching.",
    "outside": "The server at --engine-url, asked the same tokens; it reuses whatever it has cached.",
    "naive": "Plain reuse: every passage computed by itself, nothing recomputed.",
    "cacheblend": "CacheBlend: passages computed by themselves; recomputes the tokens whose values in the second layer "
    "differ most from a full prefill's.",
    "none": "Passages from the store, computed behind other text, moved to their places; nothing recomputed.",
    "boundary": "As none; recomputes the first tokens of every passage.",
    "deviation": "As none; recomputes what CacheBlend's rule chooses.",
    "variance": "As none; recomputes the tokens that depended most on what stood before them, as measured at ingest.",
    "query": "As none; recomputes the tokens that the question attends to.",
    "hybrid": "As none; recomputes the tokens that the question attends to and that depend on what stands before them.",
    _RECOMPUTE_ALL: "The fusion path recomputing everything: a self-check, which must equal full.",
    CONTROL: "As none, with keys left turned to where they were computed: a control, which must be worse.",
}
"""What each mode does, for readers of a report."""
_SHARES = ("budget", "share")
_TOKENS = "tokens"


@dataclass(frozen=True)
class Arm:
    """One way; `budget` is the share of passage tokens that may be recomputed, None where that has no meaning."""

    mode: str
    budget: float | None = None

    @property
    def name(self) -> str:
        return self.mode if self.budget is None else f"{self.mode}@{self.budget:g}"

    @property
    def reuse(self) -> Reuse:
        if self.mode in _ALONE:
            return Reuse.ALONE
        return Reuse.MISPLACED if self.mode == CONTROL else _ORDINARY.get(self.mode, Reuse.CHUNKS)

    def policy(self, prompt: Prompt) -> PolicySpec | None:
        """The recompute policy for this prompt; None for an ordinary prefill.

        A policy that counts tokens at the start of each passage gets the budget's share of the mean passage.
        """
        if self.mode in _ORDINARY:
            return None
        name = _policy_name(self.mode)
        if self.budget is None:
            return PolicySpec(name)
        option = _budget_option(name)
        if option == _TOKENS:
            tokens = prompt.context_tokens - len(prompt.head)
            return PolicySpec(name, {_TOKENS: round(self.budget * tokens / max(1, len(prompt.passages)))})
        return PolicySpec(name, {str(option): self.budget})


def mode_names() -> list[str]:
    """Every mode there is."""
    return [*_ORDINARY, *_ALONE, *(name for name in POLICIES if name not in _ORDINARY), _RECOMPUTE_ALL, CONTROL]


def make_arms(modes: Sequence[str], budgets: Sequence[float]) -> list[Arm]:
    """Return every mode once, or once a budget where it takes one; `full`, the reference of all, comes first.

    Raises:
        EvalError: an unknown mode, named with those there are, a budget outside 0..1, or none where one is needed.
    """
    if unknown := [mode for mode in modes if mode not in mode_names()]:
        raise EvalError(f"unknown mode {', '.join(unknown)}: there are {', '.join(mode_names())}")
    if wrong := [budget for budget in budgets if not 0 < budget <= 1]:
        raise EvalError(f"budget {wrong[0]:g} is outside 0 to 1")
    if not budgets and (bounded := [mode for mode in modes if _takes_budget(mode)]):
        raise EvalError(f"mode {bounded[0]} needs a budget")
    arms = [arm for mode in dict.fromkeys([FULL, *modes]) for arm in _arms_of(mode, budgets)]
    return list(dict.fromkeys(arms))


def _arms_of(mode: str, budgets: Sequence[float]) -> list[Arm]:
    return [Arm(mode, budget) for budget in budgets] if _takes_budget(mode) else [Arm(mode)]


def _takes_budget(mode: str) -> bool:
    return mode not in _ORDINARY and _budget_option(_policy_name(mode)) is not None


def _policy_name(mode: str) -> str:
    return ({_RECOMPUTE_ALL: "full", CONTROL: "none"} | _ALONE).get(mode, mode)


def _budget_option(policy: str) -> str | None:
    """The option of a policy that bounds what it recomputes."""
    options = inspect.signature(POLICIES[policy]).parameters
    return next((name for name in (*_SHARES, _TOKENS) if name in options), None)
