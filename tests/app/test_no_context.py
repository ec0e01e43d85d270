"""A question that no document is about: refused, sent back or answered without documents, as the settings say."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from app.answering import AnswerDefaults, Answerer
from app.config import load_settings
from app.engine_values import Generated, Sampling
from app.errors import InvalidRequest
from app.jobs import plain_question
from app.language import Language
from app.no_context import REPLIES, NoContext
from app.retrieval import make_retriever
from app.service_api import AnswerDone, TextDelta
from cascade.catalog import Catalog
from cascade.embed import Embedder
from cascade.parse import parse_document
from cascade.passages import PassageMaker
from cascade.types import SourceText

TEXT = "# Ferry\n\nThe ferry crosses the bay nine times a day. Its captain is Ilse Brandt."
ABOUT, BESIDE = "Who is the captain of the ferry?", "Which enzyme unwinds the double helix of DNA?"


class ScriptedEngine:
    """Says one word to any prompt, and keeps the prompts."""

    max_model_len, fusable, refusal = 4096, False, "scripted"

    def __init__(self) -> None:
        self.prompts: list[list[int]] = []

    async def generate(
        self, token_ids: Sequence[int], sampling: Sampling, plan: Any = None, salt: str | None = None
    ) -> AsyncIterator[Generated]:
        self.prompts.append(list(token_ids))
        yield Generated("word", (1,), 0, "stop", {})


@pytest.fixture(scope="module")
def language(model_dir: Path) -> Language:
    return Language.load(model_dir, "bfloat16")


@pytest.fixture(scope="module")
def embedder(embedder_dir: Path) -> Embedder:
    return Embedder(embedder_dir)


@pytest.fixture
async def catalog(tmp_path: Path, language: Language, embedder: Embedder) -> AsyncIterator[Catalog]:
    catalog = await Catalog.open(tmp_path / "c.sqlite", "p")
    parsed = parse_document("ferry.md", TEXT.encode())
    document = (await catalog.add("ferry.md", TEXT.encode(), parsed.media_type)).document
    document = await catalog.parsed(document.id, parsed)
    made = PassageMaker(language.plain, lambda ids: "k").make(document, SourceText(parsed.text))
    await catalog.complete(document.id, made, embedder.embed([TEXT]))
    yield catalog
    await catalog.close()


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine()


@pytest.fixture
def answerer(catalog: Catalog, embedder: Embedder, language: Language, engine: ScriptedEngine, tmp_path: Path) -> Any:
    def make(no_context: NoContext, **settings: Any) -> Answerer:
        retriever = make_retriever(load_settings(home=tmp_path, **settings), catalog, embedder)
        defaults = AnswerDefaults(6, 3000, "none", 0, 0.1, 50, "", no_context=no_context)
        return Answerer(engine, retriever, None, language, defaults)  # type: ignore[arg-type]

    return make


async def answer(answerer: Answerer, question: str) -> tuple[str, AnswerDone]:
    events = [event async for event in answerer.answer(plain_question(question))]
    assert isinstance(events[-1], AnswerDone)
    return "".join(event.text for event in events if isinstance(event, TextDelta)), events[-1]


@pytest.mark.parametrize("no_context", [NoContext.REFUSE, NoContext.ASK])
async def test_no_model_is_asked(answerer: Any, engine: ScriptedEngine, no_context: NoContext) -> None:
    text, done = await answer(answerer(no_context), BESIDE)
    assert text == REPLIES[no_context]
    assert (done.finish_reason, done.prompt_tokens, done.completion_tokens, engine.prompts) == ("stop", 0, 0, [])
    selection = done.kvfuse["selection"]
    assert (selection["passages"], selection["relevance"], selection["considered"]) == ([], "none", 1)
    assert "beside the question" in selection["rule"]
    assert done.kvfuse["timings_ms"]["ttft"] > 0


async def test_a_model_may_answer_without_documents(answerer: Any, engine: ScriptedEngine, language: Language) -> None:
    text, done = await answer(answerer(NoContext.ANSWER), BESIDE)
    assert text == "word"
    assert done.kvfuse["selection"]["relevance"] == "none"
    frame = language.prompts.frame(plain_question(BESIDE).messages)
    assert engine.prompts == [[*frame.head, *frame.tail]]


async def test_a_question_about_the_documents_is_answered_from_them(answerer: Any, engine: ScriptedEngine) -> None:
    text, done = await answer(answerer(NoContext.REFUSE), ABOUT)
    assert (text, done.kvfuse["selection"]["relevance"]) == ("word", "good")
    (passage,) = done.kvfuse["selection"]["passages"]
    assert passage["heading"] == "Ferry"
    assert passage["scores"]["maxsim"] > 0.5


@pytest.mark.parametrize("settings", [{"relevance_floor": 0}, {"reranker": "none"}, {"embedder": "elsewhere"}])
async def test_the_floor_can_be_lowered(answerer: Any, engine: ScriptedEngine, settings: dict[str, Any]) -> None:
    text, done = await answer(answerer(NoContext.REFUSE, **settings), BESIDE)
    assert text == "word"
    assert done.kvfuse["selection"]["low_relevance"]


async def test_no_documents_at_all_is_an_error_of_the_request(answerer: Any, catalog: Catalog) -> None:
    for document in await catalog.list():
        await catalog.delete(document.id)
    with pytest.raises(InvalidRequest, match="no document to answer from"):
        await answer(answerer(NoContext.REFUSE), ABOUT)
