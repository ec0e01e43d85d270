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
