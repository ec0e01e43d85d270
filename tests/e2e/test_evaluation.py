"""The evaluation on a real engine: sound fusion passes its gate, broken fusion does not, a killed run resumes."""

import asyncio
import sys
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from fastapi import FastAPI

from app.config import Settings, load_settings
from app.engine_values import Saved
from app.eval.bank import stored_chunk
from app.eval.cli import EXIT_GATE
from app.eval.data import load_questions
from app.eval.errors import EvalError
from app.eval.lab import Lab
from app.eval.library import Library
from app.eval.outside import outside_engine
from app.eval.prompt import make_prompt
from app.eval.records import AnswerRecord, QuestionRecord, Record, ResultFile
from app.eval.runner import Asker, Run, RunSpec
from app.eval.summary import summarise
from cascade.embed import Embedder
from cascade.types import Passage
from store.keys import ChunkKey
from store.tiered import TieredStore
from tests.e2e.completions import completions_served, serving
from tests.e2e.lab import Lab as Parts
from tests.e2e.lab import measuring

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

    async def bank(self, passages: Iterable[Passage]) -> Saved:
        passages = list(passages)
        saved = await super().bank(passages)
        start = len(make_prompt(self.language, SPEC.form, "?", passages).head)
        with TieredStore(self.parts.store) as store:
            for passage in passages:
                move(store, passage, self.language.fingerprint, start)
                start += len(passage.token_ids)
        return saved


def move(store: TieredStore, passage: Passage, fingerprint: str, start: int) -> None:
    """Change the position that a stored chunk says it was computed at, and nothing else."""
    chunk = stored_chunk(store, ChunkKey(passage.chunk_key), fingerprint)
    store.delete(chunk.key)
    store.put(replace(chunk, base_position=start))


@pytest.fixture
def settings(kvfuse_home: Path) -> Settings:
    return load_settings(home=kvfuse_home)


def measured(record: Record) -> dict[str, Any]:
    """A record without what the clock says, and without divergences."""
    fields = asdict(record)
    return {name: value for name, value in fields.items() if name not in ("times", "gaps", "select_s", "store", "kl")}


async def run_on(lab: Lab, settings: Settings, out: Path, spec: RunSpec = SPEC, **parts: Any) -> Run:
    run = Run(spec, settings, out)
    await run.work_off(Asker.of(spec, lab, **parts))
    return run


def answers_of(run: Run) -> list[AnswerRecord]:
    return [record for record in run.results.read() if isinstance(record, AnswerRecord)]


async def test_sound_fusion_passes_the_gate(lab: Parts, settings: Settings, tmp_path: Path) -> None:
    run = await run_on(measuring(lab), settings, tmp_path)
    summary = summarise(tmp_path)
    arms = summary["datasets"]["planted-needle:4x80"]
    assert summary["gate"]["failures"] == []
    assert arms["full-recompute"]["kl"]["max"] < 0.02
    assert arms["prefix-cache"]["quality"]["agreement"]["mean"] == 1
    assert arms["boundary@0.15"]["tokens"]["reused"] > 0
    assert arms["prefix-cache"]["tokens"]["reused"] > 0
    assert arms["full"]["tokens"]["reused"] == 0
    for record in answers_of(run):
        assert sum(record.times.values()) == pytest.approx(2 * record.times["ttft"])  # the stages add up to it
    store = summary["store"]
    assert store["encode_mb_s"] > 0
    assert store["decode_mb_s"] > 0
    assert store["hits"]["memory"] > 0
    assert store["backend"] in ("software", "hardware")
    assert store["saved"] > 0.3


async def test_fusion_without_rotation_is_caught(lab: Parts, settings: Settings, tmp_path: Path) -> None:
    broken = measuring(lab, UnrotatedLab)
    assert isinstance(broken, UnrotatedLab)
    broken.parts = lab
    await run_on(broken, settings, tmp_path, ROTATION)
    summary = summarise(tmp_path)
    assert any("keys are not re-rotated" in failure for failure in summary["gate"]["failures"])
    assert summary["datasets"]["planted-needle:4x80"]["full-recompute"]["kl"]["max"] < 0.02


async def test_rivals_reuse_passages_that_saw_nothing(lab: Parts, settings: Settings, tmp_path: Path) -> None:
    ours = measuring(lab)
    made = ours.passages("d", "", load_questions(["planted-needle:2x60"], 1)[0].docs[0].text)
    await ours.bank(made)
    prompt = make_prompt(lab.language, "chat", "?", made)
    alone = await ours.alone(prompt)
    with TieredStore(lab.store) as store:
        behind, by_itself = (
            stored_chunk(store, ChunkKey(each.passages[0].chunk_key), each.fingerprint) for each in (prompt, alone)
        )
    assert by_itself.base_position == 1  # behind the first token alone
    assert behind.base_position > 50  # behind head and context
    assert (by_itself.data != behind.data).any()
    run = await run_on(ours, settings, tmp_path, replace(BRIEF, modes=("naive", "cacheblend"), limit=1))
    recomputed = {record.arm: record.tokens["recomputed"] for record in answers_of(run)}
    assert recomputed["naive"] == 0 < recomputed["cacheblend@0.15"]


async def test_the_cascade_chooses_the_passages(
    lab: Parts, settings: Settings, embedder_dir: Path, tmp_path: Path
) -> None:
    ours, spec = measuring(lab), replace(BRIEF, passages="cascade", modes=("none",), kl_tokens=0)
    async with Library.open(ours, tmp_path, Embedder(embedder_dir), settings) as library:
        for question in load_questions(spec.data, spec.limit, spec.seed):
            await library.add(question.docs)
        run = await run_on(ours, settings, tmp_path / "run", spec, library=library)
    found = summarise(tmp_path / "run")["cascade"]["planted-needle:4x80"]
    assert (found["n"], found["gold_passed_on"], found["recall_at"]["20"]) == (2, 1, 1)
    assert found["passages_passed_on"] < 8  # of the two questions' eight
    for record in answers_of(run):
        assert record.times["retrieve"] > 0
        assert sum(record.times.values()) == pytest.approx(2 * record.times["ttft"])


async def test_a_server_outside_is_measured_beside(lab: Parts, settings: Settings, tmp_path: Path) -> None:
    async with completions_served(lab.engine) as url:
        spec = replace(BRIEF, modes=("none",), kl_tokens=0, engine_url=url)
        async with outside_engine(url) as outside:
            run = await run_on(measuring(lab), settings, tmp_path, spec, outside=outside)
    arms = summarise(tmp_path)["datasets"]["planted-needle:4x80"]
    assert arms["outside"]["quality"]["f1_vs_full"]["mean"] == 1  # the same model over the same token ids
    assert arms["outside"]["tokens"]["reused"] == 0
    assert all(record.gaps for record in answers_of(run) if record.arm == "outside")


async def test_a_server_outside_that_cannot_answer_is_named() -> None:
    async with serving(FastAPI()) as url:
        with pytest.raises(EvalError, match=rf"{url}: .*404"):
            await outside_engine(url).__aenter__()
    with pytest.raises(EvalError, match=rf"{url}: Connection error"):
        await outside_engine(url).__aenter__()


@pytest.mark.timeout(900)
async def test_a_run_killed_in_the_middle_and_resumed_equals_an_unbroken_one(kvfuse_home: Path, tmp_path: Path) -> None:
    """The command itself, killed by the signal that nothing can catch, beside one that was left alone."""
    spec = replace(BRIEF, limit=3)
    command = [sys.executable, "-m", "app.cli", "eval", "--data", ",".join(spec.data), "--modes", ",".join(spec.modes)]
    command += ["--limit", "3", "--answer-tokens", "6", "--kl-tokens", "2", "--home", str(kvfuse_home)]
    command += ["--max-num-batched-tokens", "512", "--kv-cache-gib", "0.5"]
    command += ["--fail-if", "boundary.agreement<2", "--out"]
    out, left_alone = tmp_path / "broken", tmp_path / "whole"
    killed = await asyncio.create_subprocess_exec(*command, str(out))
    while not finished(out):
        assert killed.returncode is None, "the run ended before it was killed"
        await asyncio.sleep(0.01)
    engine = psutil.Process(killed.pid).children(recursive=True)
    killed.kill()
    await killed.wait()
    _, alive = await asyncio.to_thread(psutil.wait_procs, engine, 60)
    assert engine
    assert not alive, "the engine outlived the run"
    assert 0 < len(finished(out)) < 3
    resumed, unbroken = [await asyncio.create_subprocess_exec(*command, str(folder)) for folder in (out, left_alone)]
    for process in (resumed, unbroken):
        assert await process.wait() == EXIT_GATE  # measured to its end, then judged by --fail-if
    broken, whole = (list(ResultFile(folder / "results.jsonl").read()) for folder in (out, left_alone))
    assert [measured(record) for record in broken] == [measured(record) for record in whole]
    # An engine that began in the middle batches the shared prefixes of its prompts in another way: bf16's noise.
    assert divergences(broken) == pytest.approx(divergences(whole), abs=0.05)


def divergences(records: Iterable[Record]) -> list[float]:
    return [kl for record in records if isinstance(record, AnswerRecord) for kl in record.kl]


def finished(out: Path) -> list[str]:
    """Ids of the questions that a run has finished."""
    results = out / "results.jsonl"
    records = ResultFile(results).read() if results.exists() else ()
    return [record.id for record in records if isinstance(record, QuestionRecord)]


async def test_a_folder_of_another_run_is_refused(lab: Parts, settings: Settings, tmp_path: Path) -> None:
    Run(SPEC, settings, tmp_path).waiting()
    with pytest.raises(ValueError, match=r"differs in seed, kl_tokens|differs in kl_tokens, seed"):
        Run(replace(SPEC, seed=1, kl_tokens=3), settings, tmp_path).waiting()


async def test_a_question_too_long_for_the_model_is_left_out(lab: Parts, settings: Settings, tmp_path: Path) -> None:
    spec = replace(SPEC, data=("planted-needle:30x400",), limit=1)
    run = Run(spec, settings, tmp_path)
    await run.work_off(Asker.of(spec, measuring(lab)))
    (left_out,) = summarise(tmp_path)["left_out"]
    assert "the model reads 4096" in left_out["reason"]
