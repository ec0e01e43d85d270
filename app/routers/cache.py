"""Hot and cold: what the store holds, and verbs by document, chunk or tag."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from app.cache import Cache
from app.deps import ServiceDep
from app.errors import NotFound
from app.schemas.cache import (
    CacheObject,
    ChunkList,
    ChunkObject,
    CountReport,
    DocumentList,
    DocumentObject,
    LookupReport,
    TargetBody,
    TierName,
    Verb,
    VerbBody,
    VerbReport,
)

router = APIRouter(prefix="/v1/cache", tags=["cache"])


def get_cache(service: ServiceDep) -> Cache:
    """The cache over the service's store and catalogue."""
    return Cache(service.store, service.catalog)


CacheDep = Annotated[Cache, Depends(get_cache)]


@router.get("")
async def overview(cache: CacheDep) -> CacheObject:
    """Contents, tiers, pins, misses, and whether loading is worth it."""
    return CacheObject.of(*await cache.overview())


@router.get("/chunks")
async def list_chunks(
    cache: CacheDep,
    tier: TierName | None = None,
    after: Annotated[str, Query(max_length=64)] = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> ChunkList:
    """Chunks in order of their keys."""
    records = await cache.ls(tier, after, limit + 1)
    return ChunkList(data=[ChunkObject.of(record) for record in records[:limit]], has_more=len(records) > limit)


@router.get("/chunks/{key}")
async def get_chunk(key: str, cache: CacheDep) -> ChunkObject:
    """One chunk."""
    records = await cache.stat(TargetBody(keys=[key[:255]]).target())
    if not records:
        raise NotFound(f"no such chunk: {key}", param="key")
    return ChunkObject.of(records[0])


@router.get("/documents")
async def list_documents(cache: CacheDep) -> DocumentList:
    """What every document's K/V costs and brings."""
    return DocumentList(data=[DocumentObject.of(usage) for usage in await cache.documents()])


@router.get("/documents/{document_id}")
async def get_document(document_id: str, cache: CacheDep) -> DocumentObject:
    """What one document's K/V costs and brings."""
    return DocumentObject.of(await cache.document(document_id))


@router.post("/lookup")
async def lookup(body: TargetBody, cache: CacheDep) -> LookupReport:
    """The fastest tier that has each chunk."""
    found = await cache.lookup(body.target())
    return LookupReport(tiers={str(key): tier.value for key, tier in found.items()})


@router.post("/purge")
async def purge(cache: CacheDep) -> CountReport:
    """Forget what is known of chunks that no tier holds."""
    return CountReport(count=await cache.purge())


@router.post("/rebuild-index")
async def rebuild_index(cache: CacheDep) -> CountReport:
    """Make the index agree with the files."""
    return CountReport(count=await cache.rebuild_index())


@router.post("/{verb}")
async def act(verb: Verb, body: VerbBody, cache: CacheDep) -> VerbReport:
    """Carry out a verb on chunks of documents, keys or tags."""
    return VerbReport.of(await cache.act(verb, body.target(), body.options()))
