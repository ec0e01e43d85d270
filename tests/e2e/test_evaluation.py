"""The evaluation on a real engine: sound fusion passes its gate, broken fusion does not, a broken run resumes."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.config import Settings, load_settings
from app.engine_values import Saved
from app.eval.lab import Lab
from app.eval.prompt import make_prompt
from app.eval.records import AnswerRecord, Record
from app.eval.runner import Asker, Run, RunSpec
from app.eval.summary import summarise
from cascade.types import Passage
from store.chunk import KVChunk
from store.tiered import TieredStore
from tests.e2e.lab import Lab as Parts

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

SPEC = RunSpec(
    data=("planted-needle:4x80",),
    modes=("boundary", "none", "unrotated", "prefix-cache", "full-recompute"),
    budgets=(0.15,),
    limit=2,
    answer_tokens=6,
    kl_tokens=2,
)
BRIEF = replace(SPEC, modes=("boundary",))
ROTATION = replace(SPEC, modes=("none", "unrotated", "full-recompute"))


class UnrotatedLab(Lab):
    """Every stored chunk claims to have been computed where it is used, so that nothing is re-rotated."""

    parts: Parts

    async def bank(self, passages: Sequence[Passage]) -> Saved:
        saved = await super().bank(passages)
        start = len(make_prompt(self.language, SPEC.form, "?", passages).head)
        with TieredStore(self.parts.store) as store:
            for passage in passages:
                move(store, passage, self.language.fingerprint, start)
                start += len(passage.token_ids)
        return saved


def move(store: TieredStore, passage: Passage, fingerprint: str, start: int) -> None:
    """Change the position that a stored chunk says it was computed at, and nothing else."""
    with store.open(passage.chunk_key, fingerprint) as reader:
        info = reader.info
        layout = info.layout
        data = np.empty((layout.layers, 2, layout.kv_heads, info.tokens, layout.head_dim), layout.dtype.bits)
        for layer in range(layout.layers):
            reader.read_layer(layer, data[layer, 0], data[layer, 1])
    store.delete(info.key)
    store.put(KVChunk(info.key, info.fingerprint, layout, start, data))


@pytest.fixture
def settings(kvfuse_home: Path) -> Settings:
    return load_settings(home=kvfuse_home)


def measured(record: Record) -> dict[str, Any]:
    """A record without what the clock says."""
    fields = asdict(record)
    return {name: value for name, value in fields.items() if name not in ("times", "gaps", "select_s")}


async def run_on(lab: Lab, settings: Settings, out: Path, spec: RunSpec = SPEC) -> Run:
    run = Run(spec, settings, out)
    await run.work_off(Asker.of(spec, lab))
    return run


def lab_of(parts: Parts, kind: type[Lab] = Lab) -> Lab:
    return kind(parts.engine, parts.language, parts.store, 300)


async def test_sound_fusion_passes_the_gate(lab: Parts, settings: Settings, tmp_path: Path) -> None:
    run = await run_on(lab_of(lab), settings, tmp_path)
    summary = summarise(tmp_path)
    from app.eval.figures import figures, overall

    for name, arm in overall(summarise(tmp_path)).items():
        print(name, {k: round(v, 3) for k, v in figures(arm).items() if k[:2] in ("kl", "f1", "ag")})
    arms = summary["datasets"]["planted-needle:4x80"]
    assert summary["gate"]["failures"] == []
    assert arms["full-recompute"]["kl"]["max"] < 0.02
    assert arms["prefix-cache"]["quality"]["agreement"]["mean"] == 1
    assert arms["boundary@0.15"]["tokens"]["reused"] > 0
    assert arms["prefix-cache"]["tokens"]["reused"] > 0
    assert arms["full"]["tokens"]["reused"] == 0
    for record in run.results.read():
        if isinstance(record, AnswerRecord):
            stages = sum(seconds for stage, seconds in record.times.items() if stage != "ttft")
            assert stages == pytest.approx(record.times["ttft"])


async def test_fusion_without_rotation_is_caught(lab: Parts, settings: Settings, tmp_path: Path) -> None:
    broken = lab_of(lab, UnrotatedLab)
    assert isinstance(broken, UnrotatedLab)
    broken.parts = lab
    await run_on(broken, settings, tmp_path, ROTATION)
    from app.eval.figures import figures, overall

    for name, arm in overall(summarise(tmp_path)).items():
        print(name, {k: round(v, 3) for k, v in figures(arm).items() if k[:2] in ("kl", "f1", "ag")})
    summary = summarise(tmp_path)
    assert any("keys are not re-rotated" in failure for failure in summary["gate"]["failures"])
    assert summary["datasets"]["planted-needle:4x80"]["full-recompute"]["kl"]["max"] < 0.02


async def test_an_interrupted_run_resumed_equals_an_unbroken_one(
    lab: Parts, settings: Settings, tmp_path: Path
) -> None:
    whole = await run_on(lab_of(lab), settings, tmp_path / "whole", BRIEF)
    broken = Run(BRIEF, settings, tmp_path / "broken")
    working = asyncio.create_task(broken.work_off(Asker.of(BRIEF, lab_of(lab))))
    results = tmp_path / "broken" / "results.jsonl"
    while not results.exists() or not results.read_text():
        await asyncio.sleep(0.01)
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    with results.open("a") as end:
        end.write(json.dumps({"kind": "answer", "id": "torn"})[:-4])
    assert 0 < len(broken.waiting()) < 2
    resumed = await run_on(lab_of(lab), settings, tmp_path / "broken", BRIEF)
    assert [measured(record) for record in resumed.results.read()] == [
        measured(record) for record in whole.results.read()
    ]


async def test_a_folder_of_another_run_is_refused(lab: Parts, settings: Settings, tmp_path: Path) -> None:
    Run(SPEC, settings, tmp_path).waiting()
    with pytest.raises(ValueError, match=r"differs in seed, kl_tokens|differs in kl_tokens, seed"):
        Run(replace(SPEC, seed=1, kl_tokens=3), settings, tmp_path).waiting()


async def test_a_question_too_long_for_the_model_is_left_out(lab: Parts, settings: Settings, tmp_path: Path) -> None:
    spec = replace(SPEC, data=("planted-needle:30x400",), limit=1)
    run = Run(spec, settings, tmp_path)
    await run.work_off(Asker.of(spec, lab_of(lab)))
    (left_out,) = summarise(tmp_path)["left_out"]
    assert "the model reads 4096" in left_out["reason"]
