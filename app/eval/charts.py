"""The report's charts: summary and records to plotly figures."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go  # type: ignore[import-untyped]

from app.eval.figures import overall
from app.eval.records import AnswerRecord

Summary = Mapping[str, Any]
Chart = Callable[[Summary, Sequence[AnswerRecord]], go.Figure | None]

_COLOURS = (
    "#1f2937",
    "#2563eb",
    "#d97706",
    "#059669",
    "#dc2626",
    "#7c3aed",
    "#0891b2",
    "#be185d",
    "#65a30d",
    "#6b7280",
)
_STAGES = {
    "retrieve": ("choosing passages", "#a3a3a3"),
    "select": ("choosing tokens", "#7c3aed"),
    "load": ("load, decode, re-rotate", "#2563eb"),
    "write": ("write to paged cache", "#93c5fd"),
    "recompute": ("recompute", "#d97706"),
    "tail": ("question prefill and the rest", "#059669"),
    "prefill": ("ordinary prefill", "#1f2937"),
}


def quality_against_time(summary: Summary, answers: Sequence[AnswerRecord]) -> go.Figure:
    """Agreement of the answers with full prefill's over time to first token, with the Pareto front."""
    arms, figure = overall(summary), _figure("median time to first token, s", "F1 vs full prefill")
    points = []
    for number, (name, arm) in enumerate(arms.items()):
        quality, time = arm["quality"]["f1_vs_full"], arm["ttft_s"]["p50"]
        points.append((time, quality["mean"]))
        figure.add_scatter(
            x=[time],
            y=[quality["mean"]],
            error_y=_error(quality),
            mode="markers",
            name=name,
            marker={"size": 12, "color": _colour(number)},
            hovertemplate=f"{name}<br>%{{x:.3f}} s<br>%{{y:.3f}}<extra></extra>",
        )
    front = pareto_front(points)
    line = {"color": "#9ca3af", "dash": "dot", "shape": "hv"}
    figure.add_scatter(
        x=[x for x, _ in front], y=[y for _, y in front], mode="lines", line=line, name="Pareto front", hoverinfo="skip"
    )
    figure.update_xaxes(rangemode="tozero")
    figure.update_yaxes(range=[-0.03, 1.06])
    return figure


def time_breakdown(summary: Summary, answers: Sequence[AnswerRecord]) -> go.Figure:
    """What the time to first token is made of, mean of each part."""
    arms = overall(summary)
    names = list(arms)[::-1]
    figure = _figure("mean time to first token, s", "")
    for stage, (label, colour) in _STAGES.items():
        values = [arms[name]["stages_s"].get(stage, 0) for name in names]
        if any(values):
            figure.add_bar(
                y=names,
                x=values,
                name=label,
                orientation="h",
                marker={"color": colour},
                hovertemplate="%{y}<br>" + label + ": %{x:.3f} s<extra></extra>",
            )
    figure.update_layout(barmode="stack", height=max(280, 44 * len(names) + 150))
    return figure


def time_by_length(summary: Summary, answers: Sequence[AnswerRecord]) -> go.Figure:
    """Time to first token of each request over the tokens of its context, with a straight line through each arm."""
    figure = _figure("context tokens", "time to first token, s")
    for number, (name, records) in enumerate(_arms(answers).items()):
        x, y = [record.tokens["context"] for record in records], [record.times["ttft"] for record in records]
        figure.add_scatter(
            x=x, y=y, mode="markers", name=name, legendgroup=name, marker={"color": _colour(number), "size": 6}
        )
        if max(x) > min(x):
            slope, offset = np.polyfit(x, y, 1)
            ends = [min(x), max(x)]
            figure.add_scatter(
                x=ends,
                y=[offset + slope * end for end in ends],
                mode="lines",
                line={"color": _colour(number)},
                legendgroup=name,
                showlegend=False,
                hoverinfo="skip",
            )
    figure.update_yaxes(rangemode="tozero")
    return figure


def kl_distribution(summary: Summary, answers: Sequence[AnswerRecord]) -> go.Figure | None:
    """Share of answer tokens whose divergence from full prefill is at most x."""
    figure = _figure("KL divergence from full prefill at an answer token, nats", "share of answer tokens")
    for number, (name, records) in enumerate(_arms(answers).items()):
        values = sorted(max(value, 1e-5) for record in records for value in record.kl)
        if values:
            shares = [(place + 1) / len(values) for place in range(len(values))]
            figure.add_scatter(
                x=values,
                y=shares,
                mode="lines",
                name=name,
                line={"color": _colour(number), "shape": "hv", "width": 2.5},
            )
    figure.update_xaxes(type="log", dtick=1, exponentformat="power")
    figure.update_yaxes(range=[0, 1.03], tickformat=".0%")
    return figure if figure.data else None


def savings_by_layer(summary: Summary, answers: Sequence[AnswerRecord]) -> go.Figure | None:
    """Share of the raw bytes that compression saved in each layer."""
    figure = _figure("layer", "saved share of raw bytes")
    names, colours = {"k": "K", "v": "V"}, {"k": "#2563eb", "v": "#d97706"}
    for half, saved in summary["store"]["saved_by_layer"].items():
        figure.add_bar(x=list(range(len(saved))), y=saved, name=names[half], marker={"color": colours[half]})
    figure.update_yaxes(tickformat=".0%")
    return figure if figure.data else None


def recall(summary: Summary, answers: Sequence[AnswerRecord]) -> go.Figure | None:
    """Share of the evidence documents among the first k of the cascade's ranking."""
    figure = _figure("documents ranked first (k)", "recall of the evidence")
    measured = {name: found for name, found in summary["cascade"].items() if found}
    for number, (name, found) in enumerate(measured.items()):
        figure.add_scatter(
            x=[int(k) for k in found["recall_at"]],
            y=list(found["recall_at"].values()),
            mode="lines+markers",
            name=name,
            line={"color": _colour(number)},
        )
    figure.update_yaxes(range=[0, 1.03], tickformat=".0%")
    return figure if measured else None


def pareto_front(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points (time, quality) that no other beats in both, fastest first."""
    front: list[tuple[float, float]] = []
    for time, quality in sorted(points, key=lambda point: (point[0], -point[1])):
        if not front or quality > front[-1][1]:
            front.append((time, quality))
    return front


def _arms(answers: Sequence[AnswerRecord]) -> dict[str, list[AnswerRecord]]:
    arms: defaultdict[str, list[AnswerRecord]] = defaultdict(list)
    for record in answers:
        arms[record.arm].append(record)
    return dict(arms)


def _error(interval: Mapping[str, float]) -> dict[str, Any]:
    mean = interval["mean"]
    return {
        "type": "data",
        "symmetric": False,
        "array": [interval["high"] - mean],
        "arrayminus": [mean - interval["low"]],
        "thickness": 1,
    }


def _colour(number: int) -> str:
    return _COLOURS[number % len(_COLOURS)]


def _figure(x_title: str, y_title: str) -> go.Figure:
    figure = go.Figure()
    figure.update_layout(
        template="plotly_white",
        font={"family": "system-ui, sans-serif", "size": 13, "color": "#1f2937"},
        margin={"l": 10, "r": 10, "t": 10, "b": 10},
        height=420,
        legend={"orientation": "h", "yanchor": "top", "y": -0.22, "x": 0, "xanchor": "left"},
        xaxis={"title": {"text": x_title, "font": {"size": 13}}, "automargin": True},
        yaxis={"title": {"text": y_title, "font": {"size": 13}}, "automargin": True},
    )
    return figure
