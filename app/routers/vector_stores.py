"""Collections of files, and searching them without an answer."""

from fastapi import APIRouter

from app.deps import ServiceDep
from app.schemas.vector_stores import (
    AddFile,
    AddFiles,
    ChangeFile,
    ChangeVectorStore,
    CreateVectorStore,
    FileBatch,
    SearchBody,
    SearchPage,
    SearchResult,
    VectorStoreDeleted,
    VectorStoreFile,
    VectorStoreFileDeleted,
    VectorStoreFileList,
    VectorStoreList,
    VectorStoreObject,
)

router = APIRouter(prefix="/v1/vector_stores", tags=["vector stores"])


@router.post("")
async def create(body: CreateVectorStore, service: ServiceDep) -> VectorStoreObject:
    """Make a vector store of uploaded files."""
    return VectorStoreObject.of(await service.library.create(body.name or "", body.metadata or {}, body.file_ids))


@router.get("")
async def list_stores(service: ServiceDep) -> VectorStoreList:
    """Every vector store, newest first."""
    return VectorStoreList(data=[VectorStoreObject.of(shelf) for shelf in await service.library.list()])


@router.get("/{vector_store_id}")
async def get(vector_store_id: str, service: ServiceDep) -> VectorStoreObject:
    """One vector store."""
    return VectorStoreObject.of(await service.library.get(vector_store_id))


@router.post("/{vector_store_id}")
async def change(vector_store_id: str, body: ChangeVectorStore, service: ServiceDep) -> VectorStoreObject:
    """Change its name or metadata."""
    return VectorStoreObject.of(await service.library.change(vector_store_id, body.name, body.metadata))


@router.delete("/{vector_store_id}")
async def delete(vector_store_id: str, service: ServiceDep) -> VectorStoreDeleted:
    """Remove a vector store; its files stay."""
    await service.library.delete(vector_store_id)
    return VectorStoreDeleted(id=vector_store_id)


@router.post("/{vector_store_id}/files")
async def add_file(vector_store_id: str, body: AddFile, service: ServiceDep) -> VectorStoreFile:
    """Put an uploaded file in, whatever its stage; it is found once it is ready."""
    member = await service.library.put(vector_store_id, body.file_id, body.attributes or {})
    return VectorStoreFile.of(vector_store_id, member)


@router.get("/{vector_store_id}/files")
async def list_files(vector_store_id: str, service: ServiceDep) -> VectorStoreFileList:
    """The files of a vector store."""
    members = (await service.library.get(vector_store_id)).members
    return VectorStoreFileList(data=[VectorStoreFile.of(vector_store_id, member) for member in members])


@router.get("/{vector_store_id}/files/{file_id}")
async def get_file(vector_store_id: str, file_id: str, service: ServiceDep) -> VectorStoreFile:
    """One file of a vector store."""
    return VectorStoreFile.of(vector_store_id, await service.library.member(vector_store_id, file_id))


@router.post("/{vector_store_id}/files/{file_id}")
async def change_file(vector_store_id: str, file_id: str, body: ChangeFile, service: ServiceDep) -> VectorStoreFile:
    """Give a file other attributes."""
    await service.library.member(vector_store_id, file_id)
    return VectorStoreFile.of(vector_store_id, await service.library.put(vector_store_id, file_id, body.attributes))


@router.delete("/{vector_store_id}/files/{file_id}")
async def remove_file(vector_store_id: str, file_id: str, service: ServiceDep) -> VectorStoreFileDeleted:
    """Take a file out; the file itself stays."""
    await service.library.remove(vector_store_id, file_id)
    return VectorStoreFileDeleted(id=file_id)


@router.post("/{vector_store_id}/file_batches")
async def add_batch(vector_store_id: str, body: AddFiles, service: ServiceDep) -> FileBatch:
    """Put several uploaded files in, all or none of them."""
    batch_id, members = await service.library.put_all(vector_store_id, body.attributes_by_id)
    return FileBatch.of(vector_store_id, batch_id, members)


@router.get("/{vector_store_id}/file_batches/{batch_id}")
async def get_batch(vector_store_id: str, batch_id: str, service: ServiceDep) -> FileBatch:
    """How far the files of a batch are."""
    return FileBatch.of(vector_store_id, batch_id, await service.library.batch(vector_store_id, batch_id))


@router.get("/{vector_store_id}/file_batches/{batch_id}/files")
async def list_batch(vector_store_id: str, batch_id: str, service: ServiceDep) -> VectorStoreFileList:
    """The files of a batch that are still in the vector store."""
    members = await service.library.batch(vector_store_id, batch_id)
    return VectorStoreFileList(data=[VectorStoreFile.of(vector_store_id, member) for member in members])


@router.post("/{vector_store_id}/search")
async def search(vector_store_id: str, body: SearchBody, service: ServiceDep) -> SearchPage:
    """The passages that the question's answer would be made from, without the answer."""
    found = await service.library.search(vector_store_id, body.queries, body.where(), body.max_num_results)
    good = [each for each in found if each.relevance >= body.ranking_options.score_threshold]
    return SearchPage(search_query=body.queries, data=[SearchResult.of(each) for each in good])
