"""The byte coder under the `-deflate` chains: QATzip-compatible gzip members, in software by python-isal."""

from collections.abc import Callable
from enum import Enum
from typing import Protocol

import numpy as np
from isal import igzip_lib
from numpy.typing import NDArray

from store.chunk import Spans
from store.codecs.isal_batch import IsalBatch, isal_batch
from store.codecs.streams import Piece, StreamCoder
from store.errors import CorruptBlob, IsalUnavailable
from store.isal_abi import LEVEL
from store.member import STREAM_BYTES, check_member, with_sizes
from store.tally import Tally

Batches = Callable[[], IsalBatch | IsalUnavailable]
"""Gives the batch coder of the process, or why there is none."""


class Backend(Enum):
    """Which deflate to use: hardware when it answers, hardware or an error, never hardware."""

    AUTO = "auto"
    HARDWARE = "hardware"
    SOFTWARE = "software"


class Deflate(StreamCoder, Protocol):
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


class SoftwareDeflate(StreamCoder):
    """Deflate by ISA-L without the GIL: single streams by python-isal, many at once by `store.codecs.isal_batch`.

    What a batch refuses, the one-stream verb decides and names; both write and read the same bytes. Where a process
    cannot have batches, streams go one by one, `reason` says why, and "batch_fallbacks" counts the calls.
    """

    backend = "software"

    def __init__(self, reason: str = "software requested", batches: Batches = isal_batch) -> None:
        self._reason = reason
        self._batches = batches
        self._missing: IsalUnavailable | None = None
        self.counters = Tally()

    @property
    def reason(self) -> str:
        """See `Deflate.reason`."""
        return f"{self._reason}; streams one by one, {self._missing}" if self._missing else self._reason

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

    def compress_many(self, source: NDArray[np.uint8], spans: Spans) -> list[Piece]:
        """See `StreamCoder.compress_many`."""
        batch = self._batch()
        if batch is None:
            return super().compress_many(source, spans)
        members = batch.compress(source, spans)
        self.counters.add("sw_calls", len(members) - members.count(None))
        pairs = zip(members, spans, strict=True)
        return [self.compress(source.data[slice(*span)]) if member is None else member for member, span in pairs]

    def decompress_many(self, source: NDArray[np.uint8], spans: Spans, out: NDArray[np.uint8], targets: Spans) -> None:
        """See `StreamCoder.decompress_many`."""
        batch = self._batch()
        if batch is None:
            super().decompress_many(source, spans, out, targets)
            return
        done = batch.decompress(source, spans, out, targets)
        self.counters.add("sw_calls", int(done.sum()))
        if not done.all():
            super().decompress_many(source, spans[~done], out, targets[~done])

    def _batch(self) -> IsalBatch | None:
        batch = self._batches()
        if isinstance(batch, IsalBatch):
            return batch
        self._missing = batch
        self.counters.add("batch_fallbacks")
        return None
