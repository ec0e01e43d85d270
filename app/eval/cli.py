"""Command line of the evaluation: `kvfuse eval`, `kvfuse eval report`, `kvfuse eval compare`.

Whatever starts an engine is imported inside the commands: the engine's worker imports the main module again.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperGroup

from app.cli_options import with_settings
from app.config import Settings
from app.telemetry import configure_logging

if TYPE_CHECKING:
    from app.eval.gate import Condition

EXIT_GATE = 3


class _RunByDefault(TyperGroup):
    """A group whose options without a subcommand mean `run`."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        if args and args[0] not in self.commands and args[0] not in ("--help", "-h"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


eval_cli = typer.Typer(
    cls=_RunByDefault, help="Measure quality beside latency.", no_args_is_help=True, rich_markup_mode=None
)

FailIf = Annotated[
    list[str] | None,
    typer.Option(
        metavar="CONDITION", help='Exit with 3 if it holds, as in "boundary@0.15.f1_vs_full<0.9"; repeatable.'
    ),
]


@eval_cli.command()
@with_settings
def run(
    settings: Settings,
    data: Annotated[list[str], typer.Option(metavar="FILE|NAME", help="Data set; repeatable, or separated by commas.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the run; an interrupted one is continued.")],
    modes: Annotated[
        str, typer.Option(help="Separated by commas.")
    ] = "full,prefix-cache,naive,cacheblend,unrotated,none,boundary,hybrid",
    budgets: Annotated[str, typer.Option(help="Shares of passage tokens, separated by commas.")] = "0.15",
    passages: Annotated[
        str, typer.Option(help="all: every candidate; cascade: what the service would choose.")
    ] = "all",
    form: Annotated[str, typer.Option("--format", help="Prompt format: chat or few.")] = "chat",
    limit: Annotated[int | None, typer.Option(min=1, help="Questions of each data set.")] = None,
    seed: Annotated[int, typer.Option(help="Draws the questions and the order of the modes.")] = 0,
    answer_tokens: Annotated[int, typer.Option(min=1, help="Longest answer.")] = 24,
    kl_tokens: Annotated[int, typer.Option(min=0, help="Answer tokens compared with full prefill; 0 for none.")] = 8,
    engine_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="OpenAI-compatible server of the same model (completions over token ids), measured beside.",
        ),
    ] = None,
    fail_if: FailIf = None,
) -> None:
    """Ask the same questions in every mode and report. `run` may be left out."""
    from app.eval.runner import RunSpec, run_eval

    configure_logging("warning")
    spec = RunSpec(
        data=tuple(name for entry in data for name in _listed(entry)),
        modes=tuple(_listed(modes)),
        budgets=tuple(map(_share, _listed(budgets))),
        passages=passages,
        form=form,
        limit=limit,
        seed=seed,
        answer_tokens=answer_tokens,
        kl_tokens=kl_tokens,
        engine_url=engine_url,
    )
    for condition in _conditions(fail_if or []):
        condition.check_names(spec.arms())
    run_eval(spec, settings, out)
    _report(out, fail_if or [])


@eval_cli.command()
def report(
    out: Annotated[Path, typer.Argument(exists=True, metavar="DIR", help="Folder of a run.")], fail_if: FailIf = None
) -> None:
    """Make summary and report of a run again, finished or not."""
    _conditions(fail_if or [])
    _report(out, fail_if or [])


@eval_cli.command()
def compare(
    before: Annotated[Path, typer.Argument(exists=True, metavar="A")],
    after: Annotated[Path, typer.Argument(exists=True, metavar="B")],
    fail_if: FailIf = None,
) -> None:
    """Show what changed from run A to run B; `*` marks a change whose 95 % interval excludes 0."""
    from app.eval.compare import compare as compare_runs

    _conditions(fail_if or [])
    for change in compare_runs(before, after):
        typer.echo(str(change))
    _enforce(after, fail_if or [])


def _report(out: Path, conditions: list[str]) -> None:
    from app.eval.report import write_report
    from app.eval.summary import summarise

    summary = summarise(out)
    typer.echo(f"report: {write_report(out, summary)}")
    for failure in summary["gate"]["failures"]:
        typer.echo(f"gate: {failure}", err=True)
    _enforce(out, conditions)
    if summary["gate"]["failures"]:
        raise typer.Exit(EXIT_GATE)


def _enforce(out: Path, conditions: list[str]) -> None:
    """Exit with `EXIT_GATE` when a condition holds on the summary of a run."""
    from app.eval.gate import check
    from app.eval.summary import summarise

    if failures := check(conditions, summarise(out)):
        for failure in failures:
            typer.echo(f"failed: {failure}", err=True)
        raise typer.Exit(EXIT_GATE)


def _conditions(texts: list[str]) -> "list[Condition]":
    """Read conditions; a malformed one is refused before anything long is started."""
    from app.eval.gate import Condition

    return [Condition.parse(text) for text in texts]


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _share(text: str) -> float:
    from app.eval.errors import EvalError

    try:
        return float(text)
    except ValueError:
        raise EvalError(f"budget {text!r} is not a number") from None
