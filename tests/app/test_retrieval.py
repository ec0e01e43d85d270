"""The rerankers that settings choose, over a real catalogue: a server that comes and goes, a local cross-encoder."""

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from app.config import load_settings
from app.errors import ConfigError
from app.retrieval import make_retriever
from cascade.catalog import Catalog
from cascade.embed import Embedder
from cascade.pipeline import Retriever
from cascade.types import MediaType, Passage
from tests.app.conftest import running
from tests.app.fakes import FakeService

TEXTS = (
    "The ferry crosses the bay nine times a day.",
    "The captain of the ferry is Ilse Brandt.",
    "Rye bread at dawn.",
)
QUESTION = "Who is the captain of the ferry?"


@pytest.fixture(scope="module")
def embedder(embedder_dir: Path) -> Embedder:
    return Embedder(embedder_dir)


@pytest.fixture
async def catalog(tmp_path: Path, embedder: Embedder) -> AsyncIterator[Catalog]:
    catalog = await Catalog.open(tmp_path / "catalog.sqlite", "profile")
    document = (await catalog.add("ferry.txt", b"ferry", MediaType.TEXT)).document
    made = [Passage(f"p{n}", document.id, n, "Ferry", text, 0, 1, (n,), f"k{n}") for n, text in enumerate(TEXTS)]
    await catalog.complete(document.id, made, embedder.embed(list(TEXTS)))
    yield catalog
    await catalog.close()


def retriever(tmp_path: Path, catalog: Catalog, embedder: Embedder, **settings: object) -> Retriever:
    return make_retriever(load_settings(home=tmp_path, **settings), catalog, embedder)


def failures() -> float:
    return REGISTRY.get_sample_value("kvfuse_rerank_failures_total") or 0.0


async def test_a_rerank_server_decides_and_is_replaced_while_it_is_down(
    tmp_path: Path, catalog: Catalog, embedder: Embedder, caplog: pytest.LogCaptureFixture
) -> None:
    service = FakeService()
    service.retriever.similarities = _likes_bread  # type: ignore[method-assign]
    with running(service, tmp_path / "server", api_keys="secret") as url:
        options = {"reranker": "server", "rerank_url": url, "rerank_model": "maxsim", "rerank_api_key": "secret"}
        asked = retriever(tmp_path, catalog, embedder, **options)
        ranked = await asked.rank(QUESTION)
        assert ranked[0].passage.text == TEXTS[2]
        assert ranked[0].scores["rerank-server"] == 1
    before = failures()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert (await asked.rank(QUESTION))[0].passage.text == TEXTS[1]
    assert failures() == before + 1, "a server that is down is not asked for every question"
    assert f"{url}/v1/rerank failed" in caplog.text


async def _likes_bread(question: str, texts: list[str]) -> list[float]:
    return [float("bread" in text) for text in texts]


async def test_a_local_cross_encoder_decides(
    tmp_path: Path, catalog: Catalog, embedder: Embedder, embedder_dir: Path
) -> None:
    from sentence_transformers import CrossEncoder
    from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

    tokenizer = AutoTokenizer.from_pretrained(embedder_dir)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    model = BertForSequenceClassification(BertConfig(vocab_size=len(tokenizer), num_labels=1, **sizes))
    tokenizer.save_pretrained(tmp_path / "model")
    model.save_pretrained(tmp_path / "model")
    asked = retriever(tmp_path, catalog, embedder, reranker="cross-encoder", rerank_model=str(tmp_path / "model"))
    ranked = await asked.rank(QUESTION)
    pairs = [(QUESTION, f"Ferry\n{text}\n\n") for text in TEXTS]
    expected = dict(zip(TEXTS, CrossEncoder(str(tmp_path / "model")).predict(pairs), strict=True))
    assert [scored.passage.text for scored in ranked] == sorted(TEXTS, key=lambda text: -expected[text])
    for scored in ranked:
        assert scored.scores["cross-encoder"] == pytest.approx(expected[scored.passage.text], abs=1e-5)


@pytest.mark.parametrize(("reranker", "setting"), [("server", "rerank_url"), ("cross-encoder", "rerank_model")])
async def test_a_reranker_without_its_model_is_refused_at_the_start(
    tmp_path: Path, catalog: Catalog, embedder: Embedder, reranker: str, setting: str
) -> None:
    with pytest.raises(ConfigError, match=setting):
        retriever(tmp_path, catalog, embedder, reranker=reranker)
