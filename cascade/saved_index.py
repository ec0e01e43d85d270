"""The index on disk, so that a start does not read every passage again. The catalogue stays the truth."""

import logging
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from cascade.dense import EXACT_ROWS
from cascade.hybrid import HybridIndex
from cascade.packing import unpack

logger = logging.getLogger(__name__)

FORMAT = 1  # to be raised when the arrays, or what counts as a term, change


@dataclass(frozen=True)
class Indexed:
    """An index, and how far it follows the catalogue: the revision at which each of its documents became ready."""

    index: HybridIndex
    known: Mapping[str, int]
    revision: int

    def holds(self, ready: Mapping[str, int]) -> bool:
        """Whether all documents that were ready by `revision` are indexed; not so for another catalogue's index."""
        return all(self.known.get(id) == at for id, at in ready.items() if at <= self.revision)

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything as arrays."""
        arrays = self.index.state()
        known = [self.known.get(id, -1) for id in unpack(arrays["documents"])]
        return arrays | {"known": np.array(known, dtype=np.int64), "version": np.array([FORMAT, self.revision])}


def save_index(indexed: Indexed, path: Path) -> None:
    """Replace the file, whole or not at all. Nothing is done while another process is saving.

    Raises OSError, e.g. on a full disk; the file is then as it was.
    """
    arrays = indexed.state()
    scratch = path.with_name(f"{path.name}.part")
    try:
        with FileLock(path.with_name(f"{path.name}.lock"), timeout=0):
            with scratch.open("wb") as file:
                np.savez(file, allow_pickle=False, **arrays)
                file.flush()
                os.fsync(file.fileno())
            os.replace(scratch, path)
    except Timeout:
        logger.info("another process is saving the index")


def load_index(path: Path, exact_rows: int = EXACT_ROWS) -> Indexed | None:
    """What was saved; None if nothing was, by another version of the program, or the file is damaged."""
    try:
        with np.load(path, allow_pickle=False) as file:
            version, revision = file["version"].tolist()
            if version != FORMAT:
                return None
            arrays = {name: file[name] for name in file.files}  # every member's checksum is verified
        index = HybridIndex.restored(arrays, exact_rows)
        return Indexed(index, dict(zip(index.documents, arrays["known"].tolist(), strict=True)), revision)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        logger.warning("the saved index cannot be used (%s); it is made anew from the catalogue", error)
        return None
