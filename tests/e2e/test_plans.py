"""Plans of every shape through a real engine in float32, where equal means equal, in blocks of 32 and of 128 tokens."""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from vllm.exceptions import VLLMValidationError

from app.selfcheck import total_variation
from fuse.plan import PolicySpec, Segment
from tests.e2e.crowding import load_and_abort
from tests.e2e.hostile import PARAMS, send_raw
from tests.e2e.oracle import choose, scores
from tests.e2e.tiny import BATCH, LIMIT, PASSAGES, QUESTION, Asked, Reply, Tiny, TinyProcess, tiny_process

pytestmark = pytest.mark.e2e

EXACT = 1e-4
"""Total variation that float32 rounding explains."""
TELLING = 0.05
"""What a wrong context moves at least."""

NONE = PolicySpec("none")
EVERYTHING = [
    PolicySpec("full"),
    PolicySpec("boundary", {"tokens": 10_000}),
    PolicySpec("deviation", {"share": 1.0}),
    PolicySpec("variance", {"share": 1.0}),
    PolicySpec("query", {"share": 1.0}),
    PolicySpec("hybrid", {"share": 1.0}),
]
BUDGETED = ["deviation", "variance", "query", "hybrid"]
CHOICES = [NONE, PolicySpec("boundary", {"tokens": 3}), *(PolicySpec(name, {"share": 0.2}) for name in BUDGETED)]

MANY = tuple(PASSAGES[number % 4] for number in range(12))
LONG_QUESTION = "".join(PASSAGES[3:1:-1])


@pytest.fixture(scope="module", params=[32, 128])
def tiny(
    request: pytest.FixtureRequest, model_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TinyProcess]:
    with tiny_process(tmp_path_factory.mktemp("tiny"), model_dir, block_size=request.param) as process:
        yield process


def name(spec: Any) -> str:
    return spec.name if isinstance(spec, PolicySpec) else str(spec)


def differ(one: Reply, other: Reply) -> float:
    return total_variation(one.first, other.first)


def context_tokens(report: Mapping[str, Any]) -> int:
    return sum(report[part] for part in ("reused", "recomputed", "computed", "cached"))


# Everything recomputed.


@pytest.mark.parametrize("policy", EVERYTHING, ids=name)
@pytest.mark.parametrize(
    ("passages", "tail"),
    [(PASSAGES, QUESTION), (MANY, QUESTION), (PASSAGES, "".join(MANY)), (PASSAGES, PASSAGES[4])],
    ids=["few", "more than a batch", "a question of more than a batch", "a question of one token"],
)
def test_all_of_the_budget_equals_an_ordinary_prefill(
    tiny: TinyProcess, passages: tuple[str, ...], tail: str, policy: PolicySpec
) -> None:
    ordinary = tiny.ask(passages, tail=tail)
    fused = tiny.ask(passages, policy, tail=tail)
    assert fused.report["reused"] == 0
    assert fused.report["recomputed"] > (BATCH if passages is MANY else 0)
    assert differ(ordinary, fused) < EXACT
    assert differ(ordinary, tiny.ask(passages, NONE, tail=tail)) > TELLING


@pytest.mark.parametrize("policy", EVERYTHING, ids=name)
def test_lost_passages_are_computed_from_what_was_recomputed_before_them(tiny: TinyProcess, policy: PolicySpec) -> None:
    assert differ(tiny.ask(), tiny.ask(policy=policy, lost=(1, 3))) < EXACT


# What is chosen.


@pytest.mark.parametrize("policy", CHOICES, ids=name)
@pytest.mark.parametrize(
    "asked",
    [
        Asked(),
        Asked((PASSAGES[2], PASSAGES[0], PASSAGES[2]), lost=(1,)),
        Asked(PASSAGES[:4] * 2, lost=(0, 1, 2, 3), tail=LONG_QUESTION),
    ],
    ids=["all", "twice around a lost one", "the question cut by a batch"],
)
def test_a_policy_recomputes_what_it_chooses(tiny: TinyProcess, asked: Asked, policy: PolicySpec) -> None:
    """The choice is worked out again by transformers, from the stored chunks."""
    asked = dataclasses.replace(asked, policy=policy)
    expected = tiny(choose, asked)
    reply: Reply = tiny(Tiny.ask, asked)
    recomputed = {position for run in reply.passes[-1] for position in range(*run)}
    chosen = {position for run in expected for position in range(*run)}
    assert chosen <= recomputed
    assert reply.report["recomputed"] == len(chosen)
    assert reply.report["missed_chunks"] == len(asked.lost)


@pytest.mark.parametrize("share", [0.0, 0.05, 0.15, 0.5])
@pytest.mark.parametrize("policy", BUDGETED)
def test_a_budget_is_kept(tiny: TinyProcess, policy: str, share: float) -> None:
    report = tiny.ask(MANY, PolicySpec(policy, {"share": share})).report
    loaded = report["reused"] + report["recomputed"]
    assert share * loaded * 0.8 - 3 <= report["recomputed"] <= share * loaded


def test_stored_scores_are_the_change_between_two_contexts(tiny: TinyProcess) -> None:
    stored, expected = tiny(scores, PASSAGES[1])
    assert torch.allclose(stored, expected, rtol=2e-3)  # float16
    assert stored.std() > 0.05 * stored.mean()


# Plans of odd shapes.


def test_the_same_passages_in_another_order_are_reused(tiny: TinyProcess) -> None:
    for passages in (PASSAGES[:4], PASSAGES[3::-1], (PASSAGES[1], PASSAGES[3], PASSAGES[0], PASSAGES[2])):
        reply = tiny.ask(passages, PolicySpec("boundary", {"tokens": 4}))
        assert reply.report["recomputed"] == 16
        assert reply.report["missed_chunks"] == reply.report["cached"] == 0
        assert differ(tiny.ask(passages), tiny.ask(passages, PolicySpec("full"))) < EXACT


@pytest.mark.parametrize("passages", [(PASSAGES[0],) * 2, (PASSAGES[0], PASSAGES[4], PASSAGES[0])])
def test_a_passage_twice_is_reused_twice(tiny: TinyProcess, passages: tuple[str, ...]) -> None:
    reply = tiny.ask(passages, NONE)
    assert reply.report["missed_chunks"] == 0
    assert reply.report["reused"] == context_tokens(reply.report) - reply.report["computed"]
    assert differ(tiny.ask(passages), reply) > TELLING
    assert differ(tiny.ask(passages), tiny.ask(passages, PolicySpec("hybrid", {"share": 1.0}))) < EXACT


@pytest.mark.parametrize("policy", [NONE, *EVERYTHING], ids=name)
def test_a_passage_of_one_token(tiny: TinyProcess, policy: PolicySpec) -> None:
    reply = tiny.ask(PASSAGES[4:], policy)
    assert reply.report["reused"] + reply.report["recomputed"] == 1
    assert policy is NONE or differ(tiny.ask(PASSAGES[4:]), reply) < EXACT


@pytest.mark.parametrize("policy", [*CHOICES, *EVERYTHING], ids=name)
def test_no_passage_is_an_ordinary_prefill(tiny: TinyProcess, policy: PolicySpec) -> None:
    reply = tiny.ask((), policy)
    assert reply.report["computed"] == context_tokens(reply.report)
    assert differ(tiny.ask(()), reply) < EXACT


@pytest.mark.parametrize("policy", [*CHOICES, *EVERYTHING], ids=name)
def test_passages_that_are_all_lost_are_an_ordinary_prefill(tiny: TinyProcess, policy: PolicySpec) -> None:
    reply = tiny.ask(policy=policy, lost=tuple(range(len(PASSAGES))))
    assert reply.report["missed_chunks"] == len(PASSAGES)
    assert reply.report["computed"] == context_tokens(reply.report)
    assert differ(tiny.ask(), reply) < EXACT


@pytest.mark.parametrize("policy", [NONE, PolicySpec("hybrid", {"share": 1.0})], ids=name)
def test_a_plan_that_just_fits_the_context_and_one_that_does_not(tiny: TinyProcess, policy: PolicySpec) -> None:
    passages = fill(tiny, LIMIT - 1)
    reply = tiny.ask(passages, policy)
    assert context_tokens(reply.report) > LIMIT - 10
    assert reply.report["missed_chunks"] == 0
    assert policy is NONE or differ(tiny.ask(passages), reply) < EXACT
    with pytest.raises(VLLMValidationError, match=str(LIMIT)):
        tiny.ask((*passages, PASSAGES[4]), policy)


def fill(tiny: TinyProcess, tokens: int) -> tuple[str, ...]:
    """Return passages whose prompt has just so many tokens."""
    passages = (PASSAGES[0],) * (tokens // tiny(length, PASSAGES[:1]) + 1)
    while tiny(length, passages) > tokens:
        passages = passages[1:]
    return passages + PASSAGES[4:] * (tokens - tiny(length, passages))


async def length(tiny: Tiny, passages: tuple[str, ...]) -> int:
    return len(tiny.prompt(Asked(passages)))


# Prefix caching is on.


def test_an_ordinary_request_is_the_same_after_a_fused_one(tiny: TinyProcess) -> None:
    """With the same token ids, and no salt to keep it apart."""
    passages = MANY[1:]
    before = tiny.ask(passages)
    fused = tiny.ask(passages, NONE)
    after = tiny.ask(passages, salt="")
    again = tiny.ask(passages, NONE)
    assert differ(before, fused) > TELLING
    assert differ(before, after) < EXACT
    assert differ(fused, again) < EXACT


@pytest.mark.parametrize("policy", CHOICES, ids=name)
def test_identical_plans_at_once_give_the_answer_of_one(tiny: TinyProcess, policy: PolicySpec) -> None:
    asked = Asked(MANY, policy, salt=f"at once {policy.name}")
    alone = tiny.ask(MANY, policy)
    for reply in tiny(Tiny.ask_at_once, [asked] * 3):
        assert differ(alone, reply) < EXACT
    cached = tiny(Tiny.ask, asked).report.get("cached", BATCH)
    assert cached >= BATCH


def test_what_an_aborted_request_has_loaded_is_not_taken_for_recomputed(tiny: TinyProcess) -> None:
    """Loaded blocks are in the prefix cache before their recompute."""
    asked = Asked(MANY, PolicySpec("full"), tail="".join(MANY), salt="aborted")
    tiny(load_and_abort, asked)
    after = tiny(Tiny.ask, asked)
    assert differ(tiny.ask(MANY, tail=asked.tail), after) < EXACT


# Plans that do not fit the store.


async def misnamed(tiny: Tiny, fault: str) -> Reply:
    asked = Asked(policy=NONE)
    plan = tiny.plan(asked)
    assert plan is not None
    if fault == "fingerprint":
        plan = dataclasses.replace(plan, fingerprint="0" * 64)
    else:
        head, first, second, *rest = plan.segments
        cut = (Segment(first.tokens + 1, first.key), Segment(second.tokens - 1, second.key))
        plan = dataclasses.replace(plan, segments=(head, *cut, *rest))
    return await tiny.send(tiny.prompt(asked), plan)


@pytest.mark.parametrize(("fault", "missed"), [("fingerprint", len(PASSAGES)), ("length", 2)])
def test_a_plan_that_names_chunks_wrongly_computes_them_and_leaves_them_to_others(
    tiny: TinyProcess, fault: str, missed: int
) -> None:
    reply = tiny(misnamed, fault)
    assert reply.report["missed_chunks"] == missed
    assert fault != "fingerprint" or differ(tiny.ask(), reply) < EXACT
    assert tiny.ask(policy=NONE).report["missed_chunks"] == 0


# Parameters as strangers send them.


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(params=PARAMS)
def test_whatever_the_parameters_are_the_question_is_answered(tiny: TinyProcess, params: Mapping[str, Any]) -> None:
    """An error in the engine's step would end every request in it."""
    asked = Asked(policy=NONE)
    reply = tiny(send_raw, asked, params)
    assert sum(map(math.exp, reply.first.values())) <= 1 + EXACT
    if reply.passes == []:
        assert differ(tiny.ask(salt="hostile"), reply) < EXACT


def test_after_all_that_the_engine_is_whole(tiny: TinyProcess) -> None:
    assert tiny.ask(policy=NONE).report["missed_chunks"] == 0
    assert differ(tiny.ask(), tiny.ask(policy=PolicySpec("full"))) < EXACT
