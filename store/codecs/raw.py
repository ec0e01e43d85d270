"""The chain `raw`: payloads are the values themselves."""

import numpy as np
from numpy.typing import NDArray

from store.chunk import Bits, Spans
from store.errors import CorruptChunk


class Raw:
    """No compression. Its sections all take the "payload as long as the values" form of FORMAT.md."""

    base_bytes = 0

    def bases(self, plane: Bits) -> NDArray[np.uint8]:
        """No bases."""
        return np.empty((plane.shape[0], 0), np.uint8)

    def encode(self, sections: Bits, bases: NDArray[np.uint8], keys: int) -> list[bytes]:
        """The bytes of each section."""
        return [section.tobytes() for section in sections]

    def decode(self, source: NDArray[np.uint8], spans: Spans, bases: NDArray[np.uint8], keys: int, out: Bits) -> None:
        """Never right: the reader copies payloads of raw length itself."""
        start, end = spans[0].tolist()
        raise CorruptChunk(f"raw payload: {end - start} bytes, expected {out[0].nbytes}")
