"""Benchmarks by name; each is a module beside this one with `run(settings, size) -> BenchResult`."""

from dataclasses import dataclass
from enum import Enum
from importlib import import_module

from app.config import Settings
from app.eval.bench.result import BenchResult
from app.eval.errors import EvalError


class Size(Enum):
    """How much is measured."""

    SHORT = "short"  # what `make bench` runs: minutes for all of them
    FULL = "full"  # what one publishes from a quiet machine


@dataclass(frozen=True)
class Bench:
    """One benchmark; its module is imported when it runs."""

    name: str
    summary: str

    def run(self, settings: Settings, size: Size = Size.SHORT) -> BenchResult:
        """Measure. Raises EvalError when something that it measures on is not there."""
        module = import_module(f"app.eval.bench.{self.name}")
        result: BenchResult = module.run(settings, size)
        return result


BENCHES = (
    Bench("ttft", "Time to first token of fused requests against an ordinary prefill."),
    Bench("quality", "Distance of every recompute policy's answers from an ordinary prefill's."),
    Bench("load", "Throughput of many clients, and what arriving requests do to running answers."),
    Bench("codec", "Savings and speed of the codec chains against plain coders and the published rival's layout."),
    Bench("cascade", "Which passages the cascade passes on, and in what time, beside plain rank fusion."),
    Bench("store", "Reading from every tier beside decoding alone, and a store under kills and eight processes."),
)


def find_bench(name: str) -> Bench:
    """Raises EvalError, which names those there are, when there is none of that name."""
    for bench in BENCHES:
        if bench.name == name:
            return bench
    raise EvalError(f"unknown benchmark {name!r}: there are {', '.join(bench.name for bench in BENCHES)}")
