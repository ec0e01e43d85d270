"""EngineConfig: what is left open is vLLM's choice, except on a CPU."""

from pathlib import Path

from app.engine_values import EngineConfig

OPEN = EngineConfig(Path("model"), "bfloat16", {})


def test_a_cpu_runs_few_requests_uncompiled_over_a_small_cache() -> None:
    arguments = OPEN.on(cpu=True).to_vllm()
    assert (arguments["max_num_seqs"], arguments["kv_cache_memory_bytes"]) == (16, 2 * 2**30)
    assert arguments["enforce_eager"] is True


def test_what_was_set_stays_on_a_cpu() -> None:
    config = EngineConfig(Path("model"), "bfloat16", {}, max_num_seqs=3, kv_cache_gib=0.5, enforce_eager=False)
    assert config.on(cpu=True) == config


def test_elsewhere_the_choice_is_left_to_vllm() -> None:
    left = OPEN.on(cpu=False).to_vllm()
    assert not {"max_num_seqs", "kv_cache_memory_bytes", "enforce_eager"} & left.keys()
