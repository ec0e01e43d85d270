"""Retrieval quality on the example handbook."""

import json
from pathlib import Path
from typing import Any

import pytest

from cascade.catalog import Catalog
from cascade.embed import Embedder
from cascade.pipeline import Retriever
from cascade.types import Selection
from tests.cascade.conftest import AddReady

EXAMPLES = Path(__file__).parents[2] / "examples"
QUESTIONS: list[dict[str, Any]] = [
    json.loads(line) for line in (EXAMPLES / "questions.jsonl").read_text(encoding="utf-8").splitlines()
]


@pytest.fixture
async def selections(catalog: Catalog, embedder: Embedder, add_ready: AddReady) -> list[Selection]:
    for file in sorted((EXAMPLES / "handbook").glob("*.md")):
        await add_ready(file.name, file.read_text(encoding="utf-8"))
    retriever = Retriever(catalog, embedder)
    return [await retriever.search(question["question"], 5, 3072) for question in QUESTIONS]


def answers(question: dict[str, Any], selection: Selection, k: int) -> bool:
    """Whether one of the first `k` passages comes from the right file and holds an accepted answer."""
    title = (EXAMPLES / "handbook" / question["file"]).read_text(encoding="utf-8").split("\n")[0].removeprefix("# ")
    return any(
        scored.passage.title == title and any(answer in scored.passage.text for answer in question["answers"])
        for scored in selection.passages[:k]
    )


def test_the_answer_is_found(selections: list[Selection]) -> None:
    found = {k: sum(map(answers, QUESTIONS, selections, [k] * len(QUESTIONS))) for k in (1, 3)}
    assert found[1] >= 0.9 * len(QUESTIONS), found
    assert found[3] == len(QUESTIONS), found
    assert not any(selection.low_relevance for selection in selections)


def test_the_questions_are_about_the_files() -> None:
    assert len(QUESTIONS) >= 10
    for question in QUESTIONS:
        text = (EXAMPLES / "handbook" / question["file"]).read_text(encoding="utf-8")
        assert question["answers"][0] in text or question["answers"][-1] in text
