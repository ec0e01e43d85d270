"""The gate: each model proves itself before it is served fused, and what cannot be fused says why.

Models whose engine does not start at all with a connector on this build have nothing to gate and are not listed:
hybrid SSM models (vLLM refuses them without its hybrid cache manager), and MLA (no CPU backend). M-RoPE is refused by
its flag alone: vLLM serves it for multimodal models only.
"""

import multiprocessing
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.gate import Examination, examine
from tests.e2e.inline import run_once
from tests.e2e.models import TinyModel

pytestmark = pytest.mark.e2e

ROUNDING = 0.02
"""bf16 keys and sines, rounded once more by the re-rotation."""

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 256,
}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 512}
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0] * 16,
    "long_factor": [2.0] * 16,
    "original_max_position_embeddings": 512,
}

ACCEPTED = [
    TinyModel("llama", "llama"),
    TinyModel("llama3", "llama", {"rope_parameters": LLAMA3}),
    TinyModel("yarn", "llama", {"rope_parameters": YARN}),
    TinyModel("qwen2", "qwen2"),
    TinyModel("qwen3", "qwen3"),
    TinyModel("mistral", "mistral", {"sliding_window": None}),
    TinyModel("phi", "phi", {"partial_rotary_factor": 0.5}),
    TinyModel("gpt-neox", "gpt_neox", {"rotary_pct": 0.5}),
    TinyModel("gpt-j", "gptj", {"rotary_dim": 16}, neox=False),
]
LOCAL = [
    TinyModel("local-neox", "llama", local=True),
    TinyModel("local-gpt-j", "cohere", {"tie_word_embeddings": True, "logit_scale": 2.0}, neox=False, local=True),
]
REFUSED = [
    (TinyModel("gemma3", "gemma3_text", {"sliding_window": 64}), "sliding window of 64 tokens"),
    (TinyModel("mistral-window", "mistral", {"sliding_window": 64}), "sliding window of 64 tokens"),
    (TinyModel("opt", "opt", {"ffn_dim": 192, "word_embed_proj_dim": 128}), "no rotary embedding"),
    (TinyModel("bloom", "bloom", {"tie_word_embeddings": True}), "ALiBi"),
    (TinyModel("no-rope-layers", "smollm3", {"no_rope_layers": [1, 0]}), r"keys of layer .*\.1\..* do not turn"),
    (TinyModel("dynamic-ntk", "llama", {"rope_parameters": DYNAMIC}), "DynamicNTK.* is not a static table"),
    (TinyModel("longrope", "phi3", {"rope_parameters": LONGROPE}), "LongRoPE.* is not a static table"),
    (TinyModel("fp8-cache", "llama", engine={"kv_cache_dtype": "fp8"}), "not plain .* quantised"),
    (TinyModel("lora", "llama", engine={"enable_lora": True}), "does not support LoRA"),
]


@pytest.fixture(scope="module")
def examined(model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[TinyModel], Examination]:
    """Examine a model in a process of its own, forked from one that has imported vLLM and started nothing yet."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["vllm.entrypoints.llm", "vllm.v1.engine.llm_engine", "transformers.modeling_utils"])

    def run(tiny: TinyModel) -> Examination:
        return run_once(examine, tiny, tmp_path_factory.mktemp(tiny.name), model_dir)

    return run


@pytest.mark.parametrize("tiny", ACCEPTED, ids=lambda tiny: tiny.name)
def test_a_model_with_plain_rotary_attention_is_fused(
    examined: Callable[[TinyModel], Examination], tiny: TinyModel
) -> None:
    found = examined(tiny)
    assert found.refusal == ""
    assert found.check.passed, found.check
    assert found.check.control > 3 * max(found.check.exact_reuse, found.check.full_recompute)
    assert found.turned < ROUNDING < 10 * ROUNDING < found.unturned
    assert found.misplaced > ROUNDING
    assert found.tokens == 4


@pytest.mark.parametrize("tiny", LOCAL, ids=lambda tiny: tiny.name)
def test_without_context_in_the_keys_moving_a_chunk_is_exact(
    examined: Callable[[TinyModel], Examination], tiny: TinyModel
) -> None:
    """Nothing is recomputed: what is left of the difference to an ordinary prefill is what re-rotation adds."""
    found = examined(tiny)
    assert found.moved < 0.1
    assert found.misplaced > 3 * found.moved


@pytest.mark.parametrize(("tiny", "reason"), REFUSED, ids=[tiny.name for tiny, _ in REFUSED])
def test_another_kind_of_attention_is_refused_and_served(
    examined: Callable[[TinyModel], Examination], tiny: TinyModel, reason: str
) -> None:
    found = examined(tiny)
    assert not found.check.passed
    assert found.check.reason == found.refusal
    assert re.search(reason, found.refusal), found.refusal
    assert found.tokens == 4
