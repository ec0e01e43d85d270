"""Fusion in a real vLLM: exact where it must be, right where it may differ, and never served to anyone else."""

import asyncio
import dataclasses

import numpy as np
import pytest

from app.engine_values import Sampling
from app.heads import Heads
from app.selfcheck import total_variation
from fuse.plan import FusePlan, PolicySpec, Segment
from store.chunk import KVChunk
from store.keys import chunk_key
from store.tiered import TieredStore
from tests.e2e.lab import ANSWER, FACTS, QUESTION, Lab, largest_difference

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

BF16_LIMIT = 0.02
BATCH_NOISE = 0.1
"""Total variation between the same request alone and in a batch: see `app.selfcheck`."""


async def test_full_recompute_equals_an_ordinary_prefill(lab: Lab) -> None:
    prompt = lab.prompt(lab.passages)
    ordinary = await lab.ask(prompt)
    fused = await lab.ask(prompt, lab.plan(lab.passages, "full"))
    assert fused.report["recomputed"] == sum(map(len, lab.passages))
    assert largest_difference(ordinary.first, fused.first) <= BF16_LIMIT
    assert fused.text == ordinary.text


async def test_a_chunk_at_its_own_place_is_exact_without_recompute(lab: Lab) -> None:
    """Behind the head it was computed behind, a reused passage is what an ordinary prefill computes."""
    passage, head = lab.passages[2], lab.language.scheme.head
    key = chunk_key(lab.language.fingerprint, "behind head", passage)
    await lab.save_behind_head(passage, key)
    prompt = [*head, *passage, *lab.language.plain.encode(QUESTION)]
    segments = (Segment(len(head)), Segment(len(passage), key))
    fused = await lab.ask(prompt, FusePlan(lab.language.fingerprint, segments, PolicySpec("none")))
    assert fused.report["reused"] == len(passage)
    assert total_variation((await lab.ask(prompt)).first, fused.first) <= BF16_LIMIT


async def test_a_stored_head_is_exact_and_nobodys_budget(lab: Lab) -> None:
    """With it the question's tokens alone are watched, over two thirds of the layers: the choice stays the same."""
    prompt, computing = lab.prompt(lab.passages), lab.plan(lab.passages, "hybrid", share=0.15)
    head = await Heads(lab.engine, lab.language.fingerprint, "lab").stored(prompt[: computing.segments[0].tokens])
    loading = dataclasses.replace(computing, segments=(head, *computing.segments[1:]))
    computed, loaded = await lab.ask(prompt, computing), await lab.ask(prompt, loading)
    assert (computed.report["computed"], loaded.report["computed"]) == (head.tokens, 0)
    assert loaded.report["recomputed"] == computed.report["recomputed"] > 0
    assert loaded.report["reused"] == computed.report["reused"] + head.tokens
    assert total_variation(computed.first, loaded.first) <= BF16_LIMIT


async def test_recompute_larger_than_a_batch_equals_an_ordinary_prefill(lab: Lab) -> None:
    filler = "The harbour log of Kelvara lists arrivals, departures and the state of the tide. " * 40
    (long,) = await lab.save([filler])
    passages = [long, *lab.passages]
    assert len(long) > 512  # the engine's batch
    prompt = lab.prompt(passages)
    ordinary = await lab.ask(prompt)
    fused = await lab.ask(prompt, lab.plan(passages, "full"))
    assert total_variation(ordinary.first, fused.first) <= BATCH_NOISE  # the two are cut into different batches


async def test_no_recompute_answers_from_the_right_passage(lab: Lab) -> None:
    answer = await lab.ask(lab.prompt(lab.passages), lab.plan(lab.passages, "none"))
    assert answer.report["reused"] == sum(map(len, lab.passages))
    assert ANSWER in answer.text


async def test_without_re_rotation_the_same_question_is_answered_wrong(lab: Lab) -> None:
    """Chunks that claim to have been computed where they are used are not rotated: their keys are misplaced."""
    passages = lab.passages
    plan = lab.plan(passages, "none")
    with TieredStore(lab.store) as store:
        segments = [plan.segments[0]]
        for span, passage in zip(list(plan.spans())[1:], passages, strict=True):
            key = chunk_key(lab.language.fingerprint, "misplaced", passage)
            chunk = _read(store, lab, passage)
            store.put(dataclasses.replace(chunk, key=key, base_position=span.start))
            segments.append(Segment(len(passage), key))
    misplaced = dataclasses.replace(plan, segments=tuple(segments))
    prompt = lab.prompt(passages)
    ordinary = await lab.ask(prompt)
    wrong = await lab.ask(prompt, misplaced)
    right = await lab.ask(prompt, plan)
    assert wrong.report["missed_chunks"] == 0
    assert ANSWER in ordinary.text
    assert ANSWER in right.text
    assert ANSWER not in wrong.text
    assert total_variation(ordinary.first, wrong.first) > total_variation(ordinary.first, right.first)


async def test_boundary_recompute_answers_and_accounts_for_every_token(lab: Lab) -> None:
    prompt = lab.prompt(lab.passages)
    plan = lab.plan(lab.passages, "boundary", tokens=16)
    answer = await lab.ask(prompt, plan)
    assert ANSWER in answer.text
    assert answer.report["recomputed"] == 16 * len(lab.passages)
    assert answer.report["computed"] == plan.segments[0].tokens
    counted = answer.report["reused"] + answer.report["recomputed"] + answer.report["computed"]
    assert counted == plan.context_tokens


async def test_an_ordinary_request_never_sees_fused_kv(lab: Lab) -> None:
    """Prefix caching is on, and neither request carries a salt of its own making."""
    prompt = lab.prompt(lab.passages, "How many clocks does the museum hold?")
    cold = await lab.ask(prompt)
    plan = lab.plan(lab.passages, "none")
    fused = await lab.generate(prompt, plan, plan.cache_salt("tenant", prompt))
    after = await lab.generate(prompt, None, None)
    assert fused.first != cold.first
    assert after.first == cold.first
    assert after.text == cold.text


async def test_a_fused_request_never_uses_the_kv_of_ordinary_ones(lab: Lab) -> None:
    prompt = lab.prompt(lab.passages, "How long is the river Anset?")
    plan = lab.plan(lab.passages, "none")
    before = await lab.ask(prompt, plan)
    await lab.generate(prompt, None, None)
    after = await lab.ask(prompt, plan)
    assert after.report["reused"] == before.report["reused"]
    assert after.first == before.first


async def test_the_same_plan_again_comes_from_the_prefix_cache(lab: Lab) -> None:
    prompt = lab.prompt(lab.passages)
    plan = lab.plan(lab.passages, "boundary", tokens=8)
    salt = plan.cache_salt("tenant", prompt)
    first = await lab.generate(prompt, plan, salt)
    again = await lab.generate(prompt, plan, salt)
    assert again.report == {} or again.report["cached"] > 0
    assert again.text == first.text


async def test_identical_requests_at_once_give_the_same_answer(lab: Lab) -> None:
    passages = lab.passages[::-1]
    prompt = lab.prompt(passages)
    plan = lab.plan(passages, "boundary", tokens=12)
    alone = await lab.ask(prompt, plan)
    salt = plan.cache_salt("tenant", prompt)
    both = await asyncio.gather(*(lab.generate(prompt, plan, salt) for _ in range(3)))
    for answer in both:
        assert total_variation(alone.first, answer.first) <= BATCH_NOISE


async def test_different_plans_at_once_keep_apart(lab: Lab) -> None:
    orders = [lab.passages[:3], lab.passages[2::-1], lab.passages[3:], [*lab.passages[4:], lab.passages[0]]]
    jobs = [(lab.prompt(order), lab.plan(order, "boundary", tokens=16)) for order in orders]
    alone = [await lab.ask(*job) for job in jobs]
    together = await asyncio.gather(*(lab.ask(*job) for job in jobs))
    for one, many in zip(alone, together, strict=True):
        assert total_variation(one.first, many.first) <= BATCH_NOISE


async def test_aborted_requests_leave_the_engine_whole(lab: Lab) -> None:
    prompt = lab.prompt(lab.passages)
    plan = lab.plan(lab.passages, "full")
    for delay in (0.0, 0.005, 0.02, 0.05, 0.1):
        task = asyncio.create_task(lab.ask(prompt, plan))
        await asyncio.sleep(delay)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    answer = await asyncio.wait_for(lab.ask(prompt, plan), 60)
    assert ANSWER in answer.text


@pytest.mark.parametrize("spec", [PolicySpec("guess"), PolicySpec("boundary", {"tokens": -3})])
async def test_a_plan_that_makes_no_sense_is_served_without_fusion(lab: Lab, spec: PolicySpec) -> None:
    prompt = lab.prompt(lab.passages)
    plan = dataclasses.replace(lab.plan(lab.passages, "none"), policy=spec)
    answer = await lab.ask(prompt, plan)
    assert answer.report == {}
    assert answer.first == (await lab.ask(prompt)).first


async def test_a_plan_without_a_salt_is_served_without_fusion(lab: Lab) -> None:
    prompt = lab.prompt(lab.passages[:2])
    answer = await lab.generate(prompt, lab.plan(lab.passages[:2], "none"), None)
    assert answer.report == {}


async def test_stored_kv_is_the_engines_own_bit_for_bit(lab: Lab) -> None:
    """Saving the same passage again, behind the same head, gives the same bits."""
    passage = lab.passages[1]
    with TieredStore(lab.store) as store:
        first = _read(store, lab, passage)
        store.delete(lab.key(passage))
        await lab.save([FACTS[1]])
        second = _read(store, lab, passage)
    assert np.array_equal(first.data, second.data)
    scheme = lab.language.scheme
    assert first.base_position == second.base_position == len(scheme.head) + sum(map(len, scheme.generic))


def _read(store: TieredStore, lab: Lab, passage: list[int]) -> KVChunk:
    reader = store.open(lab.key(passage), lab.language.fingerprint)
    assert reader is not None
    with reader:
        info = reader.info
        data = reader.read()
    return KVChunk(info.key, info.fingerprint, info.layout, info.base_position, data)


async def test_an_answer_begun_elsewhere_goes_on_in_the_context_it_was_begun_in(lab: Lab) -> None:
    """Its tokens are no part of the question that chooses what to recompute."""
    prompt, plan = lab.prompt(lab.passages), lab.plan(lab.passages, "hybrid", share=0.15)
    whole = [piece async for piece in lab.engine.generate(prompt, Sampling(9, logprobs=20), plan, "whole")]
    so_far = [token for piece in whole[:-1] for token in piece.token_ids]
    continued = await lab.ask([*prompt, *so_far], dataclasses.replace(plan, answered=len(so_far)))
    asked_anew = await lab.ask([*prompt, *so_far], plan)
    chosen = [report["recomputed"] for report in (whole[-1].report, continued.report, asked_anew.report)]
    assert chosen[0] == chosen[1] != chosen[2]
    assert total_variation(whole[-1].logprobs[0], continued.first) <= BATCH_NOISE
