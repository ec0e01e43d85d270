"""The byte coder under the `-deflate` chains: QATzip-compatible gzip members, in software by python-isal."""

from enum import Enum
from typing import Protocol

from isal import igzip_lib

from store.errors import CorruptBlob
from store.member import STREAM_BYTES, check_member, with_sizes
from store.tally import Tally

LEVEL = 1
"""igzip's level 1: 10 times zlib-1's speed at an equal or better ratio (measured in the design's codec page)."""


class Backend(Enum):
    """Which deflate to use: hardware when it answers, hardware or an error, never hardware."""

    AUTO = "auto"
    HARDWARE = "hardware"
    SOFTWARE = "software"


class Deflate(Protocol):
    """A thread-safe coder of streams of at most `STREAM_BYTES`; hardware and software read each other's members."""

    @property
    def backend(self) -> str:
        """Either "hardware" or "software"."""

    @property
    def reason(self) -> str:
        """Why this backend was chosen, for people."""

    @property
    def counters(self) -> Tally:
        """Calls by outcome: hw_calls, sw_calls, busy_fallbacks, ..."""

    def compress(self, data: memoryview) -> bytes:
        """One gzip member holding `data`."""

    def decompress_into(self, member: memoryview, out: memoryview) -> None:
        """Fill `out` exactly. Raises CorruptBlob when the member is damaged or of another size."""


class SoftwareDeflate:
    """Deflate by python-isal; releases the GIL in both directions."""

    backend = "software"

    def __init__(self, reason: str = "software requested") -> None:
        self.reason = reason
        self.counters = Tally()

    def compress(self, data: memoryview) -> bytes:
        """See `Deflate.compress`. Raises ValueError on more than `STREAM_BYTES`."""
        if len(data) > STREAM_BYTES:
            raise ValueError(f"deflate stream: {len(data)} bytes, expected at most {STREAM_BYTES}")
        member = igzip_lib.compress(data, LEVEL, igzip_lib.COMP_GZIP)
        self.counters.add("sw_calls")
        return with_sizes(member, len(data))

    def decompress_into(self, member: memoryview, out: memoryview) -> None:
        """See `Deflate.decompress_into`; never allocates more than `out` holds, plus one byte."""
        check_member(member, len(out))
        decoder = igzip_lib.IgzipDecompressor(igzip_lib.DECOMP_GZIP)
        try:
            raw = decoder.decompress(member, len(out) + 1)
        except igzip_lib.IsalError as error:  # type: ignore[misc]  # the stub declares an instance
            raise CorruptBlob(f"gzip member: {error}") from error
        if len(raw) != len(out) or not decoder.eof or decoder.unused_data:
            raise CorruptBlob(f"gzip member: {len(raw)} bytes decoded, expected {len(out)} to the end of the stream")
        out[:] = raw
        self.counters.add("sw_calls")
