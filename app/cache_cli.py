"""Command line ``kvfuse cache``: the verbs over the files, without an engine."""

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any, TypeVar

import typer
from pydantic import BaseModel
from tqdm import tqdm

from app.cache import VERBS, Cache, Options, Target
from app.cli_options import with_settings
from app.config import Settings
from app.errors import InvalidRequest
from app.schemas.cache import (
    CacheObject,
    ChunkObject,
    CountReport,
    DocumentObject,
    LookupReport,
    VerbReport,
    VerifyReport,
)
from store.control import Outcome
from store.tiered import TieredStore

cli = typer.Typer(
    help="Look at the stored K/V and move it between tiers. What was put off with --after is carried out by whichever "
    "process has the store open then, or by the next one to open it.",
    no_args_is_help=True,
)

T = TypeVar("T")
_TARGET = "Document ids, chunk keys (64 hex digits) or tag:NAME"
Targets = Annotated[list[str], typer.Argument(metavar="TARGET", help=f"{_TARGET}.")]
TargetsOrAll = Annotated[list[str] | None, typer.Argument(metavar="TARGET", help=f"{_TARGET}; none: the whole store.")]
Tier = Annotated[str | None, typer.Option(metavar="memory|disk|remote", help="Tier to move to, or to empty.")]
Ttl = Annotated[float | None, typer.Option("--ttl", metavar="SECONDS", min=0, help="How long it holds.")]
After = Annotated[float | None, typer.Option("--after", metavar="SECONDS", min=0, help="Do it that much later.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Tell what would be done, change nothing.")]
Tag = Annotated[str, typer.Argument(metavar="NAME", help="Name of the group.")]

_HELP = {
    "pin": "Keep chunks in the tiers that hold them.",
    "unpin": "Take pins back.",
    "promote": "Bring chunks up to a tier (memory); with --ttl they sink to disk again after that time.",
    "demote": "Let chunks sink to a tier (disk).",
    "prefetch": "Bring chunks up to memory ahead of their use.",
    "evict": "Remove chunks from a tier, or from all: they are computed again when needed.",
    "tag": "Put chunks into a group.",
    "untag": "Take chunks out of a group.",
}
_OPTIONS: dict[str, tuple[Any, Any]] = {
    "tier": (Tier, None),
    "ttl_s": (Ttl, None),
    "after_s": (After, None),
    "tag": (Tag, inspect.Parameter.empty),
}


@cli.command()
@with_settings
def ls(
    settings: Settings,
    chunks: Annotated[bool, typer.Option("--chunks", help="List chunks instead of documents.")] = False,
    tier: Tier = None,
    after: Annotated[str, typer.Option(metavar="KEY", help="Go on behind this chunk.")] = "",
    limit: Annotated[int, typer.Option(min=1, help="Most chunks to list.")] = 100,
) -> None:
    """List documents, or chunks, with size, tier, last use, hits and seconds saved: one JSON object a line."""

    async def listed(cache: Cache) -> Sequence[BaseModel]:
        if chunks or tier:
            return [ChunkObject.of(record) for record in await cache.ls(tier, after, limit)]
        return [DocumentObject.of(usage) for usage in await cache.documents()]

    for item in _run(settings, listed):
        typer.echo(item.model_dump_json())


@cli.command()
@with_settings
def stat(settings: Settings, targets: TargetsOrAll = None) -> None:
    """Show the store as a whole and whether loading is worth it, or chunks in full: one JSON object a line."""
    if targets:
        for record in _run(settings, lambda cache: cache.stat(parse_targets(targets))):
            typer.echo(ChunkObject.of(record).model_dump_json())
        return
    seen = CacheObject.of(*_run(settings, lambda cache: cache.overview()))
    _show(seen, exclude={"misses": True, "counters": True, "tiers": {name: {"hits"} for name in seen.tiers}})


@cli.command()
@with_settings
def lookup(settings: Settings, targets: Targets) -> None:
    """Show the fastest tier that has each chunk."""
    found = _run(settings, lambda cache: cache.lookup(parse_targets(targets)))
    _show(LookupReport(tiers={str(key): tier.value for key, tier in found.items()}))


@cli.command()
@with_settings
def verify(settings: Settings, targets: TargetsOrAll = None, dry_run: DryRun = False) -> None:
    """Decode every copy of the chunks and check it; bad copies are removed. Exit code 1 when there was one."""
    if targets:
        _act(settings, "verify", targets, Options(dry_run=dry_run))
    else:
        _verify_all(settings, dry_run)


@cli.command()
@with_settings
def purge(settings: Settings) -> None:
    """Forget what is known of chunks that no tier holds."""
    _show(CountReport(count=_run(settings, lambda cache: cache.purge())))


@cli.command("rebuild-index")
@with_settings
def rebuild_index(settings: Settings) -> None:
    """Make the index agree with the files."""
    _show(CountReport(count=_run(settings, lambda cache: cache.rebuild_index())))


def _verb(name: str) -> Callable[..., None]:
    """The command of a verb: its options, and the chunks that it is about."""

    def run(settings: Settings, /, targets: list[str], dry_run: bool, **options: Any) -> None:
        _act(settings, name, targets, Options(**options, dry_run=dry_run))

    own = [inspect.Parameter("settings", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Settings)]
    kinds = {option: _OPTIONS[option] for option in VERBS[name]} | {
        "targets": (Targets, inspect.Parameter.empty),
        "dry_run": (DryRun, False),
    }
    for option, (kind, default) in kinds.items():
        own.append(inspect.Parameter(option, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind))
    run.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]
    return with_settings(run)


for _name, _text in _HELP.items():
    cli.command(_name, help=_text)(_verb(_name))


def parse_targets(texts: Sequence[str]) -> Target:
    """Documents, keys and tags out of what was typed."""
    tags = [text.removeprefix("tag:") for text in texts if text.startswith("tag:")]
    keys = [text for text in texts if len(text) == 64 and set(text) <= set("0123456789abcdef")]
    others = [text for text in texts if text not in keys and not text.startswith("tag:")]
    return Target(tuple(others), tuple(keys), tuple(tags))


@asynccontextmanager
async def open_cache(settings: Settings) -> AsyncIterator[Cache]:
    """The cache over the files that `settings` name.

    Raises:
        InvalidRequest: no document was added yet, or the catalogue is of another release.
    """
    from sqlalchemy.exc import DatabaseError
    from sqlalchemy.ext.asyncio import create_async_engine

    from cascade.catalog import Catalog  # brings torch in

    path = settings.home / "catalog.sqlite"
    if not path.exists():
        raise InvalidRequest(f"nothing is stored yet: there is no catalogue {path}")
    engine = create_async_engine(f"sqlite+aiosqlite:///file:{path}?mode=rw&uri=true")
    try:
        with TieredStore(settings.store_config()) as store:
            store.settle()
            yield Cache(store, Catalog(engine, profile=""))
            store.settle()
    except DatabaseError as error:
        raise InvalidRequest(
            f"{path} is not a catalogue of this release ({error.orig}): start the service once"
        ) from error
    finally:
        await engine.dispose()


def _run(settings: Settings, ask: Callable[[Cache], Awaitable[T]]) -> T:
    async def run() -> T:
        async with open_cache(settings) as cache:
            return await ask(cache)

    return asyncio.run(run())


def _act(settings: Settings, verb: str, targets: Sequence[str], options: Options) -> None:
    result = _run(settings, lambda cache: cache.act(verb, parse_targets(targets), options))
    _show(VerbReport.of(result))
    if result.count(Outcome.CORRUPT):
        raise typer.Exit(1)


def _verify_all(settings: Settings, dry_run: bool) -> None:
    report = VerifyReport(dry_run=dry_run)

    async def verified(cache: Cache) -> None:
        _, contents = await cache.overview()
        with tqdm(total=contents.chunks, desc="Verifying", unit="chunk") as bar:
            async for result in cache.verify_all(dry_run):
                report.add(result)
                bar.update(len(result.outcomes))

    _run(settings, verified)
    _show(report)
    if report.corrupt:
        raise typer.Exit(1)


def _show(report: BaseModel, exclude: dict[str, Any] | None = None) -> None:
    fields: dict[str, Any] = report.model_dump(exclude={"object": True, **(exclude or {})})
    typer.echo(json.dumps(fields, indent=2))
