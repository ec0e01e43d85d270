"""The vLLM side of fusion: the only place, with `app/engine.py`, that touches vLLM."""
