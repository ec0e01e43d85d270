"""A batch in a process of its own, to be killed: everything is real but the engine and the embedding model.

Arguments: home, folder of documents, seconds that a passage takes. Every chunk computed is one line in home/computed.
"""

import asyncio
import hashlib
import sys
import zlib
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from app.batch import Batch, BatchOptions, BatchSummary, find_files
from app.engine_values import Saved
from app.ingest import Ingestor
from cascade.catalog import Catalog
from cascade.passages import PassageMaker
from cascade.token_vectors import Embedding, TokenVectors
from cascade.types import Passage


class SlowBank:
    """Keeps chunks as empty files, after the time that computing them takes."""

    def __init__(self, home: Path, seconds: float) -> None:
        self._chunks, self._log, self._seconds = home / "chunks", home / "computed", seconds
        self._chunks.mkdir(exist_ok=True)
        self.banked = Saved(0, 0)

    async def store_missing(self, passages: Sequence[Passage], done: Callable[[], object]) -> None:
        for passage in passages:
            if not (chunk := self._chunks / passage.chunk_key).exists():
                await asyncio.sleep(self._seconds)
                chunk.touch()
                with self._log.open("a") as log:
                    log.write(f"{passage.chunk_key}\n")
                self.banked += Saved(100, 60)
            done()

    async def settled(self, keys: Collection[str]) -> None:
        """Nothing is under way."""

    async def stop(self) -> None:
        """Nothing to stop."""


class Store:
    def delete(self, key: str) -> bool:
        raise AssertionError(f"nothing is deleted here, not {key}")


class Words:
    """Counts words as tokens."""

    def encode(self, text: str) -> list[int]:
        return [zlib.crc32(word.encode()) for word in text.split()]

    def count(self, text: str) -> int:
        return len(text.split())

    def clip(self, text: str, limit: int) -> str:
        return text


class NoEmbedder:
    def embed(self, texts: Sequence[str]) -> list[Embedding]:
        vector = np.ones((1, 4), dtype=np.float32) / 2
        return [Embedding(vector[0], TokenVectors.of(vector)) for _ in texts]


async def run(home: Path, folder: Path, seconds: float, options: BatchOptions | None = None) -> BatchSummary:
    options = options or BatchOptions()
    catalog = await Catalog.open(home / "catalog.sqlite", "profile")
    maker: Any = PassageMaker(Words(), lambda ids: hashlib.sha256(repr(ids).encode()).hexdigest())  # type: ignore[arg-type]
    bank: Any = SlowBank(home, seconds)
    parts: Any = (bank, catalog, Store(), NoEmbedder(), maker)
    ingestor = Ingestor(*parts, 1 << 20)
    await ingestor.start()
    try:
        return await Batch(ingestor, catalog, options).run(list(find_files([folder], options)))
    finally:
        await ingestor.stop()
        await catalog.close()


if __name__ == "__main__":
    print(asyncio.run(run(Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]))).to_json())
