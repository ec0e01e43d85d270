"""A run with made-up results: what summary, gate, comparison and report are tested on."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from app.eval.machine import describe_machine
from app.eval.records import AnswerRecord, QuestionRecord, Record, ResultFile
from app.eval.runner import RunSpec

PASSAGE = {"document": "d0", "title": "Lima </script>", "text": "Omar lives in Lima. <b>bold</b>"}
TIMES = {
    "full": {"ttft": 1.0, "retrieve": 0.0, "prefill": 1.0},
    "none": {
        "ttft": 0.1,
        "retrieve": 0.0,
        "decode": 0.04,
        "rotate": 0.01,
        "write": 0.01,
        "recompute": 0.01,
        "tail": 0.03,
    },
    "boundary@0.15": {
        "ttft": 0.2,
        "retrieve": 0.0,
        "decode": 0.04,
        "rotate": 0.01,
        "write": 0.01,
        "recompute": 0.11,
        "tail": 0.03,
    },
}
RECOMPUTED = {"full": 0, "none": 0, "boundary@0.15": 15}


def answer(arm: str, number: int, f1: float = 1.0, kl: Sequence[float] = (), dataset: str = "made-up") -> AnswerRecord:
    mode, _, budget = arm.partition("@")
    recomputed = RECOMPUTED[arm]
    return AnswerRecord(
        id=f"q{number}",
        dataset=dataset,
        arm=arm,
        mode=mode,
        budget=float(budget) if budget else None,
        answer=f"answer of {arm}",
        scores={"em": f1, "f1": f1, "rouge_l": f1, "contains": f1},
        f1_vs_full=f1,
        kl=list(kl),
        agreement=[1.0 if value < 1 else 0.0 for value in kl],
        times=TIMES[arm],
        gaps=[0.01, 0.02],
        tokens={
            "prompt": 120,
            "context": 100 + number,
            "reused": 0 if arm == "full" else 100 - recomputed,
            "recomputed": recomputed,
            "computed": 120 if arm == "full" else 20,
            "missed_chunks": 0,
        },
        flops_share=1.0 if arm == "full" else 0.2,
    )


def question(number: int, dataset: str = "made-up", left_out: str = "") -> QuestionRecord:
    return QuestionRecord(
        id=f"q{number}",
        dataset=dataset,
        question="Where does Omar live?",
        answers=["Lima"],
        gold=["d0"],
        passages=[PASSAGE],
        ranking=["d1", "d0"],
        select_s={"search": 0.01},
        raw_bytes=1000,
        stored_bytes=660,
        layer_bytes={"k": [150, 160], "v": [170, 180]},
        left_out=left_out,
    )


def records(count: int, kl: float, f1: float = 0.8, dataset: str = "made-up") -> list[Record]:
    made: list[Record] = []
    for number in range(count):
        made += [
            answer("full", number, dataset=dataset),
            answer("none", number, f1 / 2, [2 * kl, 3 * kl], dataset),
            answer("boundary@0.15", number, f1, [kl, kl], dataset),
            question(number, dataset),
        ]
    return made


def write_run(folder: Path, made: Sequence[Record]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    spec = RunSpec(data=("made-up",), modes=("none", "boundary"))
    settings = {"model": "made-up", "dtype": "bfloat16"}
    run = {"schema": "kvfuse-run/1", "spec": asdict(spec), "settings": settings, "machine": describe_machine()}
    (folder / "run.json").write_text(json.dumps(run))
    ResultFile(folder / "results.jsonl").append(made)
    return folder
