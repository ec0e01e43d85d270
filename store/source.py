"""The bytes of one chunk file, read by ranges: a map of a local file, or requests to a remote one."""

from typing import Protocol


class Source(Protocol):
    """A file that stays readable, unchanged, for as long as this object lives; thread-safe."""

    @property
    def size(self) -> int:
        """Bytes of the file."""

    def read(self, start: int, end: int) -> memoryview:
        """Exactly the bytes `start <= i < end` of the file. Raises OSError when the medium does not give them."""


class BytesSource:
    """A file that is already addressable, as a read-only map is; reading costs nothing."""

    def __init__(self, data: memoryview) -> None:
        self._data = data

    @property
    def size(self) -> int:
        """See `Source.size`."""
        return len(self._data)

    def read(self, start: int, end: int) -> memoryview:
        """See `Source.read`."""
        return self._data[start:end]
