"""The report's charts: summary and records to plotly figures."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    "#be185d",
    "#dc2626",
    "#6b7280",
    "#d97706",
    "#0891b2",
    "#65a30d",
    "#7c3aed",
    "#059669",
)
_DASHES = ("solid", "dash", "dot", "dashdot")
_STAGES = {
    "retrieve": ("choosing passages", "#a3a3a3"),
    "select": ("choosing tokens", "#7c3aed"),
    "decode": ("read and decode", "#2563eb"),
    "rotate": ("re-rotate", "#0891b2"),
    "write": ("write to paged cache", "#93c5fd"),
    "recompute": ("recompute", "#d97706"),
    "tail": ("question prefill and the rest", "#059669"),
    "prefill": ("ordinary prefill", "#1f2937"),
}


def quality_against_time(summary: Summary, answers: Sequence[AnswerRecord]) -> go.Figure:
    """Agreement of the answers with full prefill's over time to first token, with the Pareto front."""
    arms, figure = overall(summary), _figure("median time to first token, s", "F1 with full prefill's answer")
    colours = _colours(arms)
    for mode, colour in colours.items():
        chosen = [arm for arm in arms.values() if arm["mode"] == mode]
        quality = [arm["quality"]["f1_vs_full"] for arm in chosen]
        figure.add_scatter(
            x=[arm["ttft_s"]["p50"] for arm in chosen],
            y=[interval["mean"] for interval in quality],
            error_y=_error(quality, colour),
            mode="lines+markers+text",
            text=[f"{arm['budget']:.0%}" if arm["budget"] else "" for arm in chosen],
            textposition="top right",
            textfont={"size": 11, "color": colour},
            name=mode,
            marker={"size": 11, "color": colour},
            line={"color": colour, "width": 1},
            hovertemplate=f"{mode} %{{text}}<br>%{{x:.3f}} s<br>F1 %{{y:.3f}}<extra></extra>",
        )
    front = [arms[name] for name in pareto_front(arms)]
    figure.add_scatter(
        x=[arm["ttft_s"]["p50"] for arm in front],
        y=[arm["quality"]["f1_vs_full"]["mean"] for arm in front],
        mode="lines",
        line={"color": "#9ca3af", "dash": "dot", "shape": "hv", "width": 2},
        name="Pareto front",
        hoverinfo="skip",
    )
    figure.update_xaxes(rangemode="tozero")
    figure.update_yaxes(range=[-0.03, 1.09])
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
    figure.update_layout(barmode="stack", height=max(280, 24 * len(names) + 150), legend={"traceorder": "normal"})
    return figure


def time_by_length(summary: Summary, answers: Sequence[AnswerRecord]) -> go.Figure:
    """Time to first token of each request over the tokens of its context, with a straight line through each arm."""
    figure = _figure("context tokens", "time to first token, s")
    for name, records, style in _styled(summary, answers):
        x, y = [record.tokens["context"] for record in records], [record.times["ttft"] for record in records]
        hover = f"{name}<br>%{{x}} tokens<br>%{{y:.3f}} s<extra></extra>"
        if max(x) > min(x):
            slope, offset = np.polyfit(x, y, 1)
            ends = [min(x), max(x)]
            fit = [offset + slope * end for end in ends]
            figure.add_scatter(x=ends, y=fit, mode="lines", hoverinfo="skip", **style)
            style = style | {"showlegend": False}
        figure.add_scatter(x=x, y=y, mode="markers", marker={"size": 5}, hovertemplate=hover, **style)
    figure.update_yaxes(rangemode="tozero")
    return figure


def kl_distribution(summary: Summary, answers: Sequence[AnswerRecord]) -> go.Figure | None:
    """Share of answer tokens whose divergence from full prefill is at most x."""
    figure = _figure("KL at an answer token, nats", "share of answer tokens")
    for name, records, style in _styled(summary, [record for record in answers if record.kl]):
        values = sorted(max(value, 1e-5) for record in records for value in record.kl)
        figure.add_scatter(
            x=values,
            y=[(place + 1) / len(values) for place in range(len(values))],
            mode="lines",
            hovertemplate=f"{name}<br>KL at most %{{x:.2g}}: %{{y:.0%}} of tokens<extra></extra>",
            **_stepped(style),
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


def pareto_front(arms: Mapping[str, Any]) -> list[str]:
    """Return the arms that no other beats in both quality and median time, fastest first."""
    front: list[str] = []
    best = -1.0
    for name, arm in sorted(arms.items(), key=lambda named: (named[1]["ttft_s"]["p50"], -_agreement(named[1]))):
        if _agreement(arm) > best:
            front.append(name)
            best = _agreement(arm)
    return front


def _agreement(arm: Mapping[str, Any]) -> float:
    return float(arm["quality"]["f1_vs_full"]["mean"])


def _styled(
    summary: Summary, answers: Sequence[AnswerRecord]
) -> Iterator[tuple[str, list[AnswerRecord], dict[str, Any]]]:
    """Every arm's answers, with the colour of its mode, the dash of its budget and one entry a mode in the legend."""
    arms: defaultdict[str, list[AnswerRecord]] = defaultdict(list)
    for record in answers:
        arms[record.arm].append(record)
    colours, seen = _colours(overall(summary)), Counter[str]()
    for name, records in arms.items():
        mode = records[0].mode
        style = {"name": mode, "legendgroup": mode, "showlegend": not seen[mode]}
        dash = _DASHES[seen[mode] % len(_DASHES)]
        yield name, records, {**style, "line": {"color": colours[mode], "dash": dash, "width": 2}}
        seen[mode] += 1


def _stepped(style: Mapping[str, Any]) -> dict[str, Any]:
    return {**style, "line": {**style["line"], "shape": "hv"}}


def _colours(arms: Mapping[str, Any]) -> dict[str, str]:
    """A colour for each mode."""
    return {mode: _colour(number) for number, mode in enumerate(dict.fromkeys(arm["mode"] for arm in arms.values()))}


def _error(intervals: Sequence[Mapping[str, float]], colour: str) -> dict[str, Any]:
    return {
        "type": "data",
        "symmetric": False,
        "array": [interval["high"] - interval["mean"] for interval in intervals],
        "arrayminus": [interval["mean"] - interval["low"] for interval in intervals],
        "thickness": 0.7,
        "width": 0,
        "color": colour,
    }


def _colour(number: int) -> str:
    return _COLOURS[number % len(_COLOURS)]


def _figure(x_title: str, y_title: str) -> go.Figure:
    figure = go.Figure()
    figure.update_layout(
        template="plotly_white",
        font={"family": "system-ui, sans-serif", "size": 13, "color": "#1f2937"},
        margin={"l": 10, "r": 10, "t": 10, "b": 10},
        height=440,
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0, "xanchor": "left"},
        xaxis={"title": {"text": x_title, "font": {"size": 13}}, "automargin": True},
        yaxis={"title": {"text": y_title, "font": {"size": 13}}, "automargin": True},
    )
    return figure
