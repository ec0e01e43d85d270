"""report.html: one self-contained page about a run, readable offline and without explanation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import plotly.graph_objects as go  # type: ignore[import-untyped]
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]

from app.eval import charts
from app.eval.arms import FULL, MEANINGS
from app.eval.figures import figures, overall
from app.eval.records import AnswerRecord, QuestionRecord, ResultFile
from app.eval.summary import by_arm

_TEMPLATE = "report.html.jinja"
_WORST = 6
_CARDS = 6

_CHARTS: tuple[tuple[charts.Chart, str, str], ...] = (
    (
        charts.quality_against_time,
        "Quality against speed",
        "Up and to the left is better. Height: word overlap (F1) with the answer that an ordinary full prefill gives, "
        "with its 95 % interval. A line joins the budgets of a mode. The dotted line joins what nothing beats in both.",
    ),
    (
        charts.time_breakdown,
        "Where the time to the first token goes",
        "Mean of each part. Decoding and re-rotating overlap in threads and share their elapsed time; an ordinary "
        "prefill is one part.",
    ),
    (
        charts.time_by_length,
        "Growth with the length of the context",
        "One dot a request. The flatter the line, the less a longer context costs. Budgets of a mode differ by dashes; "
        "a click on a name hides it.",
    ),
    (
        charts.kl_distribution,
        "Distance of the next-token distribution from full prefill",
        "For each mode, the share of answer tokens whose KL divergence is at most x. Further left is better; "
        "0 is drawn at 0.00001.",
    ),
    (
        charts.savings_by_layer,
        "Bytes saved by lossless compression",
        "By layer, without the files' headers. Nothing is lost: every chunk is restored bit by bit.",
    ),
    (
        charts.recall,
        "Finding the documents",
        "How much of the evidence is among the k documents that the cascade ranks first.",
    ),
)

_COLUMNS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "with the accepted answers": (
        ("f1", "F1", ".3f"),
        ("em", "exact", ".3f"),
        ("contains", "contains", ".3f"),
        ("rouge_l", "ROUGE L", ".3f"),
    ),
    "with full prefill's answer": (
        ("f1_vs_full", "F1", ".3f"),
        ("agreement", "same top token", ".3f"),
        ("kl_mean", "KL mean", ".4f"),
        ("kl_p50", "KL median", ".4f"),
        ("kl_p95", "KL p95", ".4f"),
        ("kl_worst_question", "KL worst question", ".4f"),
    ),
    "time to first token, s": (("ttft_p50", "p50", ".3f"), ("ttft_p95", "p95", ".3f"), ("ttft_p99", "p99", ".3f")),
    "full over it": (("speedup_p50", "p50", ".1f"),),
    "between tokens, s": (("inter_token_p50", "p50", ".4f"), ("inter_token_p95", "p95", ".4f")),
    "prompt tokens": (
        ("reused", "reused", ".0f"),
        ("recomputed", "recom- puted", ".0f"),
        ("computed", "com- puted", ".0f"),
    ),
    "FLOPs": (("flops_share", "of full", ".1%"),),
}
_FLAT = tuple(column for columns in _COLUMNS.values() for column in columns)


@dataclass(frozen=True)
class Example:
    """A question on which an arm strayed far from full prefill, with every arm's answer."""

    question: QuestionRecord
    arm: str
    kl: float
    answers: Sequence[tuple[str, str, float, float | None]]


def write_report(out: Path, summary: Mapping[str, Any]) -> Path:
    """Write `report.html` of the run in folder `out` and return its path."""
    records = list(ResultFile(out / "results.jsonl").read())
    answers = [record for record in records if isinstance(record, AnswerRecord)]
    questions = {(asked.dataset, asked.id): asked for asked in records if isinstance(asked, QuestionRecord)}
    page = _environment().get_template(_TEMPLATE).render(
        summary=summary,
        plotly=get_plotlyjs(),
        charts=_charts(summary, answers),
        groups=[(title, len(columns)) for title, columns in _COLUMNS.items()],
        columns=[(label, format) for _, label, format in _FLAT],
        tables={name: _table(arms) for name, arms in summary["datasets"].items()},
        examples=_worst(answers, questions),
        cards=_cards(overall(summary)),
        meanings=_meanings(overall(summary)),
    )  # fmt: skip
    path = out / "report.html"
    path.write_text(page, encoding="utf-8")
    return path


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["figure"] = lambda value, format: "–" if value is None else f"{value:{format}}"
    return environment


def _cards(arms: Mapping[str, Any]) -> list[tuple[str, dict[str, float]]]:
    """Full prefill and what no other arm beats in both speed and quality."""
    names = dict.fromkeys([*(name for name in arms if name == FULL), *charts.pareto_front(arms)])
    return [(name, figures(arms[name])) for name in list(names)[:_CARDS]]


def _meanings(arms: Mapping[str, Any]) -> dict[str, str]:
    """What each mode of the run does."""
    return {mode: MEANINGS[mode] for mode in dict.fromkeys(arm["mode"] for arm in arms.values())}


def _charts(summary: Mapping[str, Any], answers: Sequence[AnswerRecord]) -> list[dict[str, str]]:
    drawn = [(chart(summary, answers), title, caption) for chart, title, caption in _CHARTS if answers]
    return [{"title": title, "caption": caption, "json": _embed(figure)} for figure, title, caption in drawn if figure]


def _embed(figure: go.Figure) -> str:
    """A figure as JSON that may stand inside a script element."""
    return str(figure.to_json()).replace("</", "<\\/")


def _table(arms: Mapping[str, Any]) -> list[tuple[str, int, list[float | None]]]:
    rows = []
    for name, arm in arms.items():
        values = figures(arm)
        rows.append((name, arm["n"], [values.get(column) for column, _, _ in _FLAT]))
    return rows


def _worst(answers: Sequence[AnswerRecord], questions: Mapping[tuple[str, str], QuestionRecord]) -> list[Example]:
    """The questions on which an arm that may serve has the largest mean KL, each question once."""
    arms = by_arm(answers)
    serving = [r for r in answers if r.kl and r.tokens["recomputed"]]
    worst: dict[tuple[str, str], AnswerRecord] = {}
    for record in sorted(serving, key=_mean_kl, reverse=True):
        worst.setdefault((record.dataset, record.id), record)
    return [
        Example(
            questions[key], record.arm, _mean_kl(record), [_line(arms[name][key]) for name in arms if key in arms[name]]
        )
        for key, record in list(worst.items())[:_WORST]
    ]


def _line(record: AnswerRecord) -> tuple[str, str, float, float | None]:
    return record.arm, record.answer, record.f1_vs_full, _mean_kl(record) if record.kl else None


def _mean_kl(record: AnswerRecord) -> float:
    return sum(record.kl) / len(record.kl)
