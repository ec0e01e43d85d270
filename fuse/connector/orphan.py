"""Ending with the process that started this one: vLLM's engine core lives on, model and all, when that is killed."""

import multiprocessing
import os
import threading


def end_with_parent() -> None:
    """End this process once its parent is gone; nothing in a process that multiprocessing did not start."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, name="kvfuse-parent", daemon=True).start()
