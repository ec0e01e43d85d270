"""Names to arms, budgets to policies."""

import pytest

from app.eval.arms import MEANINGS, Arm, Reuse, make_arms, mode_names
from app.eval.errors import EvalError
from app.eval.flops import PrefillCost
from app.eval.prompt import Prompt
from cascade.types import Passage
from fuse.plan import PolicySpec
from fuse.work import PrefillWork


def prompt_of(*sizes: int) -> Prompt:
    passages = tuple(Passage(f"p{i}", "d", i, "", "", 0, 0, tuple(range(n)), "a" * 64) for i, n in enumerate(sizes))
    return Prompt((1, 2, 3), passages, (4, 5), "f" * 64)


def test_budgets_apply_only_where_a_policy_has_one() -> None:
    arms = make_arms(["none", "boundary", "prefix-cache"], [0.05, 0.15])
    assert [arm.name for arm in arms] == ["full", "none", "boundary@0.05", "boundary@0.15", "prefix-cache"]


def test_full_is_an_ordinary_prefill_and_full_recompute_the_policy() -> None:
    full, recompute = make_arms(["full-recompute"], [])
    assert (full.reuse, full.policy(prompt_of(10))) == (Reuse.NOTHING, None)
    assert (recompute.reuse, recompute.policy(prompt_of(10))) == (Reuse.CHUNKS, PolicySpec("full"))


def test_rivals_reuse_passages_computed_alone() -> None:
    _, naive, cacheblend = make_arms(["naive", "cacheblend"], [0.15])
    assert (naive.reuse, naive.policy(prompt_of(10))) == (Reuse.ALONE, PolicySpec("none"))
    assert (cacheblend.reuse, cacheblend.policy(prompt_of(10))) == (
        Reuse.ALONE,
        PolicySpec("deviation", {"share": 0.15}),
    )


def test_a_boundary_budget_is_a_share_of_the_mean_passage() -> None:
    assert Arm("boundary", 0.15).policy(prompt_of(100, 300)) == PolicySpec("boundary", {"tokens": 30})


def test_an_unknown_mode_is_refused_with_the_list() -> None:
    with pytest.raises(EvalError, match=r"unknown mode clairvoyant: there are full, prefix-cache.*boundary"):
        make_arms(["none", "clairvoyant"], [0.1])
    with pytest.raises(EvalError, match=r"budget 1\.5 is outside"):
        make_arms(["none"], [1.5])


def test_every_mode_is_explained() -> None:
    assert set(MEANINGS) == set(mode_names())


def test_prefill_share_by_hand() -> None:
    cost = PrefillCost(PrefillWork(linear=10, attention=1))
    # tokens 0..9 attend to 1..10 positions: 10 * 10 + 55 = 155; the tail's 2 tokens: 2 * 10 + 9 + 10 = 39
    assert cost.share(10, 10, 10) == 1
    assert cost.share(10, 2, 2) == pytest.approx(39 / 155)
    assert cost.share(10, 3, 2) == pytest.approx((39 + 10 + 4) / 155)
