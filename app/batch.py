"""Batch: a folder of documents made ready, tens of thousands of them in bounded memory, stopped and resumed at will."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tqdm import tqdm

from app.engine_values import EngineError
from app.ingest import Ingestor
from cascade.catalog import Catalog
from cascade.changes import SourceFile
from cascade.errors import DocumentError
from cascade.parse import SUPPORTED_SUFFIXES
from cascade.types import Document, Stage

WAITING = 64  # documents read and not yet ready: bounds memory and what a stop leaves half done
_POLL_S = 0.05
_BAR = "{desc}: {n_fmt}/{total_fmt} documents |{bar:20}| {elapsed}{postfix}"


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

    def source(self) -> SourceFile:
        """What tells whether it has changed; raises OSError."""
        found = self.path.stat()
        return SourceFile(str(self.path.resolve()), found.st_size, found.st_mtime_ns)


@dataclass(frozen=True)
class Failure:
    """A file that is not ready, and why."""

    path: str
    reason: str


@dataclass(frozen=True)
class BatchSummary:
    """What a run came to.

    Documents, passages and tokens are all that are ready, `raw_bytes` and `stored_bytes` of the chunks that this run
    computed; `unchanged` files were not read again. `prefill_s` is what the engine, at the speed it has shown, would
    take to read all that is ready once: it is banked.
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
    prefill_s: float = 0.0

    def describe(self) -> str:
        """Return the summary in a few words."""
        banked = f" ({self.prefill_s:.0f} s of prefill)" if self.prefill_s else ""
        ready = f"{self.documents} documents, {self.passages} passages, {self.tokens} tokens ready{banked}"
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


class Pace:
    """How fast a run is, and when it will end: files weigh what they hold, known ones nothing."""

    def __init__(self, total_bytes: int, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._started = clock()
        self._ahead = total_bytes
        self._new_bytes = self._new_files = 0

    def seen(self, size: int, new: bool) -> None:
        """Count a file of `size` bytes that was added, or that was known."""
        self._ahead -= size
        if new:
            self._new_bytes += size
            self._new_files += 1

    def left_s(self, backlog: int) -> float | None:
        """Seconds to go with `backlog` of the added files still under way; None before the first one is done."""
        done = self._new_bytes * (1 - backlog / max(self._new_files, 1))
        if done <= 0:
            return None
        return (self._ahead + self._new_bytes - done) / done * (self._clock() - self._started)

    def describe(self, tokens: int, backlog: int) -> str:
        """Tokens a second, and the time to go."""
        rate = f"{tokens / max(self._clock() - self._started, 1e-3):.0f} tokens/s"
        left = self.left_s(backlog)
        return rate if left is None else f"{rate}, {tqdm.format_interval(left)} to go"


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
        pace = Pace(sum(map(_size, files)))
        with tqdm(total=len(files), desc="Precomputing", unit="document", bar_format=_BAR) as bar:
            for file in files:
                await self._room(bar, pace)
                pace.seen(_size(file), new=await self._add(file))
            await self._room(bar, pace, waiting=0)
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

    async def _add(self, file: BatchFile) -> bool:
        """Add a file, unless it is known; whether that means work. A known one gets back what the store has lost."""
        try:
            source = await asyncio.to_thread(file.source)
            document = await self._known(source)
            new = document is None
            if document is None:
                content = await asyncio.to_thread(file.path.read_bytes)
                retry = self._options.retry_failed
                document = (await self._ingestor.add(file.name, content, source, retry=retry)).document
            if document.stage is Stage.READY:
                await self._ingestor.complete(document.id)
        except (DocumentError, EngineError, OSError) as error:
            self._refused.append(Failure(str(file.path), str(error)))
            return False
        self._paths[document.id] = str(file.path)
        return new

    async def _known(self, source: SourceFile) -> Document | None:
        """The document of an unchanged file, unless it is to be tried again."""
        if not self._options.resume:
            return None
        document = await self._catalog.known(source)
        if document is not None and document.stage is Stage.FAILED and self._options.retry_failed:
            return await self._ingestor.retry(document.id)
        self._unchanged += document is not None
        return document

    async def _room(self, bar: "tqdm[None]", pace: Pace, waiting: int = WAITING) -> None:
        """Wait until at most `waiting` documents are, showing how far the run is."""
        while True:
            backlog = self._ingestor.backlog
            bar.n = max(0, len(self._paths) + len(self._refused) - backlog)
            bar.set_postfix_str(pace.describe(self._ingestor.tokens_done, backlog), refresh=False)
            bar.update(0)
            if backlog <= waiting:
                return
            await asyncio.sleep(_POLL_S)


def _size(file: BatchFile) -> int:
    try:
        return file.path.stat().st_size
    except OSError:  # which adding the file reports
        return 0
