"""Records to summary, gate, comparison and report."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from app.eval.charts import pareto_front
from app.eval.cli import EXIT_GATE, eval_cli
from app.eval.compare import compare
from app.eval.errors import EvalError
from app.eval.figures import NAMES, figures, overall
from app.eval.gate import Condition, check
from app.eval.lab import Answer
from app.eval.records import ResultFile
from app.eval.report import write_report
from app.eval.run_file import RunFile
from app.eval.store_use import store_use
from app.eval.summary import summarise
from tests.eval.made_up import answer, question, records, write_run


def test_summary_by_hand(tmp_path: Path) -> None:
    summary = summarise(write_run(tmp_path, records(4, kl=0.1)))
    arms = overall(summary)
    assert list(arms) == ["full", "none", "boundary@0.15"]
    boundary = arms["boundary@0.15"]
    assert boundary["quality"]["f1"]["mean"] == pytest.approx(0.8)
    assert boundary["minus_full"]["f1"]["mean"] == pytest.approx(-0.2)
    assert boundary["kl"]["mean"] == pytest.approx(0.1)
    assert arms["none"]["kl"]["p50"] == pytest.approx(0.25)
    assert arms["full"]["kl"] is None
    assert boundary["speedup"]["p50"] == pytest.approx(5)
    assert boundary["stages_s"]["recompute"] == pytest.approx(0.11)
    assert boundary["inter_token_s"]["mean"] == pytest.approx(0.015)
    assert summary["store"]["saved"] == pytest.approx(0.34)
    # 4 questions of 1000 raw bytes: 2 layers' K and V have 1000 each; 4 * 150 of K's first layer are stored
    assert summary["store"]["saved_by_layer"]["k"] == pytest.approx([0.4, 0.36])
    found = summary["cascade"]["made-up"]
    assert (found["recall_at"]["1"], found["recall_at"]["2"], found["mrr"]) == (0, 1, 0.5)


def test_the_store_s_part_by_hand(tmp_path: Path) -> None:
    def stats(raw: int, seconds: float, hits: int, corrupt: int) -> dict[str, Any]:
        sums = {"raw_bytes": raw, "stored_bytes": raw // 2, "decoded_bytes": 2 * raw}
        times = {"encode_seconds": seconds, "decode_seconds": seconds / 2}
        tiers = {"memory": {"hits": hits}, "disk": {"hits": 0}}
        backend = {"backend": "software", "backend_reason": "no device"}
        return {**sums, **times, **backend, "tiers": tiers, "misses": {"corrupt": corrupt, "absent": 4}}

    use = store_use(stats(10**6, 1, 5, 0), stats(4 * 10**6, 2, 12, 1))
    made = [replace(question(number), store=use) for number in range(2)]
    store = summarise(write_run(tmp_path, [answer("full", 0), answer("full", 1), *made]))["store"]
    assert (store["encode_mb_s"], store["decode_mb_s"]) == (pytest.approx(3), pytest.approx(12))
    assert (store["hits"], store["misses"]) == ({"memory": 14, "disk": 0}, {"corrupt": 2})
    assert (store["backend"], store["backend_reason"]) == ("software", "no device")


def test_stages_of_an_answer_by_hand() -> None:
    assert Answer("", (0.5, 0.6), 0).stages() == {"prefill": 0.5}
    # 0.11 s of loading, 0.01 of them writing; two threads decoded for 0.12 s and re-rotated for 0.04 s together
    seconds = {"load": 0.11, "write": 0.01, "decode": 0.12, "rotate": 0.04, "select": 0.05, "recompute": 0.2}
    stages = Answer("", (0.5,), 0, {f"{name}_s": value for name, value in seconds.items()}).stages()
    expected = {"decode": 0.075, "rotate": 0.025, "write": 0.01, "select": 0.05, "recompute": 0.2, "tail": 0.14}
    assert stages == pytest.approx(expected)
    cached = Answer("", (0.5,), 0, {f"{name}_s": 0.0 for name in seconds}).stages()
    assert cached["tail"] == 0.5


def test_several_data_sets_are_summed_up_under_all(tmp_path: Path) -> None:
    made = records(2, kl=0.1, f1=1.0, dataset="easy") + records(2, kl=0.1, f1=0.0, dataset="hard")
    summary = summarise(write_run(tmp_path, made))
    f1 = {name: arms["boundary@0.15"]["quality"]["f1"]["mean"] for name, arms in summary["datasets"].items()}
    assert f1 == {"all": 0.5, "easy": 1.0, "hard": 0.0}


def test_questions_left_out_are_listed(tmp_path: Path) -> None:
    summary = summarise(write_run(tmp_path, [*records(1, kl=0.1), question(9, left_out="9000 tokens")]))
    assert summary["left_out"] == [{"id": "q9", "reason": "9000 tokens"}]


def test_gate_catches_strayed_answers_and_passes_close_ones(tmp_path: Path) -> None:
    close = summarise(write_run(tmp_path / "close", records(4, kl=0.1)))
    assert close["gate"] == {**close["gate"], "judged": ["boundary@0.15"], "failures": []}
    strayed = summarise(write_run(tmp_path / "strayed", records(4, kl=1.5)))
    assert len(strayed["gate"]["failures"]) == 2
    assert "boundary@0.15: agreement is 0 (< 0.5)" in strayed["gate"]["failures"]


def test_gate_catches_keys_that_are_not_re_rotated(tmp_path: Path) -> None:
    made = records(12, kl=0.1)
    control = [replace(answer("none", n, 0.4, [0.2, 0.3]), arm="unrotated", mode="unrotated") for n in range(12)]
    failures = summarise(write_run(tmp_path / "broken", made + control))["gate"]["failures"]
    assert failures == ["none: as far from full prefill as unrotated at every question: keys are not re-rotated"]
    worse = [replace(record, kl=[0.01, 0.02]) for record in control]
    (failure,) = summarise(write_run(tmp_path / "worse", made + worse))["gate"]["failures"]
    assert failure.endswith("keys are re-rotated wrongly")
    better = [replace(record, kl=[1.0, 2.0]) for record in control]
    assert summarise(write_run(tmp_path / "sound", made + better))["gate"]["failures"] == []


def test_conditions(tmp_path: Path) -> None:
    summary = summarise(write_run(tmp_path, records(4, kl=0.1)))
    assert check(["boundary.f1_vs_full<0.9"], summary) == ["boundary@0.15: f1_vs_full is 0.8 (< 0.9)"]
    assert check(["boundary@0.15.f1_vs_full<0.8", "none.speedup_p50<=9"], summary) == []
    with pytest.raises(EvalError, match="no arm 'hybrid': there are full, none"):
        check(["hybrid.f1<1"], summary)
    with pytest.raises(EvalError, match="no figure 'beauty'"):
        check(["none.beauty<1"], summary)


@pytest.mark.parametrize("text", ["none.f1", "none.f1=1", "f1<1", "none.f1<x", "none.f1<1 2"])
def test_a_malformed_condition_is_refused(text: str) -> None:
    with pytest.raises(EvalError, match="is not of the form"):
        Condition.parse(text)


def test_every_flat_figure_can_stand_in_a_condition(tmp_path: Path) -> None:
    summary = summarise(write_run(tmp_path, records(2, kl=0.1)))
    assert {name for arm in overall(summary).values() for name in figures(arm)} == NAMES
    for arm, values in overall(summary).items():
        for name, value in figures(values).items():
            assert check([f"{arm}.{name}<{value - 1}"], summary) == []


def test_compare_finds_what_changed(tmp_path: Path) -> None:
    before = write_run(tmp_path / "a", records(20, kl=0.2, f1=0.6))
    after = write_run(tmp_path / "b", records(20, kl=0.1, f1=0.6))
    changes = {(change.arm, change.measure): change for change in compare(before, after)}
    kl = changes["boundary@0.15", "kl"]
    assert (kl.before, kl.after) == (pytest.approx(0.2), pytest.approx(0.1))
    assert kl.difference.significant
    assert str(kl).startswith("*")
    assert not changes["boundary@0.15", "f1"].difference.significant
    assert ("full", "kl") not in changes


def test_a_folder_without_a_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(EvalError, match=r"no run: .*run.json cannot be read"):
        summarise(tmp_path)
    (tmp_path / "run.json").write_text('{"spec": {}')
    with pytest.raises(EvalError, match=r"run.json is damaged"):
        RunFile(tmp_path).claim({}, {})
    with pytest.raises(EvalError, match=r"cannot be written"):
        RunFile(tmp_path / "run.json").claim({}, {})


def test_compare_needs_common_questions(tmp_path: Path) -> None:
    before = write_run(tmp_path / "a", [answer("full", 1)])
    after = write_run(tmp_path / "b", [answer("full", 2)])
    with pytest.raises(EvalError, match="no arm with a question in common"):
        compare(before, after)


def test_an_interrupted_question_is_dropped_on_resuming(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    file = ResultFile(path)
    file.append([*records(1, kl=0.1), answer("full", 1)])
    with path.open("a") as end:
        end.write('{"kind": "answer", "id": "q1", "data')
    assert file.resume() == {("made-up", "q0")}
    assert list(file.read()) == records(1, kl=0.1)
    assert file.resume() == {("made-up", "q0")}


def test_damage_before_the_end_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text("nonsense\n" * 2)
    with pytest.raises(EvalError, match=r"results.jsonl, line 1"):
        ResultFile(path).resume()


def test_pareto_front() -> None:
    points = {"a": (3, 0.9), "b": (1, 0.5), "c": (2, 0.4), "d": (1, 0.3), "e": (4, 0.9)}
    arms = {
        name: {"ttft_s": {"p50": time}, "quality": {"f1_vs_full": {"mean": f1}}} for name, (time, f1) in points.items()
    }
    assert pareto_front(arms) == ["b", "a"]


def test_report_is_one_page_that_asks_nobody_else(tmp_path: Path) -> None:
    summary = summarise(write_run(tmp_path, records(3, kl=0.4)))
    page = write_report(tmp_path, summary).read_text(encoding="utf-8")
    ours = page[page.index("</script>") :]  # after the bundled plotly
    assert not re.findall(r"(?:src|href)=", ours)
    assert ours.count("Plotly.newPlot") == 6
    assert "The gate passed" in ours
    assert "Where does Omar live?" in ours
    assert "&lt;b&gt;bold&lt;/b&gt;" in ours
    assert "<b>bold</b>" not in ours
    assert 'class="passage gold"' in ours


def test_report_of_a_run_without_answers(tmp_path: Path) -> None:
    summary = summarise(write_run(tmp_path, [question(0, left_out="too long")]))
    assert "too long" in write_report(tmp_path, summary).read_text(encoding="utf-8")


def test_command_line_enforces_gate_and_conditions(tmp_path: Path) -> None:
    close = write_run(tmp_path / "close", records(3, kl=0.1))
    strayed = write_run(tmp_path / "strayed", records(3, kl=1.5))
    cli = CliRunner()
    assert cli.invoke(eval_cli, ["report", str(close)]).exit_code == 0
    assert cli.invoke(eval_cli, ["report", str(strayed)]).exit_code == EXIT_GATE
    condition = ["--fail-if", "boundary.f1_vs_full<0.9"]
    assert cli.invoke(eval_cli, ["compare", str(close), str(close)]).exit_code == 0
    failed = cli.invoke(eval_cli, ["compare", str(strayed), str(close), *condition])
    assert failed.exit_code == EXIT_GATE
    assert "f1_vs_full is 0.8" in failed.output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--modes", "clairvoyant"], "unknown mode clairvoyant: there are full"),
        (["--modes", "none", "--fail-if", "hybrid.f1<1"], "no arm 'hybrid': there are full, none"),
        (["--modes", "none", "--fail-if", "none.beauty<1"], "no figure 'beauty': there are agreement"),
        (["--modes", "none", "--fail-if", "none<1"], "is not of the form"),
        (["--modes", "outside"], "needs --engine-url"),
        (["--modes", "hybrid", "--budgets", ""], "mode hybrid needs a budget"),
        (["--budgets", "much"], "budget 'much' is not a number"),
        (["--passages", "some"], "passages are all or cascade"),
        (["--format", "verse"], "unknown prompt format 'verse'"),
        (["--data", ","], "no data set is named"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_an_engine_starts(options: list[str], message: str) -> None:
    data = [] if "--data" in options else ["--data", "needle"]
    refused = CliRunner().invoke(eval_cli, [*data, "--out", "nowhere", *options])  # `run` may be left out
    assert isinstance(refused.exception, EvalError)
    assert message in str(refused.exception)
    assert not Path("nowhere").exists()


def test_records_survive_the_file(tmp_path: Path) -> None:
    made = [replace(question(1), answers=["Łódź"]), answer("none", 1, kl=[0.25])]
    file = ResultFile(tmp_path / "results.jsonl")
    file.append(made)
    assert list(file.read()) == made
    assert json.loads((tmp_path / "results.jsonl").read_text(encoding="utf-8").splitlines()[0])["kind"] == "question"
