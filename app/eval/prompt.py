"""Prompts by format name: the tokens before the passages, the passages, the tokens after them.

`chat` is the service's own format. `few` is a two-shot plain text: very small models follow only that one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.eval.errors import EvalError
from app.language import Language
from app.service_api import ChatMessage
from cascade.types import Passage
from fuse.plan import FusePlan, PolicySpec, Segment
from store.keys import ChunkKey

_SHOTS = """Answer each question in a few words, from its passages.

Passage: The Harbour Museum
The Harbour Museum opened in 1931 in a former grain store. It shows tools, maps and three fishing boats.

Question: When did the Harbour Museum open?
Answer: 1931

Passage: Lena Ortiz
Lena Ortiz is a botanist. She spent nine years on Madeira and described forty kinds of moss.

Question: What did Lena Ortiz describe?
Answer: forty kinds of moss

Passage: """


@dataclass(frozen=True)
class Prompt:
    """Token ids `head + passages + tail`; passages bring their own ids.

    fingerprint: of the model and the ingest scheme that the passages' chunks are stored under.
    """

    head: tuple[int, ...]
    passages: tuple[Passage, ...]
    tail: tuple[int, ...]
    fingerprint: str

    @property
    def context_tokens(self) -> int:
        """Tokens of head and passages, those that a plan covers."""
        return len(self.head) + sum(len(passage.token_ids) for passage in self.passages)

    def token_ids(self) -> list[int]:
        """The whole prompt."""
        return [*self.head, *(token for passage in self.passages for token in passage.token_ids), *self.tail]

    def plan(self, policy: PolicySpec, head: Segment) -> FusePlan:
        """Take every passage from its chunk, and the head from where `head` says."""
        segments = [Segment(len(passage.token_ids), ChunkKey(passage.chunk_key)) for passage in self.passages]
        return FusePlan(self.fingerprint, (head, *segments), policy)


Frame = Callable[[Language, str, str], tuple[Sequence[int], Sequence[int]]]
"""`(language, question, answer_prefix) -> (head, tail)`."""


def _chat(language: Language, question: str, answer_prefix: str) -> tuple[Sequence[int], Sequence[int]]:
    frame = language.prompts.frame([ChatMessage("user", question)])
    return frame.head, (*frame.tail, *language.plain.encode(answer_prefix))


def _few(language: Language, question: str, answer_prefix: str) -> tuple[Sequence[int], Sequence[int]]:
    lead = f" {answer_prefix}" if answer_prefix else ""
    return language.plain.encode(_SHOTS), language.plain.encode(f"Question: {question}\nAnswer:{lead}")


FORMATS: dict[str, Frame] = {"chat": _chat, "few": _few}


def make_prompt(
    language: Language, form: str, question: str, passages: Sequence[Passage], answer_prefix: str = ""
) -> Prompt:
    """Build a question's prompt in format `form`; `answer_prefix` is the forced beginning of the answer.

    Raises:
        EvalError: there is no such format; the message lists those there are.
    """
    if form not in FORMATS:
        raise EvalError(f"unknown prompt format {form!r}: there are {', '.join(FORMATS)}")
    head, tail = FORMATS[form](language, question, answer_prefix)
    return Prompt(tuple(head), tuple(passages), tuple(tail), language.fingerprint)
