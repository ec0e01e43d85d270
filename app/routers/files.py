"""Documents: upload, list, look at, replace, try again, delete."""

import re
from pathlib import PurePosixPath

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse
from starlette.datastructures import UploadFile

from app.deps import ServiceDep, SettingsDep
from app.errors import InvalidRequest, TooLarge
from app.schemas.files import FileDeleted, FileList, FileObject

router = APIRouter(prefix="/v1/files", tags=["files"])

MAX_NAME = 255
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_UPLOAD_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {
                        "file": {"type": "string", "format": "binary"},
                        "purpose": {"type": "string", "description": "Accepted for OpenAI's clients, not used."},
                    },
                }
            }
        },
    }
}


@router.post("", openapi_extra=_UPLOAD_BODY)
async def upload(request: Request, service: ServiceDep, settings: SettingsDep) -> FileObject:
    """Take a document in and return at once; the same content again gives the same file."""
    return FileObject.of(await service.add_file(*await _file_of(request, settings.max_upload_bytes)))


@router.put("/{file_id}", openapi_extra=_UPLOAD_BODY)
async def replace(file_id: str, request: Request, service: ServiceDep, settings: SettingsDep) -> FileObject:
    """Put a new version in a document's place, under an id of its own. Passages that stay the same keep their K/V.

    The old version answers until the new one is ready; then it goes, from every vector store too.
    """
    name, content = await _file_of(request, settings.max_upload_bytes)
    return FileObject.of(await service.add_file(name, content, replaces=file_id))


@router.post("/{file_id}/retry")
async def retry(file_id: str, service: ServiceDep) -> FileObject:
    """Try a failed document again; any other stays as it is."""
    return FileObject.of(await service.retry_file(file_id))


async def _file_of(request: Request, max_bytes: int) -> tuple[str, bytes]:
    async with request.form(max_files=1, max_fields=4) as form:
        file = form.get("file")
        if not isinstance(file, UploadFile):
            raise InvalidRequest("file: the multipart form must hold a file field named 'file'", param="file")
        content = await file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise TooLarge(f"The file is over the limit of {max_bytes} bytes", param="file")
    return _plain_name(file.filename), content


@router.get("")
async def list_files(service: ServiceDep) -> FileList:
    """Every document, newest first."""
    return FileList(data=[FileObject.of(view) for view in await service.list_files()])


@router.get("/{file_id}")
async def get_file(file_id: str, service: ServiceDep) -> FileObject:
    """One document and how far it is."""
    return FileObject.of(await service.get_file(file_id))


# Not its `response_class`: errors, which are JSON, would be described as text.
@router.get("/{file_id}/content", response_model=None, responses={200: {"content": {"text/plain": {}}}})
async def get_text(file_id: str, service: ServiceDep) -> PlainTextResponse:
    """The document's text, in which `start` and `end` of a passage are offsets in characters."""
    return PlainTextResponse(await service.file_text(file_id))


@router.delete("/{file_id}")
async def delete_file(file_id: str, service: ServiceDep) -> FileDeleted:
    """Remove a document with its passages and their K/V."""
    await service.delete_file(file_id)
    return FileDeleted(id=file_id)


def _plain_name(offered: str | None) -> str:
    """Last part of the offered name without control characters: it is shown, never opened."""
    name = _CONTROL.sub("", PurePosixPath((offered or "").replace("\\", "/")).name).strip()
    if not name:
        raise InvalidRequest("file: the upload has no file name", param="file")
    if len(name) > MAX_NAME:
        raise InvalidRequest(f"file: the name has {len(name)} characters, the limit is {MAX_NAME}", param="file")
    return name
