"""Conditions on a summary's figures, as in `--fail-if "hybrid.f1_vs_full<0.9"`, and the gate that every run passes."""

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.eval.arms import CONTROL, Arm
from app.eval.bootstrap import paired_difference
from app.eval.errors import EvalError
from app.eval.figures import NAMES, figures, overall

FUSED = "fused"
"""Stands for every arm that recomputes some of what it reuses: those that may serve answers."""

DEFAULT_GATE = ("fused.agreement<0.5", "fused.kl_p50>0.7")
"""Broken fusion falls below these limits; what a 135M model loses to 5 % recomputed boundaries stays above (median
KL 0.18, agreement 0.67)."""

REUSED = "none"
_SAME_KL = 1e-3
"""Rounding stays below; re-rotation moves a question's mean KL by tenths."""

_ENOUGH = 10
"""Questions below which an interval of a difference means nothing."""

_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_CONDITION = re.compile(r"\s*(?P<arm>\S+)\.(?P<figure>\w+)\s*(?P<sign>[<>]=?)\s*(?P<limit>[-+.\deE]+)\s*")


@dataclass(frozen=True)
class Condition:
    """Fails where `figure` of an arm stands in relation `sign` to `limit`.

    arm: an arm (`boundary@0.15`), a mode (every budget of it) or `fused`.
    """

    arm: str
    figure: str
    sign: str
    limit: float

    @classmethod
    def parse(cls, text: str) -> "Condition":
        """Read `ARM.FIGURE<NUMBER`. Raises EvalError when it is not of that form."""
        found = _CONDITION.fullmatch(text)
        try:
            return cls(found["arm"], found["figure"], found["sign"], float(found["limit"]))  # type: ignore[index]
        except (TypeError, ValueError):
            raise EvalError(f"condition {text!r} is not of the form ARM.FIGURE<NUMBER (or <=, >, >=)") from None

    def check_names(self, arms: Sequence[Arm]) -> None:
        """Refuse, before a long run, what its summary will not have. Raises EvalError."""
        if self.arm not in {FUSED, *(name for arm in arms for name in (arm.name, arm.mode))}:
            raise EvalError(f"no arm {self.arm!r}: there are {', '.join(arm.name for arm in arms)}")
        if self.figure not in NAMES:
            raise EvalError(f"no figure {self.figure!r}: there are {', '.join(sorted(NAMES))}")

    def failures(self, arms: Mapping[str, Any]) -> Iterator[str]:
        """Yield what is true of the arms and must not be.

        Raises:
            EvalError: there is no such arm or figure; the message lists those there are.
        """
        named = {name: arm for name, arm in arms.items() if self._names(name, arm)}
        if not named:
            raise EvalError(f"no arm {self.arm!r}: there are {', '.join(arms)}")
        for name, arm in named.items():
            values = figures(arm)
            if self.figure not in values:
                raise EvalError(f"arm {name} has no figure {self.figure!r}: there are {', '.join(values)}")
            if _OPERATORS[self.sign](values[self.figure], self.limit):
                yield f"{name}: {self.figure} is {values[self.figure]:.4g} ({self.sign} {self.limit:g})"

    def _names(self, name: str, arm: Mapping[str, Any]) -> bool:
        if self.arm == FUSED:
            return serves(arm)
        return self.arm in (name, str(arm["mode"]))


def serves(arm: Mapping[str, Any]) -> bool:
    """Whether an arm recomputes some of what it reuses."""
    return bool(arm["tokens"]["recomputed"] > 0)


def check(conditions: Sequence[str], summary: Mapping[str, Any]) -> list[str]:
    """Return what the conditions find in a summary; empty: nothing fails."""
    parsed = [Condition.parse(text) for text in conditions]
    return [failure for condition in parsed for failure in condition.failures(overall(summary))]


def judge(summary: Mapping[str, Any], kl: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Hold the default gate over every arm that may serve and was compared with full prefill.

    kl: mean divergence of each arm at each question, in the same order of questions for all.
    """
    arms = {name: arm for name, arm in overall(summary).items() if serves(arm) and arm["kl"]}
    conditions = [Condition.parse(text) for text in DEFAULT_GATE]
    failures = [failure for condition in conditions for failure in condition.failures(arms)] if arms else []
    if reused := kl.get(REUSED, ()):
        failures += _rotation(reused, kl.get(CONTROL, ()))
    return {"conditions": list(DEFAULT_GATE), "judged": list(arms), "failures": failures}


def _rotation(reused: Sequence[float], control: Sequence[float]) -> Iterator[str]:
    """Yield what is wrong with re-rotation: it changes nothing, or it makes things worse."""
    if not control:
        return
    if all(abs(ours - theirs) < _SAME_KL for ours, theirs in zip(reused, control, strict=True)):
        yield f"{REUSED}: as far from full prefill as {CONTROL} at every question: keys are not re-rotated"
    elif len(reused) >= _ENOUGH and paired_difference(control, reused).high < 0:
        yield f"{REUSED}: further from full prefill than {CONTROL}: keys are re-rotated wrongly"
