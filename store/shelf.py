"""Opening chunk files: one chunk in one tier, with every way it can go wrong named."""

from collections.abc import Callable

from store.codec import Codecs
from store.errors import CorruptChunk, TruncatedChunk, UnknownCodec, UnsupportedVersion
from store.keys import ChunkKey
from store.reader import ChunkReader
from store.stats import MissReason
from store.tier import Tier

Observe = Callable[[str, ChunkReader, int, float], None]
"""Told after each decoded layer: tier, reader, decoded bytes, seconds of one thread."""

BAD_FILE = frozenset({MissReason.TRUNCATED, MissReason.BAD_HEADER})
"""Reasons for which a file can never be served to anybody."""


class Shelf:
    """Opens chunks with one set of codecs."""

    def __init__(self, codecs: Codecs, observe: Observe) -> None:
        self._codecs = codecs
        self._observe = observe

    def open(self, tier: Tier, key: ChunkKey, fingerprint: str | None = None) -> ChunkReader | MissReason:
        """A reader of `key` in `tier`, or why there is none; without a `fingerprint` any model's chunk will do."""
        try:
            source = tier.open(key)
            if source is None:
                return MissReason.ABSENT
            reader = ChunkReader(source, self._codecs, lambda *layer: self._observe(tier.name, *layer))
        except (UnsupportedVersion, UnknownCodec):
            return MissReason.UNSUPPORTED
        except TruncatedChunk:
            return MissReason.TRUNCATED
        except CorruptChunk:
            return MissReason.BAD_HEADER
        except OSError:
            return MissReason.IO_ERROR
        if reader.info.key != key:
            return MissReason.BAD_HEADER
        return reader if fingerprint in (None, reader.info.fingerprint) else MissReason.STALE
