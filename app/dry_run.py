"""What a batch would do, without an engine and without changing anything."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum

from sqlalchemy.exc import OperationalError
from tqdm import tqdm

from app.batch import BatchFile, BatchOptions
from app.config import Settings
from app.language import Language
from app.models import prepare_models
from app.profile import passage_maker, profile_of
from cascade.catalog import Catalog
from cascade.errors import DocumentError, ProfileChanged
from cascade.parse import check_file, parse_document
from cascade.passages import PassageMaker
from cascade.types import Document, Passage, SourceText, Stage
from store.keys import ChunkKey
from store.tiered import TieredStore


class Action(StrEnum):
    """What would become of a file."""

    ADD = "add"
    CHANGE = "change"
    RESUME = "resume"  # added already, not yet ready
    RESTORE = "restore"  # ready, but the store has lost some of its chunks
    SKIP = "skip"
    KNOWN_FAILURE = "known failure"
    REFUSE = "refuse"


@dataclass(frozen=True)
class PlannedFile:
    """A file, its passages and their tokens; `passages_missing` and `tokens_missing` have no stored KV yet."""

    path: str
    action: Action
    reason: str = ""
    passages: int = 0
    tokens: int = 0
    passages_missing: int = 0
    tokens_missing: int = 0


@dataclass(frozen=True)
class Plan:
    """Every file; `seconds` is an estimate of the engine's work, by the prefill speed it has shown."""

    files: tuple[PlannedFile, ...]
    seconds: float

    def describe(self) -> str:
        """Return one line a file that is not skipped, and the sums."""
        lines = [_line(file) for file in self.files if file.action is not Action.SKIP]
        counts = Counter(file.action for file in self.files)
        passages, tokens = (
            sum(getattr(file, f"{kind}_missing") for file in self.files) for kind in ("passages", "tokens")
        )
        sums = ", ".join(f"{counts[action]} {action}" for action in Action if counts[action])
        work = f"to compute: {passages} passages, {tokens} tokens, about {self.seconds:.0f} s"
        return "\n".join([*lines, f"{len(self.files)} files: {sums}", work])

    def to_json(self) -> str:
        """Return everything."""
        return json.dumps(asdict(self), indent=1, ensure_ascii=False)


async def plan_batch(settings: Settings, files: Sequence[BatchFile], options: BatchOptions) -> Plan:
    """Look at every file; those that would be added are parsed and cut into passages, which takes its time."""
    model = settings.model or prepare_models(settings.home).llm
    language = Language.load(model, settings.dtype, settings.ingest_passes, cache_dir=settings.home)
    catalog = await _catalog(settings, language)
    with TieredStore(settings.store_config()) as store:
        planner = _Planner(catalog, passage_maker(settings, language), store, options, settings.max_upload_bytes)
        planned = [await planner.plan(file) for file in tqdm(files, desc="Looking", unit="document")]
        speed = min(estimate.prefill_tokens_per_s for estimate in store.stats().break_even.values())
    if catalog is not None:
        await catalog.close()
    work = settings.ingest_passes * sum(file.tokens_missing for file in planned)
    return Plan(tuple(planned), work / speed)


async def _catalog(settings: Settings, language: Language) -> Catalog | None:
    """The catalogue, if there is one that a run would go on with."""
    catalog = Catalog.look(settings.home / "catalog.sqlite", profile_of(settings, language))
    try:
        await catalog.revision()
        return catalog
    except (OperationalError, ProfileChanged):
        await catalog.close()
        return None


class _Planner:
    def __init__(
        self,
        catalog: Catalog | None,
        maker: PassageMaker,
        store: TieredStore,
        options: BatchOptions,
        max_bytes: int,
    ) -> None:
        self._catalog = catalog
        self._maker = maker
        self._store = store
        self._options = options
        self._max_bytes = max_bytes

    async def plan(self, file: BatchFile) -> PlannedFile:
        try:
            source = file.source()
            if self._catalog is not None and self._options.resume and (found := await self._catalog.known(source)):
                return await self._known(file, found)
            content = file.path.read_bytes()
            if self._catalog is not None and (found := await self._catalog.find(content)):
                return await self._known(file, found)
            old = await self._catalog.held(source.path) if self._catalog is not None else None
            passages = self._passages(file, content, old, await self._stored_passages(old))
        except (DocumentError, OSError) as error:
            return PlannedFile(str(file.path), Action.REFUSE, str(error))
        return self._counted(PlannedFile(str(file.path), Action.CHANGE if old else Action.ADD), passages)

    async def _known(self, file: BatchFile, document: Document) -> PlannedFile:
        """A file whose content is in the catalogue."""
        planned = PlannedFile(str(file.path), Action.SKIP, passages=document.passages, tokens=document.tokens)
        if document.stage is Stage.READY:
            counted = self._counted(planned, await self._stored_passages(document))
            return replace(counted, action=Action.RESTORE) if counted.passages_missing else counted
        if document.stage is Stage.FAILED and not self._options.retry_failed:
            return replace(planned, action=Action.KNOWN_FAILURE, reason=document.error or "")
        content = file.path.read_bytes()
        return self._counted(replace(planned, action=Action.RESUME), self._passages(file, content, document, ()))

    async def _stored_passages(self, document: Document | None) -> Sequence[Passage]:
        return () if document is None or self._catalog is None else await self._catalog.document_passages(document.id)

    def _passages(
        self, file: BatchFile, content: bytes, old: Document | None, kept: Sequence[Passage]
    ) -> Sequence[Passage]:
        """The passages of what the file holds; raises DocumentError."""
        check_file(file.name, len(content), self._max_bytes)
        parsed = parse_document(file.name, content, self._max_bytes)
        stub = Document("", file.name, parsed.title, parsed.media_type, "", 0, Stage.QUEUED, None, 0, 0, 0, 0, 0)
        return self._maker.make(stub, SourceText(parsed.text, parsed.page_starts), kept)

    def _counted(self, planned: PlannedFile, passages: Sequence[Passage]) -> PlannedFile:
        there = self._store.contains_many([ChunkKey(passage.chunk_key) for passage in passages])
        missing = [passage for passage, stored in zip(passages, there, strict=True) if not stored]
        return replace(
            planned,
            passages=len(passages),
            tokens=sum(len(passage.token_ids) for passage in passages),
            passages_missing=len(missing),
            tokens_missing=sum(len(passage.token_ids) for passage in missing),
        )


def _line(file: PlannedFile) -> str:
    amount = f" ({file.passages} passages, {file.tokens_missing} of {file.tokens} tokens to compute)"
    return f"{file.action}: {file.path}" + (f": {file.reason}" if file.reason else amount)
