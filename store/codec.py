"""Codec chains: how one section's values become bytes, by name.

A section is the K or the V of one head over one token block: `[tokens, head_dim]` unsigned integers. Its stored form
is a payload. The chain's name is written in the chunk's header, so a changed setting never misreads an old file.
"""

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from store.chunk import Bits, KVDType, Spans
from store.codecs.planes import BytePlanes
from store.codecs.raw import Raw
from store.codecs.streams import StreamCoder
from store.codecs.zstd import Zstd
from store.errors import UnknownCodec


class Codec(Protocol):
    """Turns the sections of several heads into payloads and back; thread-safe, GIL released in the heavy parts."""

    @property
    def base_bytes(self) -> int:
        """Bytes of per-channel bases: 1 when the chain keeps them, else 0."""

    def bases(self, plane: Bits) -> NDArray[np.uint8]:
        """Bases of one layer's heads, `[heads, head_dim]`, from contiguous `[heads, tokens, head_dim]`."""

    def encode(self, sections: Bits, bases: NDArray[np.uint8], keys: int) -> list[bytes]:
        """One payload per section of the contiguous `[sections, tokens, head_dim]`: first `keys` of K, then those of V.

        `bases` is `[sections, head_dim]`, as the sections' heads have them.
        """

    def decode(self, source: NDArray[np.uint8], spans: Spans, bases: NDArray[np.uint8], keys: int, out: Bits) -> None:
        """Inverse of `encode` into the contiguous `out`; `spans` has every section's payload in `source`.

        Raises CorruptChunk or CorruptBlob when a payload cannot be one.
        """


def _a4(coder: StreamCoder, channel_major: tuple[bool, bool]) -> Codec:
    # Imported on first use: numba must not be loaded by whoever only configures a store (vLLM's CPU worker inspects
    # every loaded module when it starts, and fails on llvmlite's).
    from store.codecs.a4 import A4

    return A4(coder, channel_major)


def _a5(coder: StreamCoder) -> Codec:
    from store.codecs.a5 import A5

    return A5(coder)


_BF16 = frozenset({KVDType.BF16})
_ANY = frozenset(KVDType)

_CHAINS: dict[str, tuple[frozenset[KVDType], Callable[[StreamCoder], Codec]]] = {
    "raw": (_ANY, lambda deflate: Raw()),
    "a4-deflate": (_BF16, lambda deflate: _a4(deflate, channel_major=(True, False))),
    "a4-zstd": (_BF16, lambda deflate: _a4(Zstd(), channel_major=(False, False))),
    "a5-zstd": (_BF16, lambda deflate: _a5(Zstd())),
    "planes-deflate": (_ANY, BytePlanes),
}

DEFAULT_CHAIN = "a4-deflate"
WIDE_CHAIN = "planes-deflate"


def chain_names() -> tuple[str, ...]:
    """Names of all chains."""
    return tuple(_CHAINS)


def chain_for(setting: str, dtype: KVDType) -> str:
    """The chain that a store set to `setting` writes for `dtype`: `planes-deflate` where the set one has no form.

    Raises UnknownCodec on an unknown name.
    """
    return setting if dtype in _entry(setting)[0] else WIDE_CHAIN


class Codecs:
    """The chains over one byte coder, built when first used."""

    def __init__(self, deflate: StreamCoder) -> None:
        self._deflate = deflate
        self._built: dict[str, Codec] = {}

    def get(self, name: str, dtype: KVDType) -> Codec:
        """The chain `name`. Raises UnknownCodec when it does not exist or does not carry `dtype`."""
        dtypes, build = _entry(name)
        if dtype not in dtypes:
            raise UnknownCodec(f"codec {name}: does not carry {dtype.value}")
        if name not in self._built:
            self._built[name] = build(self._deflate)
        return self._built[name]


def _entry(name: str) -> tuple[frozenset[KVDType], Callable[[StreamCoder], Codec]]:
    try:
        return _CHAINS[name]
    except KeyError:
        raise UnknownCodec(f"codec {name!r}: unknown, expected one of {', '.join(_CHAINS)}") from None
