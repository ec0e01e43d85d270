"""Command line ``kvfuse``: serve, precompute, ask, doctor."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from app import __version__, cache_cli
from app.cli_options import with_settings
from app.config import Settings
from app.errors import AppError, ConfigError
from app.eval.bench.cli import bench_cli
from app.eval.cli import eval_cli
from app.telemetry import configure_logging

EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130

cli = typer.Typer(
    help="Answers questions about documents; the model reads each document once.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
cli.add_typer(cache_cli.cli, name="cache")
cli.add_typer(eval_cli, name="eval")
cli.add_typer(bench_cli, name="bench")


@cli.command()
@with_settings
def serve(settings: Settings) -> None:
    """Run the REST service."""
    from app.serve import run_server

    configure_logging(settings.log_level)
    if not run_server(settings):
        raise typer.Exit(EXIT_FAILURE)


@cli.command()
@with_settings
def engine(
    settings: Settings,
    options: Annotated[list[str] | None, typer.Argument(metavar="-- VLLM_OPTION", help="Passed to vLLM.")] = None,
) -> None:
    """Run an engine as a vLLM server, for services that name it in --engine-urls and share its folders."""
    from app.engines import serve_engine

    serve_engine(settings, options or [])


@cli.command()
@with_settings
def precompute(
    settings: Settings,
    paths: Annotated[list[Path], typer.Argument(exists=True, metavar="PATH", help="Files or folders of documents.")],
    glob: Annotated[str, typer.Option(metavar="PATTERN", help="Names to take in folders.")] = "*",
    recursive: Annotated[bool, typer.Option(help="Folders inside folders too.")] = True,
    resume: Annotated[bool, typer.Option(help="Do not read again files whose size and time have not changed.")] = True,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Try known failures again.")] = False,
    workers: Annotated[int | None, typer.Option(min=1, help="Documents at once; short for --ingest-workers.")] = None,
    single_pass: Annotated[bool, typer.Option("--single-pass", help="Short for --ingest-passes 1.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    report: Annotated[Path | None, typer.Option(metavar="FILE", help="Write summary and failures as JSON.")] = None,
) -> None:
    """Add documents and compute their K/V ahead of time; a broken run continues where it stopped."""
    from app import jobs
    from app.batch import BatchOptions

    configure_logging(settings.log_level)
    short = ({"ingest_workers": workers} if workers else {}) | ({"ingest_passes": 1} if single_pass else {})
    settings = settings.model_copy(update=short)
    options = BatchOptions(glob, recursive, resume, retry_failed)
    jobs.precompute(settings, paths, options, dry_run, report)


@cli.command()
@with_settings
def ask(
    settings: Settings,
    question: Annotated[str, typer.Argument(metavar="QUESTION")],
    url: Annotated[str | None, typer.Option(metavar="URL", help="Ask this running service instead.")] = None,
) -> None:
    """Answer one question from the documents."""
    from app import jobs

    configure_logging(settings.log_level)
    jobs.ask(settings, question, url=url)


@cli.command()
@with_settings
def doctor(settings: Settings) -> None:
    """Check the engine, the models, the store and fusion itself, and report as JSON."""
    from app import jobs

    configure_logging(settings.log_level)
    report = jobs.doctor(settings)
    typer.echo(json.dumps(report, indent=2, default=str))
    if not report.get("ok", True):
        raise typer.Exit(EXIT_FAILURE)


@cli.command()
def version() -> None:
    """Show the version."""
    typer.echo(__version__)


def main() -> None:
    """Entry point: what a user did wrong ends in one line, not in a traceback."""
    try:
        cli()
    except AppError as error:
        typer.echo(f"kvfuse: {error.message}", err=True)
        sys.exit(EXIT_USAGE if isinstance(error, ConfigError) else EXIT_FAILURE)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


if __name__ == "__main__":
    main()
