"""A load's way into the paged cache: layers are written in forward order, when they are ready or when one is due."""

import time
from contextlib import AbstractContextManager

from fuse.connector.loader import Load
from fuse.connector.model import PagedModel


class Landing:
    """Writes one load's layers. Used on the worker's thread.

    write_s: seconds spent on writing. load_s: seconds from the load's start to its last byte in the paged cache.
    """

    def __init__(self, load: Load, model: PagedModel) -> None:
        self.load = load
        self.write_s = 0.0
        self.load_s = 0.0
        self._model = model
        self._layers = list(model.layers.values())
        self._skip = int((load.positions < load.job.start).sum())
        self._slots = model.slots(load.job.block_ids, load.positions[self._skip :])
        self._next = 0

    @property
    def landed(self) -> bool:
        """Whether every layer is in the cache, and the chunk files are released."""
        return self._next == len(self._layers)

    def seconds_left(self) -> float:
        """Estimate when the last layer will be ready, from how fast they have come so far."""
        ready = sum(layer.done() for layer in self.load.layers)
        elapsed = time.perf_counter() - self.load.started
        return elapsed * (len(self._layers) - ready) / ready if ready else float("inf")

    def advance(self) -> None:
        """Write the layers that are ready."""
        while not self.landed and self.load.layers[self._next].done():
            self._write()

    def reach(self, layer: int) -> None:
        """Write the layers up to this one, waiting for those that are not ready."""
        while self._next <= layer:
            self._write()

    def awaited(self) -> AbstractContextManager[None]:
        """Let passes reach each layer that is not written yet before they use it."""
        return self._model.before_layers(self._next, self.reach)

    def finish(self) -> None:
        """Write all that is missing, waiting for it."""
        self.reach(len(self._layers) - 1)

    def close(self) -> None:
        """Give up what has not been written; waits for layers that are being prepared."""
        self.load.close()

    def _write(self) -> None:
        kv = self.load.layers[self._next].result()
        if kv is not None and len(self._slots):
            started = time.perf_counter()
            keys, values = kv
            self._model.write(self._layers[self._next], keys[self._skip :], values[self._skip :], self._slots)
            self.write_s += time.perf_counter() - started
        self._next += 1
        if self.landed:
            self.load.close()
            self.load_s = time.perf_counter() - self.load.started
