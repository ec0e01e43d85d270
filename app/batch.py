"""Batch: a folder of documents made ready, tens of thousands of them in bounded memory, stopped and resumed at will."""

import asyncio
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tqdm import tqdm

from app.ingest import Ingestor
from cascade.catalog import Catalog
from cascade.changes import SourceFile
from cascade.errors import DocumentError
from cascade.parse import SUPPORTED_SUFFIXES
from cascade.types import Document, Stage

WAITING = 64  # documents read and not yet ready: bounds memory and what a stop leaves half done
_POLL_S = 0.05


@dataclass(frozen=True)
class BatchOptions:
    """Which files, and what to do about those that are known.

    resume: files whose size and time have not changed are not read again. retry_failed: documents that failed before
    get another try, though their file has not changed.
    """

    glob: str = "*"
    recursive: bool = True
    resume: bool = True
    retry_failed: bool = False


@dataclass(frozen=True)
class BatchFile:
    """A file to add, under the name its document will have."""

    path: Path
    name: str


@dataclass(frozen=True)
class Failure:
    """A file that is not ready, and why."""

    path: str
    reason: str


@dataclass(frozen=True)
class BatchSummary:
    """What a run came to.

    Documents, passages and tokens are all that are ready, `raw_bytes` and `stored_bytes` of the chunks that this run
    computed; `unchanged` files were not read again.
    """

    files: int
    unchanged: int
    documents: int
    passages: int
    tokens: int
    raw_bytes: int
    stored_bytes: int
    seconds: float
    failed: tuple[Failure, ...]

    def describe(self) -> str:
        """Return the summary in a few words."""
        ready = f"{self.documents} documents, {self.passages} passages, {self.tokens} tokens ready"
        if not self.raw_bytes:
            return f"{ready}; nothing to compute"
        saved = 1 - self.stored_bytes / self.raw_bytes
        return f"{ready}; computed {self.raw_bytes / 1e6:.1f} MB of KV, stored {saved:.1%} smaller"

    def to_json(self) -> str:
        """Return everything, failures included."""
        return json.dumps(asdict(self), indent=1, ensure_ascii=False)


def find_files(paths: Sequence[Path], options: BatchOptions) -> Iterator[BatchFile]:
    """Files given by name, and those of a supported kind in the folders given, in order; no file twice."""
    seen: set[Path] = set()
    for path in paths:
        for file in [BatchFile(path, path.name)] if path.is_file() else _in_folder(path, options):
            if file.path.resolve() not in seen:
                seen.add(file.path.resolve())
                yield file


def _in_folder(folder: Path, options: BatchOptions) -> Iterator[BatchFile]:
    found = folder.rglob(options.glob) if options.recursive else folder.glob(options.glob)
    for path in sorted(found):
        if path.suffix.lower() in SUPPORTED_SUFFIXES and path.is_file():
            yield BatchFile(path, path.relative_to(folder).as_posix())


class Batch:
    """One run over files, by an ingestor that works."""

    def __init__(self, ingestor: Ingestor, catalog: Catalog, options: BatchOptions) -> None:
        self._ingestor = ingestor
        self._catalog = catalog
        self._options = options
        self._paths: dict[str, str] = {}  # of each document, its file
        self._refused: list[Failure] = []
        self._unchanged = 0

    async def run(self, files: Sequence[BatchFile]) -> BatchSummary:
        """Make every file ready, or failed; a file that fails holds up no other."""
        started = time.perf_counter()
        banked = self._ingestor.banked
        with tqdm(total=len(files), desc="Precomputing documents", unit="document") as bar:
            for file in files:
                await self._room(bar, started)
                await self._add(file)
            await self._room(bar, started, waiting=0)
        saved = self._ingestor.banked - banked
        documents = [each for each in await self._catalog.list(Stage.READY, Stage.FAILED) if each.id in self._paths]
        ready = [document for document in documents if document.stage is Stage.READY]
        return BatchSummary(
            files=len(files),
            unchanged=self._unchanged,
            documents=len(ready),
            passages=sum(document.passages for document in ready),
            tokens=sum(document.tokens for document in ready),
            raw_bytes=saved.raw_bytes,
            stored_bytes=saved.stored_bytes,
            seconds=time.perf_counter() - started,
            failed=(*self._refused, *self._failures(documents)),
        )

    def _failures(self, documents: Sequence[Document]) -> Iterator[Failure]:
        for document in documents:
            if document.stage is Stage.FAILED:
                yield Failure(self._paths[document.id], document.error or "")

    async def _add(self, file: BatchFile) -> None:
        try:
            source = await asyncio.to_thread(_source, file.path)
            document = await self._known(source)
            if document is None:
                content = await asyncio.to_thread(file.path.read_bytes)
                retry = self._options.retry_failed
                document = (await self._ingestor.add(file.name, content, source, retry=retry)).document
        except (DocumentError, OSError) as error:
            self._refused.append(Failure(str(file.path), str(error)))
        else:
            self._paths[document.id] = str(file.path)

    async def _known(self, source: SourceFile) -> Document | None:
        """The document of an unchanged file, unless it is to be tried again."""
        if not self._options.resume:
            return None
        document = await self._catalog.known(source)
        if document is not None and document.stage is Stage.FAILED and self._options.retry_failed:
            return await self._ingestor.retry(document.id)
        self._unchanged += document is not None
        return document

    async def _room(self, bar: "tqdm[None]", started: float, waiting: int = WAITING) -> None:
        """Wait until at most `waiting` documents are, showing how far the run is."""
        while True:
            backlog = self._ingestor.backlog
            bar.n = max(0, len(self._paths) + len(self._refused) - backlog)
            rate = self._ingestor.tokens_done / max(time.perf_counter() - started, 1e-3)
            bar.set_postfix_str(f"{rate:.0f} tokens/s", refresh=False)
            bar.update(0)
            if backlog <= waiting:
                return
            await asyncio.sleep(_POLL_S)


def _source(path: Path) -> SourceFile:
    found = path.stat()
    return SourceFile(str(path.resolve()), found.st_size, found.st_mtime_ns)
