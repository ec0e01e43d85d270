"""Command line of the benchmarks: `kvfuse bench NAME`."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from app.cli_options import with_settings
from app.config import Settings
from app.eval.bench.registry import BENCHES, Bench, Size
from app.eval.bench.result import RESULTS
from app.telemetry import configure_logging

bench_cli = typer.Typer(help="The project's benchmarks, each with its baseline.", no_args_is_help=True)


def _command(bench: Bench) -> Callable[..., None]:
    @with_settings
    def run(
        settings: Settings,
        size: Annotated[Size, typer.Option(help="short: what `make bench` runs; full: more of it.")] = Size.SHORT,
        out: Annotated[Path, typer.Option(metavar="DIR", help="Where the JSON goes.")] = RESULTS,
    ) -> None:
        configure_logging("warning")
        result = bench.run(settings, size)
        typer.echo(f"{result.table()}\nwritten to {result.save(out)}")

    return run


for _bench in BENCHES:
    bench_cli.command(_bench.name, help=_bench.summary)(_command(_bench))


@bench_cli.command()
def cascade() -> None:
    """Which passages the cascade passes on, and in what time, beside plain rank fusion."""
    _in_checkout("cascade")


def _in_checkout(name: str) -> None:
    """Run a benchmark that lives among the tests, on whose chunks and data it measures."""
    import subprocess
    import sys

    from app.eval.errors import EvalError

    file = Path(__file__).parents[3] / "tests" / "bench" / f"{name}_bench.py"
    if not file.is_file():
        raise EvalError(f"bench {name} needs a checkout of the source: there is no {file}")
    command = [sys.executable, "-m", "pytest", "-q", "-s", str(file)]
    if subprocess.run(command, cwd=file.parents[2]).returncode:
        raise typer.Exit(1)
