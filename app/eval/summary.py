"""summary.json: a run's records to figures, by data set and arm. The schema is stable and documented in `SCHEMA.md`."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.eval import metrics
from app.eval.bootstrap import bootstrap, paired_difference
from app.eval.figures import EVERYTHING
from app.eval.gate import judge
from app.eval.records import AnswerRecord, QuestionRecord, ResultFile
from app.eval.run_file import RunFile
from app.eval.store_use import add_up

SCHEMA = "kvfuse-eval/1"
_RECALL_AT = (1, 2, 3, 5, 10, 20)

Extract = Callable[[AnswerRecord], float]

QUALITY: dict[str, Extract] = {
    "em": lambda record: record.scores["em"],
    "f1": lambda record: record.scores["f1"],
    "rouge_l": lambda record: record.scores["rouge_l"],
    "contains": lambda record: record.scores["contains"],
    "f1_vs_full": lambda record: record.f1_vs_full,
}
DIVERGENCE: dict[str, Extract] = {
    "kl": lambda record: _mean(record.kl),
    "agreement": lambda record: _mean(record.agreement),
}


def summarise(out: Path) -> dict[str, Any]:
    """Return the summary of the run in folder `out`, and write it to `summary.json` there.

    Raises:
        EvalError: there is no run, or its results are damaged.
    """
    run = RunFile(out).read()
    records = list(ResultFile(out / "results.jsonl").read())
    questions = [record for record in records if isinstance(record, QuestionRecord)]
    answers = [record for record in records if isinstance(record, AnswerRecord)]
    summary: dict[str, Any] = {
        "schema": SCHEMA,
        "run": run,
        "questions": len(questions),
        "left_out": [{"id": asked.id, "reason": asked.left_out} for asked in questions if asked.left_out],
        "datasets": {name: _arms(of_dataset) for name, of_dataset in _by_dataset(answers).items()},
        "store": _store(questions),
        "cascade": {name: _cascade(of_dataset) for name, of_dataset in _by_dataset(questions).items()},
    }
    summary["gate"] = judge(summary, _kl_by_question(answers))
    (out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    return summary


def by_arm(answers: Iterable[AnswerRecord]) -> dict[str, dict[tuple[str, str], AnswerRecord]]:
    """Answers by arm, and in each by (data set, question)."""
    arms: defaultdict[str, dict[tuple[str, str], AnswerRecord]] = defaultdict(dict)
    for record in answers:
        arms[record.arm][record.dataset, record.id] = record
    return dict(arms)


def measures_of(record: AnswerRecord) -> dict[str, Extract]:
    """The quality measures that a record has: divergence only where it was compared with full prefill."""
    return QUALITY | DIVERGENCE if record.kl else QUALITY


def _kl_by_question(answers: Sequence[AnswerRecord]) -> dict[str, list[float]]:
    """Mean divergence at each question, by arm; questions in one order for all."""
    return {
        name: [_mean(records[key].kl) for key in sorted(records)]
        for name, records in by_arm(answers).items()
        if any(record.kl for record in records.values())
    }


def _by_dataset(records: Sequence[Any]) -> dict[str, list[Any]]:
    groups: defaultdict[str, list[Any]] = defaultdict(list)
    for record in records:
        groups[record.dataset].append(record)
    return {EVERYTHING: list(records), **groups} if len(groups) > 1 else dict(groups)


def _arms(answers: Sequence[AnswerRecord]) -> dict[str, Any]:
    arms = by_arm(answers)
    full = next((records for records in arms.values() if _first(records).mode == "full"), {})
    return {name: _arm(records, full) for name, records in arms.items()}


def _first(records: Mapping[tuple[str, str], AnswerRecord]) -> AnswerRecord:
    return next(iter(records.values()))


def _arm(
    records: Mapping[tuple[str, str], AnswerRecord], full: Mapping[tuple[str, str], AnswerRecord]
) -> dict[str, Any]:
    first = _first(records)
    ours, theirs = list(records.values()), [full[key] for key in records]
    kl = [value for record in ours for value in record.kl]
    return {
        "mode": first.mode,
        "budget": first.budget,
        "n": len(ours),
        "quality": {name: asdict(bootstrap([of(r) for r in ours])) for name, of in measures_of(first).items()},
        "minus_full": {
            name: asdict(paired_difference([of(r) for r in ours], [of(r) for r in theirs]))
            for name, of in QUALITY.items()
            if name != "f1_vs_full"
        },
        "kl": _spread(kl),
        "kl_worst_question": max(_mean(record.kl) for record in ours) if kl else None,
        "ttft_s": _spread([record.times["ttft"] for record in ours]),
        "speedup": _spread(
            [base.times["ttft"] / record.times["ttft"] for record, base in zip(ours, theirs, strict=True)]
        ),
        "stages_s": _means([{k: v for k, v in record.times.items() if k != "ttft"} for record in ours]),
        "inter_token_s": _spread([gap for record in ours for gap in record.gaps]),
        "tokens": _means([record.tokens for record in ours]),
        "flops_share": _mean([record.flops_share for record in ours]),
    }


def _store(questions: Sequence[QuestionRecord]) -> dict[str, Any]:
    raw, stored = (sum(getattr(asked, name) for asked in questions) for name in ("raw_bytes", "stored_bytes"))
    layers = {
        half: np.sum([asked.layer_bytes[half] for asked in questions if asked.layer_bytes], axis=0) for half in "kv"
    }
    return {
        "raw_bytes": raw,
        "stored_bytes": stored,
        "saved": 1 - stored / raw if raw else 0.0,
        "saved_by_layer": {half: _saved(raw, stored) for half, stored in layers.items() if np.ndim(stored)},
        **add_up([asked.store for asked in questions if asked.store]),
    }


def _saved(raw: int, layers: NDArray[np.int64]) -> list[float]:
    """Saved share of each layer's half, K or V: all have the same raw size."""
    return [1 - float(stored) * 2 * len(layers) / raw for stored in layers]


def _cascade(questions: Sequence[QuestionRecord]) -> dict[str, Any] | None:
    """Return retrieval measures over the questions whose evidence is known; None when the cascade was not used."""
    ranked = [asked for asked in questions if asked.ranking and asked.gold]
    if not ranked:
        return None
    return {
        "n": len(ranked),
        "recall_at": {
            str(k): _mean([metrics.recall_at(asked.ranking, asked.gold, k) for asked in ranked]) for k in _RECALL_AT
        },
        "mrr": _mean([metrics.reciprocal_rank(asked.ranking, asked.gold) for asked in ranked]),
        "ndcg_at_10": _mean([metrics.ndcg_at(asked.ranking, asked.gold, 10) for asked in ranked]),
        "gold_passed_on": _mean([_passed_on(asked) for asked in ranked]),
        "passages_passed_on": _mean([float(len(asked.passages)) for asked in ranked]),
        "stages_s": _means([asked.select_s for asked in ranked]),
    }


def _passed_on(asked: QuestionRecord) -> float:
    """Share of the evidence documents that reached the prompt."""
    documents = {passage["document"] for passage in asked.passages}
    return len(documents & set(asked.gold)) / len(asked.gold)


def _spread(values: Sequence[float]) -> dict[str, float] | None:
    if not values:
        return None
    quantiles = np.percentile(values, [50, 95, 99])
    p50, p95, p99 = (float(quantile) for quantile in quantiles)
    return {"mean": _mean(values), "p50": p50, "p95": p95, "p99": p99, "max": max(values), "n": len(values)}


def _means(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Mean of each key over the rows; a key that a row lacks counts as 0 there."""
    keys = dict.fromkeys(key for row in rows for key in row)
    return {key: _mean([float(row.get(key, 0)) for row in rows]) for key in keys}


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else 0.0
