"""FusePlan: its JSON form, its salt, and what is refused."""

import json
from dataclasses import replace
from typing import Any

import pytest

from fuse.errors import PlanError
from fuse.plan import FusePlan, PolicySpec, SaveOrder, Segment, parse_params, tag_of
from store.keys import ChunkKey

KEY_A, KEY_B = ChunkKey("a" * 64), ChunkKey("b" * 64)
PLAN = FusePlan("f" * 64, (Segment(5), Segment(7, KEY_A), Segment(3, KEY_B)), PolicySpec("boundary", {"tokens": 4.0}))
ORDER = SaveOrder(KEY_A, "f" * 64, 5, 12, "c" * 64)


def test_spans_are_contiguous_from_position_zero() -> None:
    assert [(span.start, span.end, span.key) for span in PLAN.spans()] == [
        (0, 5, None),
        (5, 12, KEY_A),
        (12, 15, KEY_B),
    ]
    assert PLAN.context_tokens == 15


def test_every_span_knows_what_is_in_front_of_it_also_when_a_passage_stands_there_twice() -> None:
    segments = (Segment(5), Segment(7, KEY_A), Segment(3, KEY_B), Segment(7, KEY_A), Segment(2), Segment(3, KEY_B))
    spans = list(FusePlan("f" * 64, segments, PolicySpec("none")).spans())
    assert [span.before for span in spans] == [None, None, KEY_A, KEY_B, KEY_A, None]


@pytest.mark.parametrize("value", [PLAN, replace(PLAN, answered=4), ORDER])
def test_params_survive_json(value: FusePlan | SaveOrder) -> None:
    assert parse_params(json.loads(json.dumps(value.to_params()))) == value


def test_the_tag_travels_beside_the_plan() -> None:
    assert tag_of(PLAN.to_params("t-1")) == "t-1"
    assert parse_params(PLAN.to_params("t-1")) == PLAN
    assert tag_of(None) == tag_of({"other": 1}) == ""


def test_params_of_others_are_ignored() -> None:
    assert parse_params(None) is None
    assert parse_params({"do_remote_prefill": True}) is None


@pytest.mark.parametrize(
    "ours",
    [
        "text",
        {},
        {"op": "drop"},
        {"op": "fuse", "fingerprint": "f", "segments": [[3, "../../etc/passwd"]], "policy": {"name": "none"}},
        {"op": "fuse", "fingerprint": "f", "segments": [], "policy": {"name": "none"}},
        {"op": "fuse", "fingerprint": "f", "segments": [[0, None]], "policy": {"name": "none"}},
        {"op": "fuse", "fingerprint": "f", "segments": [[3, None]], "policy": {"name": "x", "tokens": "many"}},
        {"op": "fuse", "fingerprint": "f", "segments": [[3, None]], "policy": {"name": "none"}, "answered": -1},
        {"op": "save", "key": "a" * 64, "fingerprint": "f", "start": 4, "end": 4},
        {"op": "save", "key": "a" * 64, "fingerprint": "f", "start": -1, "end": 4},
    ],
)
def test_malformed_params_are_a_plan_error(ours: Any) -> None:
    with pytest.raises(PlanError):
        parse_params({"kvfuse": ours})


def test_salt_depends_on_everything_that_changes_the_fused_kv() -> None:
    tokens = list(range(20))
    other_policy = FusePlan(PLAN.fingerprint, PLAN.segments, PolicySpec("none"))
    other_order = FusePlan(PLAN.fingerprint, (Segment(5), Segment(3, KEY_B), Segment(7, KEY_A)), PLAN.policy)
    salts = {
        PLAN.cache_salt("tenant", tokens),
        PLAN.cache_salt("other tenant", tokens),
        PLAN.cache_salt("tenant", [99, *tokens[1:]]),
        other_policy.cache_salt("tenant", tokens),
        other_order.cache_salt("tenant", tokens),
    }
    assert len(salts) == 5
