"""Texts and lists of unequal length as flat arrays."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray


def pack(lines: Iterable[str]) -> NDArray[np.uint8]:
    """Texts without line feeds as one array of UTF-8."""
    return np.frombuffer("\n".join(lines).encode(), dtype=np.uint8)


def unpack(packed: NDArray[np.uint8]) -> list[str]:
    """What `pack` was given, if it was anything."""
    return packed.tobytes().decode().split("\n") if len(packed) else []


def pieces(values: NDArray[Any], sizes: NDArray[np.int64]) -> list[NDArray[Any]]:
    """Views of `values`, one after the other, of these sizes."""
    ends = np.cumsum(sizes)
    return [values[start:end] for start, end in zip((ends - sizes).tolist(), ends.tolist(), strict=True)]
