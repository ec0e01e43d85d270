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

    def __post_init__(self) -> None:
        """Raises ValueError for a question that cannot be asked."""
        if not self.docs:
            raise ValueError(f"question {self.id} has no documents")
        if any(not isinstance(text, str) for text in (self.question, *(doc.text for doc in self.docs))):
            raise ValueError(f"question {self.id}: the question and its documents' texts are strings")
        if unknown := self.gold - {doc.id for doc in self.docs}:
            raise ValueError(f"question {self.id}: evidence in {', '.join(sorted(unknown))}, which it does not have")
