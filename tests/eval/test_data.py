"""Loaders on tiny files in the published formats, and the generator."""

import json
from pathlib import Path
from typing import Any

import pytest

from app.eval.data import Question, load_questions
from app.eval.data.planted import Planted
from app.eval.data.registry import sample_names
from app.eval.errors import DataError

HOTPOT = {
    "_id": "5a8b",
    "answer": "yes",
    "question": "Were both men American?",
    "supporting_facts": [["Scott Derrickson", 0], ["Ed Wood", 0]],
    "context": [
        ["Ed Wood (film)", ["Ed Wood is a 1994 film.", " It stars Johnny Depp."]],
        ["Scott Derrickson", ["Scott Derrickson is an American director."]],
        ["Ed Wood", ["Edward Wood was an American filmmaker."]],
    ],
    "type": "comparison",
    "level": "hard",
}
TWO_WIKI = HOTPOT | {"_id": "w1", "context": [["A", ["One.", "Two."]]], "supporting_facts": [["A", 1]], "evidences": []}
MUSIQUE = {
    "id": "2hop__1_2",
    "question": "Who?",
    "answer": "G. Stanley Hall",
    "answer_aliases": ["Stanley Hall"],
    "answerable": True,
    "paragraphs": [
        {"idx": 0, "title": "A", "paragraph_text": "a", "is_supporting": False},
        {"idx": 1, "title": "B", "paragraph_text": "b", "is_supporting": True},
    ],
}
SQUAD = {
    "version": "1.1",
    "data": [
        {
            "title": "Martin_Luther",
            "paragraphs": [
                {
                    "context": "He published.",
                    "qas": [{"id": "q1", "question": "What?", "answers": [{"text": "it"}] * 2}],
                },
                {"context": "He wrote.", "qas": [{"id": "q2", "question": "?", "answers": [], "is_impossible": True}]},
            ],
        }
    ],
}
LONGBENCH = {
    "_id": "lb1",
    "input": "Where?",
    "context": "Passage 1:\nTitle one\nFirst text.\n\nPassage 2:\nSecond text.",
    "answers": ["Lima"],
    "length": 10,
    "dataset": "hotpotqa",
    "language": "en",
    "all_classes": None,
}
RULER = {
    "index": 3,
    "input": "Some special magic numbers are hidden within the following text.\n"
    + "\n".join(f"Line {number}. It says {number * 111}." for number in range(16))
    + "\nWhat are all the special magic numbers for tin mentioned in the provided text?",
    "outputs": ["1110"],
    "length": 200,
    "answer_prefix": " The special magic numbers for tin mentioned in the provided text are",
}


def write(folder: Path, name: str, content: Any) -> str:
    path = folder / name
    path.write_text("\n".join(map(json.dumps, content)) if name.endswith("jsonl") else json.dumps(content))
    return str(path)


def only(questions: list[Question]) -> Question:
    (question,) = questions
    return question


def test_hotpotqa(tmp_path: Path) -> None:
    question = only(load_questions([write(tmp_path, "hotpot_dev.json", [HOTPOT])]))
    assert question.docs[0].text == "Ed Wood is a 1994 film. It stars Johnny Depp."
    assert question.gold == {"d1", "d2"}
    assert (question.id, question.dataset, question.answers) == ("5a8b", "hotpot_dev", ("yes",))


def test_2wiki_sentences_are_parted_by_a_space(tmp_path: Path) -> None:
    question = only(load_questions([write(tmp_path, "2wiki.json", [TWO_WIKI])]))
    assert question.docs[0].text == "One. Two."
    assert question.gold == {"d0"}


def test_musique_leaves_out_what_cannot_be_answered(tmp_path: Path) -> None:
    records = [MUSIQUE, MUSIQUE | {"id": "2hop__3", "answerable": False}]
    question = only(load_questions([write(tmp_path, "musique.jsonl", records)]))
    assert question.answers == ("G. Stanley Hall", "Stanley Hall")
    assert question.gold == {"d1"}


def test_squad(tmp_path: Path) -> None:
    question = only(load_questions([write(tmp_path, "xquad.en.json", SQUAD)]))
    assert (question.id, question.answers) == ("q1", ("it",))
    assert [doc.title for doc in question.docs] == ["Martin Luther"] * 2
    assert question.gold == {question.docs[0].id}


def test_longbench_is_cut_into_its_passages(tmp_path: Path) -> None:
    question = only(load_questions([write(tmp_path, "lb.jsonl", [LONGBENCH])]))
    assert [doc.text for doc in question.docs] == ["Title one\nFirst text.", "Second text."]
    assert not question.gold


def test_ruler_parts_instruction_haystack_and_question(tmp_path: Path) -> None:
    question = only(load_questions([write(tmp_path, "niah.jsonl", [RULER])]))
    assert question.question.startswith("What are all the special magic numbers for tin")
    assert question.answer_prefix.endswith("text are")
    assert len(question.docs) == 8
    (gold,) = question.gold
    assert "1110" in next(doc.text for doc in question.docs if doc.id == gold)
    assert not any("special magic" in doc.text for doc in question.docs)


def test_built_in_samples_are_complete() -> None:
    assert sample_names() == ["cut", "handbook", "hotpotqa", "needle"]
    for question in load_questions(sample_names()):
        assert question.answers
        assert question.gold <= {doc.id for doc in question.docs}
        assert question.gold


def test_limit_draws_the_same_questions_for_a_seed(tmp_path: Path) -> None:
    path = write(tmp_path, "many.jsonl", [MUSIQUE | {"id": str(number)} for number in range(50)])
    drawn = [question.id for question in load_questions([path], limit=5, seed=3)]
    assert drawn == [question.id for question in load_questions([path], limit=5, seed=3)]
    assert drawn != [question.id for question in load_questions([path], limit=5, seed=4)]
    assert sorted(drawn, key=int) == drawn


def test_repeated_ids_are_told_apart(tmp_path: Path) -> None:
    questions = load_questions([write(tmp_path, "twice.jsonl", [MUSIQUE, MUSIQUE])])
    assert [question.id for question in questions] == ["2hop__1_2", "2hop__1_2#2"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{broken", "cannot be read"),
        ('{"a": 1}', "record 1: fields a are of no known format"),
        ("[1]", "record 1"),
        ('{"id": "1", "question": "?", "answers": ["x"], "docs": [{"id": "d"}]}', "field 'text' is missing"),
        ('{"id": "1", "question": "?", "answers": "Lima", "docs": []}', "answers are a list of texts, not 'Lima'"),
        ('{"id": "1", "question": "?", "answers": ["x"], "docs": []}', "question 1 has no documents"),
        ('{"id": "1", "question": 1, "answers": ["x"], "docs": [{"id": "d", "text": ""}]}', "texts are strings"),
        (
            '{"id": "1", "question": "?", "answers": ["x"], "docs": [{"id": "d", "text": ""}], "gold_doc_ids": ["e"]}',
            "evidence in e, which it does not have",
        ),
        ("[]", "no question"),
    ],
)
def test_a_bad_file_is_named_with_what_is_wrong(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(content)
    with pytest.raises(DataError, match=message) as caught:
        load_questions([str(path)])
    assert "bad.json" in str(caught.value)


def test_data_sets_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    paths = [write(folder, "same.jsonl", [MUSIQUE]) for folder in (tmp_path, tmp_path / "other")]
    with pytest.raises(DataError, match="two data sets are called 'same'"):
        load_questions(paths)
    sizes = {question.dataset for question in load_questions(["planted-needle:3x40", "planted-needle"], limit=1)}
    assert sizes == {"planted-needle:3x40", "planted-needle:6x110"}


def test_an_unknown_name_lists_what_there_is() -> None:
    with pytest.raises(DataError, match="handbook, hotpotqa, needle, planted-needle"):
        load_questions(["nosuch"])
    with pytest.raises(DataError, match="planted-nothing: unknown planted kind"):
        load_questions(["planted-nothing"])


@pytest.mark.parametrize("kind", ["needle", "cut", "hop"])
def test_planted_facts_stand_where_gold_says(kind: str) -> None:
    for question in load_questions([f"planted-{kind}:5x40"], limit=20, seed=1):
        gold = [doc.text for doc in question.docs if doc.id in question.gold]
        rest = " ".join(doc.text for doc in question.docs if doc.id not in question.gold)
        joined = " ".join(gold)
        assert question.answers[0] in joined
        asked = question.answer_prefix.removeprefix("The manager of ").rsplit(" lives", 1)[0]
        assert asked.split(" drives")[0].split(" works")[0] in joined
        assert question.answer_prefix not in rest
        assert len(question.docs) == 5
        assert len(gold) == (1 if kind == "needle" else 2)


def test_cut_boundaries_fall_inside_facts() -> None:
    for question in Planted("cut", 10).generate():
        first, second = (doc for doc in question.docs if doc.id in question.gold)
        assert first.text.endswith(question.answer_prefix)
        assert second.text.startswith(f"{question.answers[0]}.")


def test_planted_sets_repeat_for_a_seed() -> None:
    assert list(Planted("hop", 3, seed=7).generate()) == list(Planted("hop", 3, seed=7).generate())
    assert list(Planted("hop", 3, seed=7).generate()) != list(Planted("hop", 3, seed=8).generate())
