"""Everything the store raises. Each error is also the builtin it resembles, so callers may catch either."""


class StoreError(Exception):
    """Base of every error of this package."""


class CorruptChunk(StoreError, ValueError):
    """Bytes of a chunk file that cannot be what was written: bad header, bad section, wrong checksum."""


class TruncatedChunk(CorruptChunk):
    """A chunk file whose length differs from the length its header states."""


class ChunkUnavailable(StoreError, OSError):
    """A chunk whose medium stopped giving its bytes; nothing says that they are bad."""


class UnsupportedVersion(StoreError, ValueError):
    """A chunk file of a format version this release does not read."""


class UnknownCodec(StoreError, LookupError):
    """A codec chain name that is not registered, or that does not carry the given dtype."""


class CorruptBlob(StoreError, ValueError):
    """A deflate member that is damaged or not of the expected size."""


class QatUnavailable(StoreError, RuntimeError):
    """QuickAssist hardware was required and does not answer."""


class IsalUnavailable(StoreError, RuntimeError):
    """ISA-L's C functions cannot be called as this package knows them; python-isal itself still works."""


class QatError(StoreError, RuntimeError):
    """QATzip returned a code that means neither success, nor busy, nor damaged data."""


class TierFull(StoreError, OSError):
    """A tier has no room for a chunk, by its own capacity or by the file system's."""


class StoreFull(StoreError, OSError):
    """No tier could take a chunk."""
