"""Threads of the worker process."""

import os


def use_every_core() -> None:
    """Undo the worker thread's pinning to its own cores (vLLM's CPU backend), which new threads inherit."""
    os.sched_setaffinity(0, range(os.cpu_count() or 1))
