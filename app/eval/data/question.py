"""Question: what every data set is turned into."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Doc:
    """A candidate document."""

    id: str
    title: str
    text: str


@dataclass(frozen=True)
class Question:
    """A question with its candidate documents in the order to be used.

    answers: accepted answers, the main one first. gold: ids of the documents that hold the evidence; empty when the
    data set does not say. answer_prefix: the beginning of the answer to force, which lets very small models be scored.
    """

    id: str
    dataset: str
    question: str
    answers: tuple[str, ...]
    docs: tuple[Doc, ...]
    gold: frozenset[str] = frozenset()
    answer_prefix: str = ""
