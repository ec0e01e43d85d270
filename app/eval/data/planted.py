"""Planted facts in any length: made-up people with made-up facts in neutral text, so that only reading gives answers.

`needle`: one fact a document, one is asked for. `cut`: the same, but every boundary between documents falls inside a
fact, the worst case of blind cutting. `hop`: the answer needs two facts of two documents.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from app.eval.data.question import Doc, Question

_FIRST = [
    "Grace",
    "Karl",
    "Nora",
    "Omar",
    "Ilse",
    "Paul",
    "Mina",
    "Hugo",
    "Vera",
    "Ivan",
    "Lucy",
    "Amir",
    "Tess",
    "Noel",
    "Rosa",
    "Emil",
    "Jane",
    "Otto",
    "Lena",
    "Marc",
]
_LAST = [
    "Kim",
    "Berg",
    "Voss",
    "Novak",
    "Hale",
    "Reyes",
    "Okafor",
    "Lind",
    "Marsh",
    "Duval",
    "Sato",
    "Weiss",
    "Ferro",
    "Quinn",
    "Adler",
    "Boyd",
    "Costa",
    "Brandt",
]
_FACTS = (
    ("lives in the city of", "In which city does {name} live?", ("Lima", "Oslo", "Quito", "Dakar", "Hanoi", "Turin")),
    ("works as a", "What does {name} work as?", ("dentist", "painter", "pilot", "baker", "lawyer", "plumber")),
    ("drives a car that is", "What color is the car of {name}?", ("pink", "silver", "green", "white", "blue", "red")),
)
_SUBJECTS = [
    "The harbour",
    "A survey",
    "The old mill",
    "This valley",
    "The council",
    "A printed map",
    "The railway",
    "Its garden",
]
_VERBS = [
    "was described in",
    "was rebuilt after",
    "lies north of",
    "is named in",
    "was paid for by",
    "draws visitors from",
]
_OBJECTS = [
    "an early report",
    "the flood of that year",
    "the main road",
    "several letters",
    "the county",
    "a local newspaper",
]


@dataclass(frozen=True)
class Planted:
    """What to generate: `documents` documents of about `words` words a question."""

    kind: str
    questions: int
    documents: int = 6
    words: int = 110
    seed: int = 0

    @property
    def name(self) -> str:
        """The name of the data set: `planted-needle:6x110`."""
        return f"planted-{self.kind}:{self.documents}x{self.words}"

    def generate(self) -> Iterator[Question]:
        """Yield the questions; equal values give equal questions.

        Raises:
            ValueError: unknown kind, or more documents than there are names for.
        """
        if self.kind not in KINDS:
            raise ValueError(f"unknown planted kind {self.kind!r}: there are {', '.join(KINDS)}")
        if not 2 <= self.documents <= len(_FIRST) * len(_LAST):
            raise ValueError(
                f"a planted question needs 2 to {len(_FIRST) * len(_LAST)} documents, got {self.documents}"
            )
        rng = random.Random(f"{self.kind}-{self.documents}-{self.words}-{self.seed}")
        for number in range(self.questions):
            yield KINDS[self.kind](rng, self, f"{self.kind}{self.seed}_{number}")


@dataclass(frozen=True)
class _Fact:
    name: str
    stem: str
    question: str
    value: str

    @property
    def opening(self) -> str:
        return f"{self.name} {self.stem}"

    def __str__(self) -> str:
        return f"{self.opening} {self.value}."


def _facts(rng: random.Random, count: int) -> list[_Fact]:
    names = rng.sample([f"{first} {last}" for first in _FIRST for last in _LAST], count)
    facts = []
    for name in names:
        stem, question, values = rng.choice(_FACTS)
        facts.append(_Fact(name, stem, question.format(name=name), rng.choice(values)))
    return facts


def _filler(rng: random.Random, words: int) -> list[str]:
    """Sentences of about `words` words in all that state nothing of the kind asked for."""
    sentences: list[str] = []
    while sum(len(sentence.split()) for sentence in sentences) < words:
        sentences.append(f"{rng.choice(_SUBJECTS)} {rng.choice(_VERBS)} {rng.choice(_OBJECTS)}.")
    return sentences


def _document(rng: random.Random, number: int, words: int, fact: str) -> Doc:
    sentences = _filler(rng, words)
    sentences.insert(rng.randrange(len(sentences) + 1), fact)
    return Doc(f"p{number}", "", " ".join(sentences))


def _needle(rng: random.Random, planted: Planted, id: str) -> Question:
    facts = _facts(rng, planted.documents)
    docs = [_document(rng, number, planted.words, str(fact)) for number, fact in enumerate(facts)]
    asked = rng.randrange(len(facts))
    return _question(id, planted.name, facts[asked], docs, {asked})


def _cut(rng: random.Random, planted: Planted, id: str) -> Question:
    facts = _facts(rng, planted.documents - 1)
    starts = ["", *(f"{fact.value}. " for fact in facts)]
    ends = [*(f" {fact.opening}" for fact in facts), ""]
    docs = [
        Doc(f"p{number}", "", start + " ".join(_filler(rng, planted.words)) + end)
        for number, (start, end) in enumerate(zip(starts, ends, strict=True))
    ]
    asked = rng.randrange(len(facts))
    return _question(id, planted.name, facts[asked], docs, {asked, asked + 1})


def _hop(rng: random.Random, planted: Planted, id: str) -> Question:
    *facts, answer = _facts(rng, planted.documents)
    stem, _, values = _FACTS[0]
    answer = _Fact(answer.name, stem, "", rng.choice(values))
    link = _Fact(facts[0].name, "has a manager called", "", answer.name)
    sentences = [str(link), *map(str, facts[1:]), str(answer)]
    order = rng.sample(range(len(sentences)), len(sentences))
    docs = [_document(rng, number, planted.words, sentences[index]) for number, index in enumerate(order)]
    question = f"In which city does the manager of {link.name} live?"
    gold = {order.index(0), order.index(len(sentences) - 1)}
    asked = _Fact(f"The manager of {link.name}", stem, question, answer.value)
    return _question(id, planted.name, asked, docs, gold)


def _question(id: str, dataset: str, fact: _Fact, docs: Sequence[Doc], gold: set[int]) -> Question:
    ids = frozenset(docs[number].id for number in gold)
    return Question(id, dataset, fact.question, (fact.value,), tuple(docs), ids, fact.opening)


KINDS: dict[str, Callable[[random.Random, Planted, str], Question]] = {"needle": _needle, "cut": _cut, "hop": _hop}
