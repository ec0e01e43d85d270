"""Fusion of precomputed KV caches: plans, RoPE re-rotation, recompute policies and the vLLM connector."""
