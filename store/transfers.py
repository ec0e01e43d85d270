"""Work in the background: promotions, demotions, flushing the index."""

import logging
import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor, wait

from store.tally import Tally

logger = logging.getLogger(__name__)

MOST_WAITING = 1024
"""Beyond this, work is refused and counted: it is an optimisation, and whoever asks goes on without it."""


class Transfers:
    """A few threads; work of a name that is under way already is not started again."""

    def __init__(self, threads: int, tally: Tally) -> None:
        self._pool = ThreadPoolExecutor(threads, "kvfuse-transfer")
        self._tally = tally
        self._lock = threading.Lock()
        self._running: dict[Hashable, Future[None]] = {}

    def start(self, name: Hashable, work: Callable[[], object]) -> bool:
        """Do `work` soon; False when it is under way or too much is waiting."""
        with self._lock:
            if name in self._running:
                return False
            if len(self._running) >= MOST_WAITING:
                self._tally.add("transfers_refused")
                return False
            try:
                self._running[name] = self._pool.submit(self._run, name, work)
            except RuntimeError:  # closed
                return False
            return True

    def settle(self) -> None:
        """Wait until nothing is under way, neither what runs now nor what it starts."""
        while True:
            with self._lock:
                running = list(self._running.values())
            if not running:
                return
            wait(running)

    def close(self) -> None:
        """Drop what has not begun, and wait for the rest."""
        self._pool.shutdown(cancel_futures=True)
        self._running.clear()

    def _run(self, name: Hashable, work: Callable[[], object]) -> None:
        try:
            work()
        except Exception:
            logger.exception("transfer %s failed", name)
            self._tally.add("transfer_errors")
        finally:
            with self._lock:
                self._running.pop(name, None)


class Every:
    """Calls `work` every `seconds` in a thread of its own until closed; what it raises is logged."""

    def __init__(self, seconds: float, work: Callable[[], object]) -> None:
        self._seconds = seconds
        self._work = work
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kvfuse-sweep", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread; waits for a call under way."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(self._seconds):
            try:
                self._work()
            except Exception:
                logger.exception("periodic work failed")
