"""Named counters that many threads add to."""

import threading
from collections import defaultdict


class Tally:
    """Counters with exact addition from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: defaultdict[str, float] = defaultdict(float)

    def add(self, name: str, amount: float = 1) -> None:
        """Add `amount` to the counter `name`."""
        with self._lock:
            self._counts[name] += amount

    def __getitem__(self, name: str) -> float:
        with self._lock:
            return self._counts.get(name, 0)

    def take(self) -> dict[str, float]:
        """All counters, which begin anew."""
        with self._lock:
            taken, self._counts = dict(self._counts), defaultdict(float)
        return taken

    def snapshot(self) -> dict[str, float]:
        """Copy of all counters."""
        with self._lock:
            return dict(self._counts)
