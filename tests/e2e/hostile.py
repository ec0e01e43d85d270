"""`kv_transfer_params` as a stranger may send them: nonsense, and plans and saves that are nearly right."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from fuse.plan import PARAMS_KEY, SaveOrder, SaveStage
from fuse.policies import POLICIES
from tests.e2e.tiny import PASSAGES, Asked, Reply, Tiny

_HASHES = st.sampled_from(["a" * 64, "", "../../etc/passwd", "A" * 64, "ä" * 64])
_NUMBERS = st.integers(-3, 200) | st.sampled_from([math.inf, -math.inf, math.nan, 1e300, 0.3, 2**40, True, "7", None])
_LEAVES = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats() | st.text(max_size=6)
JSON = st.recursive(
    _LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
)
OURS = ("op", "tag", "fingerprint", "segments", "policy", "key", "start", "end", "predecessor", "stage")

SEGMENTS = st.lists(st.tuples(_NUMBERS, st.none() | _HASHES).map(list), max_size=5)
POLICY = st.fixed_dictionaries(
    {"name": st.sampled_from([*POLICIES, "guess"])}, optional={"share": _NUMBERS, "tokens": _NUMBERS, "gap": _NUMBERS}
)
CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "fingerprint": _HASHES,
        "segments": SEGMENTS,
        "policy": POLICY,
        "key": _HASHES,
        "start": _NUMBERS,
        "end": _NUMBERS,
        "predecessor": _HASHES,
        "stage": st.sampled_from([stage.value for stage in SaveStage]),
    },
)
PARAMS = (
    st.dictionaries(st.sampled_from([PARAMS_KEY, "do_remote_prefill"]), JSON)
    | st.dictionaries(st.sampled_from(OURS), JSON).map(lambda ours: {PARAMS_KEY: ours})
    | st.builds(lambda op, changes: {"as": op, **changes}, st.sampled_from(["fuse", "save"]), CHANGES)
)
"""Whole parameters, or `{"as": operation}` and what is to be changed in a right one."""


@dataclasses.dataclass(frozen=True)
class _Raw:
    """Stands where the engine expects a plan."""

    params: Mapping[str, Any]

    def to_params(self, tag: str = "") -> Mapping[str, Any]:
        return self.params


async def send_raw(tiny: Tiny, asked: Asked, params: Mapping[str, Any], salt: str | None = None) -> Reply:
    """Ask with `params` instead of the question's own plan."""
    if operation := params.get("as"):
        changes = {name: value for name, value in params.items() if name != "as"}
        params = {PARAMS_KEY: {**_right(tiny, asked, operation), **changes}}
    plan: Any = _Raw(params)
    return await tiny.send(tiny.prompt(asked), plan, salt)


def _right(tiny: Tiny, asked: Asked, operation: str) -> dict[str, Any]:
    plan = tiny.plan(asked)
    assert plan is not None
    if operation == "fuse":
        return dict(plan.to_params()[PARAMS_KEY])
    head = len(tiny.language.scheme.head)
    order = SaveOrder(tiny.key(PASSAGES[0], "hostile"), tiny.language.fingerprint, head, head + 20)
    return dict(order.to_params()[PARAMS_KEY])
