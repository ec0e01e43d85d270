"""Real parts: the packaged models, SQLite files, small documents."""

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from cascade.catalog import Catalog
from cascade.embed import Embedder
from cascade.parse import parse_document
from cascade.passages import PassageMaker, render_passage
from cascade.tokenize import PlainTokenizer
from cascade.types import Document, SourceText

AddReady = Callable[[str, str], Awaitable[Document]]


def sha_key(token_ids: Sequence[int]) -> str:
    """A stand-in for the store's chunk key: as long, and as dependent on the ids alone."""
    return hashlib.sha256(repr(list(token_ids)).encode()).hexdigest()


@pytest.fixture(scope="session")
def tokenizer(model_dir: Path) -> PlainTokenizer:
    return PlainTokenizer.from_folder(model_dir)


@pytest.fixture(scope="session")
def embedder(embedder_dir: Path) -> Embedder:
    return Embedder(embedder_dir)


@pytest.fixture(scope="session")
def maker(tokenizer: PlainTokenizer) -> PassageMaker:
    return PassageMaker(tokenizer, sha_key)


@pytest.fixture
async def catalog(tmp_path: Path) -> AsyncIterator[Catalog]:
    catalog = await Catalog.open(tmp_path / "catalog.sqlite", "profile")
    yield catalog
    await catalog.close()


@pytest.fixture
def add_ready(catalog: Catalog, maker: PassageMaker, embedder: Embedder) -> AddReady:
    """Adds a document and takes it all the way to ready."""

    async def add(filename: str, text: str) -> Document:
        parsed = parse_document(filename, text.encode())
        document = (await catalog.add(filename, text.encode(), parsed.media_type)).document
        document = await catalog.parsed(document.id, parsed)
        made = maker.make(document, SourceText(parsed.text, parsed.page_starts))
        embeddings = embedder.embed([render_passage(passage.title, passage.text) for passage in made])
        return await catalog.complete(document.id, made, embeddings)

    return add
