"""What can go wrong in the cascade."""

from enum import StrEnum


class CascadeError(Exception):
    """Any error raised by this package on purpose."""


class DocumentProblem(StrEnum):
    """Why a document was not accepted."""

    EMPTY = "empty_document"
    TOO_LARGE = "document_too_large"
    UNSUPPORTED = "unsupported_format"
    BINARY = "binary_content"
    BROKEN = "broken_document"
    ENCRYPTED = "encrypted_document"
    NO_TEXT = "no_text"
    BOMB = "document_expands_too_much"


class DocumentError(CascadeError, ValueError):
    """A document that cannot be read as text; `code` says why to programs, the message to people."""

    def __init__(self, code: DocumentProblem, message: str) -> None:
        super().__init__(message)
        self.code = code


class UnknownDocument(CascadeError, LookupError):
    """The catalogue holds no document of this id (any more)."""

    def __init__(self, document_id: str) -> None:
        super().__init__(f"no document {document_id!r} in the catalogue")
        self.document_id = document_id


class CatalogVersionError(CascadeError, RuntimeError):
    """The catalogue file was written by another version of its schema."""


class ProfileChanged(CascadeError, RuntimeError):
    """Another process opened the catalogue for another model or other settings; this one must stop using it."""


class TokenizerError(CascadeError, ValueError):
    """A model folder without a usable fast tokenizer, or one that turns plain text into control tokens."""


class UnknownCollection(CascadeError, LookupError):
    """The catalogue holds no collection of this id (any more)."""

    def __init__(self, collection_id: str) -> None:
        super().__init__(f"no collection {collection_id!r} in the catalogue")
        self.collection_id = collection_id


class ScorerError(CascadeError, RuntimeError):
    """An auxiliary model that is asked over the network did not answer as it should."""


class FilterError(CascadeError, ValueError):
    """A filter that cannot be applied: an unknown operation, or a value of the wrong kind."""
