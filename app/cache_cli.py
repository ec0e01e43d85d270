"""Command line ``kvfuse cache``: the verbs over the files, without an engine."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any, TypeVar

import typer
from pydantic import BaseModel

from app.cache import Cache, Options, Target
from app.cli_options import with_settings
from app.config import Settings
from app.errors import InvalidRequest
from app.schemas.cache import ChunkObject, CountReport, DocumentObject, LookupReport, VerbReport
from store.tiered import TieredStore

cli = typer.Typer(help="Look at the stored K/V and move it between tiers.", no_args_is_help=True)

T = TypeVar("T")
Targets = Annotated[
    list[str], typer.Argument(metavar="TARGET...", help="Document ids, chunk keys (64 hex digits) or tag:NAME.")
]
Tier = Annotated[str | None, typer.Option(metavar="memory|disk|remote", help="Tier to move to, or to empty.")]
Ttl = Annotated[float | None, typer.Option(metavar="SECONDS", min=0, help="How long it holds.")]
After = Annotated[float, typer.Option(metavar="SECONDS", min=0, help="Do it that much later.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Tell what would be done, change nothing.")]


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
def stat(settings: Settings, targets: Targets) -> None:
    """Show chunks in full: one JSON object a line."""
    for record in _run(settings, lambda cache: cache.stat(parse_targets(targets))):
        typer.echo(ChunkObject.of(record).model_dump_json())


@cli.command()
@with_settings
def lookup(settings: Settings, targets: Targets) -> None:
    """Show the fastest tier that has each chunk."""
    found = _run(settings, lambda cache: cache.lookup(parse_targets(targets)))
    _show(LookupReport(tiers={str(key): tier.value for key, tier in found.items()}))


@cli.command()
@with_settings
def pin(settings: Settings, targets: Targets, ttl: Ttl = None, dry_run: DryRun = False) -> None:
    """Keep chunks in the tiers that hold them."""
    _act(settings, "pin", targets, Options(ttl_s=ttl, dry_run=dry_run))


@cli.command()
@with_settings
def unpin(settings: Settings, targets: Targets, dry_run: DryRun = False) -> None:
    """Take pins back."""
    _act(settings, "unpin", targets, Options(dry_run=dry_run))


@cli.command()
@with_settings
def promote(
    settings: Settings, targets: Targets, tier: Tier = None, ttl: Ttl = None, after: After = 0, dry_run: DryRun = False
) -> None:
    """Bring chunks up to a tier (memory); with --ttl they sink to disk again after that time."""
    _act(settings, "promote", targets, Options(tier, ttl, after, dry_run=dry_run))


@cli.command()
@with_settings
def demote(settings: Settings, targets: Targets, tier: Tier = None, after: After = 0, dry_run: DryRun = False) -> None:
    """Let chunks sink to a tier (disk)."""
    _act(settings, "demote", targets, Options(tier, after_s=after, dry_run=dry_run))


@cli.command()
@with_settings
def prefetch(settings: Settings, targets: Targets, dry_run: DryRun = False) -> None:
    """Bring chunks up to memory ahead of their use."""
    _act(settings, "prefetch", targets, Options(dry_run=dry_run))


@cli.command()
@with_settings
def evict(settings: Settings, targets: Targets, tier: Tier = None, after: After = 0, dry_run: DryRun = False) -> None:
    """Remove chunks from a tier, or from all: they are computed again when needed."""
    _act(settings, "evict", targets, Options(tier, after_s=after, dry_run=dry_run))


@cli.command()
@with_settings
def verify(settings: Settings, targets: Targets, dry_run: DryRun = False) -> None:
    """Decode every copy of the chunks and check it; bad copies are removed."""
    _act(settings, "verify", targets, Options(dry_run=dry_run))


@cli.command()
@with_settings
def tag(settings: Settings, name: Annotated[str, typer.Argument(metavar="NAME")], targets: Targets) -> None:
    """Put chunks into a group."""
    _act(settings, "tag", targets, Options(tag=name))


@cli.command()
@with_settings
def untag(settings: Settings, name: Annotated[str, typer.Argument(metavar="NAME")], targets: Targets) -> None:
    """Take chunks out of a group."""
    _act(settings, "untag", targets, Options(tag=name))


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
    _show(VerbReport.of(_run(settings, lambda cache: cache.act(verb, parse_targets(targets), options))))


def _show(report: BaseModel) -> None:
    fields: dict[str, Any] = report.model_dump(exclude={"object"})
    typer.echo(json.dumps(fields, indent=2))
