"""OpenAI's vector stores."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, Field, StringConstraints, field_validator, model_validator

from app.errors import InvalidRequest
from app.library import Found, Shelf, counts_of
from cascade.collections import Member
from cascade.errors import FilterError
from cascade.filters import EVERYTHING, AllOf, AnyOf, Comparison, Filter, Operation

Key = Annotated[str, StringConstraints(min_length=1, max_length=64)]
ShortText = Annotated[str, StringConstraints(max_length=512)]
Value = bool | Annotated[float, Field(allow_inf_nan=False)] | ShortText
Id = Annotated[str, StringConstraints(min_length=1, max_length=128)]
Metadata = Annotated[dict[Key, ShortText], Field(max_length=16)]
AttributesBody = Annotated[dict[Key, Value], Field(max_length=16)]
Query = Annotated[str, StringConstraints(min_length=1, max_length=20_000)]

_STATUS = {"ready": "completed", "failed": "failed"}


class CreateVectorStore(BaseModel):
    """A new vector store; its files are uploaded ones."""

    name: ShortText | None = None
    file_ids: list[Id] = Field([], max_length=500)
    metadata: Metadata | None = None


class ChangeVectorStore(BaseModel):
    """What to change; absent fields stay."""

    name: ShortText | None = None
    metadata: Metadata | None = None


class FileCounts(BaseModel):
    """Files by status."""

    in_progress: int
    completed: int
    failed: int
    cancelled: int
    total: int


class VectorStoreObject(BaseModel):
    """A vector store."""

    id: str
    object: Literal["vector_store"] = "vector_store"
    created_at: int
    last_active_at: int
    name: str
    metadata: dict[str, str]
    usage_bytes: int
    status: Literal["completed", "in_progress"]
    file_counts: FileCounts

    @classmethod
    def of(cls, shelf: Shelf) -> Self:
        """The API's view of a collection."""
        counts = FileCounts(**counts_of(shelf.members))
        return cls(
            id=shelf.collection.id,
            created_at=shelf.collection.created_at,
            last_active_at=shelf.collection.active_at,
            name=shelf.collection.name,
            metadata=dict(shelf.collection.metadata),
            usage_bytes=shelf.bytes,
            status="in_progress" if counts.in_progress else "completed",
            file_counts=counts,
        )


class VectorStoreList(BaseModel):
    """Every vector store, newest first."""

    object: Literal["list"] = "list"
    data: list[VectorStoreObject]
    has_more: Literal[False] = False


class VectorStoreDeleted(BaseModel):
    """Confirmation that a vector store is gone; its files stay."""

    id: str
    object: Literal["vector_store.deleted"] = "vector_store.deleted"
    deleted: Literal[True] = True


class AddFile(BaseModel):
    """A file to put into a vector store."""

    file_id: Id
    attributes: AttributesBody | None = None


class AddFiles(BaseModel):
    """Files to put into a vector store together: all with the same attributes, or each with its own."""

    file_ids: list[Id] = Field([], max_length=2000)
    attributes: AttributesBody | None = None
    files: list[AddFile] = Field([], max_length=2000)

    @model_validator(mode="after")
    def _names_a_file(self) -> "AddFiles":
        if not self.file_ids and not self.files:
            raise ValueError("file_ids or files must name a file")
        return self

    @property
    def attributes_by_id(self) -> Mapping[str, Mapping[str, Value]]:
        same = dict.fromkeys(self.file_ids, self.attributes or {})
        return same | {file.file_id: file.attributes or {} for file in self.files}


class FileBatch(BaseModel):
    """Files that were put into a vector store together."""

    id: str
    object: Literal["vector_store.file_batch"] = "vector_store.file_batch"
    created_at: int
    vector_store_id: str
    status: Literal["completed", "in_progress"]
    file_counts: FileCounts

    @classmethod
    def of(cls, id: str, batch_id: str, members: Sequence[Member]) -> Self:
        """The API's view of the members of a batch."""
        counts = FileCounts(**counts_of(members))
        return cls(
            id=batch_id,
            created_at=min(member.created_at for member in members),
            vector_store_id=id,
            status="in_progress" if counts.in_progress else "completed",
            file_counts=counts,
        )


class ChangeFile(BaseModel):
    """A file's attributes in a vector store, all of them."""

    attributes: AttributesBody


class FileError(BaseModel):
    """Why a file cannot be searched."""

    code: Literal["invalid_file"] = "invalid_file"
    message: str


class VectorStoreFile(BaseModel):
    """A file in a vector store."""

    id: str
    object: Literal["vector_store.file"] = "vector_store.file"
    created_at: int
    vector_store_id: str
    usage_bytes: int
    status: Literal["completed", "in_progress", "failed"]
    last_error: FileError | None
    attributes: dict[str, Value]

    @classmethod
    def of(cls, id: str, member: Member) -> Self:
        """The API's view of a document in a collection."""
        document = member.document
        return cls(
            id=document.id,
            created_at=member.created_at,
            vector_store_id=id,
            usage_bytes=document.bytes,
            status=_STATUS.get(document.stage, "in_progress"),
            last_error=FileError(message=document.error) if document.error else None,
            attributes=dict(member.attributes),
        )


class VectorStoreFileList(BaseModel):
    """The files of a vector store."""

    object: Literal["list"] = "list"
    data: list[VectorStoreFile]
    has_more: Literal[False] = False


class VectorStoreFileDeleted(BaseModel):
    """Confirmation that a file is out of a vector store; the file itself stays."""

    id: str
    object: Literal["vector_store.file.deleted"] = "vector_store.file.deleted"
    deleted: Literal[True] = True


class ComparisonFilter(BaseModel):
    """One attribute against a value."""

    type: Operation
    key: Key
    value: Value | Annotated[list[Value], Field(max_length=1000)]

    def to_filter(self) -> Filter:
        """The condition; raises InvalidRequest."""
        value = tuple(self.value) if isinstance(self.value, list) else self.value
        try:
            return Comparison(self.key, self.type, value)
        except FilterError as error:
            raise InvalidRequest(str(error), param="filters") from None


class CompoundFilter(BaseModel):
    """Several conditions."""

    type: Literal["and", "or"]
    filters: Annotated[list["ComparisonFilter | CompoundFilter"], Field(min_length=1, max_length=100)]

    def to_filter(self) -> Filter:
        """The condition; raises InvalidRequest."""
        parts = tuple(part.to_filter() for part in self.filters)
        return AllOf(parts) if self.type == "and" else AnyOf(parts)


FilterBody = ComparisonFilter | CompoundFilter


class RankingOptions(BaseModel):
    """How good a result must be."""

    score_threshold: float = Field(0.0, ge=0, le=1)


class SearchBody(BaseModel):
    """A search without an answer."""

    query: Query | Annotated[list[Query], Field(min_length=1, max_length=16)]
    filters: FilterBody | None = None
    max_num_results: int = Field(10, ge=1, le=50)
    ranking_options: RankingOptions = RankingOptions()
    rewrite_query: bool = Field(False, description="Accepted for OpenAI's clients; queries are never rewritten.")

    @field_validator("query")
    @classmethod
    def _whole_characters(cls, query: str | list[str]) -> str | list[str]:
        "".join(query).encode()
        return query

    @property
    def queries(self) -> list[str]:
        return [self.query] if isinstance(self.query, str) else self.query

    def where(self) -> Filter:
        """The filter; everything passes where none is given."""
        return EVERYTHING if self.filters is None else self.filters.to_filter()


class SearchText(BaseModel):
    """The text of one result."""

    type: Literal["text"] = "text"
    text: str


class SearchResult(BaseModel):
    """One passage; ``kvfuse`` says where it stands and how each scorer sees it."""

    file_id: str
    filename: str
    score: float
    attributes: dict[str, Value]
    content: list[SearchText]
    kvfuse: dict[str, Any]

    @classmethod
    def of(cls, found: Found) -> Self:
        """The API's view of a found passage."""
        scored, passage = found.scored, found.scored.passage
        place = {name: getattr(passage, name) for name in ("title", "heading", "ordinal", "page", "start", "end")}
        scores = {"dense": scored.dense_score, "sparse": scored.sparse_score, **scored.scores}
        return cls(
            file_id=passage.document_id,
            filename=found.member.document.filename,
            score=found.relevance,
            attributes=dict(found.member.attributes),
            content=[SearchText(text=passage.text)],
            kvfuse=place | {"scores": scores, "relevance": scored.relevance, "tokens": len(passage.token_ids)},
        )


class SearchPage(BaseModel):
    """What a search found, most relevant first."""

    object: Literal["vector_store.search_results.page"] = "vector_store.search_results.page"
    search_query: list[str]
    data: list[SearchResult]
    has_more: Literal[False] = False
    next_page: None = None
