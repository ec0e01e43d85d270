"""What benchmarks read: the passages of the example handbook."""

from pathlib import Path

from app.eval.errors import EvalError
from app.eval.lab import Lab
from cascade.types import MediaType, Passage

HANDBOOK = Path(__file__).parents[3] / "examples" / "handbook"
QUESTION = "How often does the Center Check-in take place?"


def longest_passages(lab: Lab, count: int) -> list[Passage]:
    """The `count` longest passages, longest first.

    Raises:
        EvalError: the handbook gives fewer.
    """
    made = _passages(lab)
    if len(made) < count:
        raise EvalError(f"{HANDBOOK.name} gives {len(made)} passages, {count} are asked for")
    return made[:count]


def passages_of(lab: Lab, tokens: int) -> list[Passage]:
    """The longest passages that have at most `tokens` tokens together.

    Raises:
        EvalError: the handbook gives far fewer tokens.
    """
    chosen, total = list[Passage](), 0
    for passage in _passages(lab):
        if total + len(passage.token_ids) <= tokens:
            chosen.append(passage)
            total += len(passage.token_ids)
    if total < 0.9 * tokens:
        raise EvalError(f"{HANDBOOK.name} gives {total} tokens, {tokens} are asked for")
    return chosen


def _passages(lab: Lab) -> list[Passage]:
    """Every passage, longest first."""
    made = [
        passage
        for file in sorted(HANDBOOK.glob("*.md"))
        for passage in lab.passages(file.stem, file.stem.replace("-", " "), file.read_text("utf-8"), MediaType.MARKDOWN)
    ]
    if not made:
        raise EvalError(f"{HANDBOOK} is not there: benchmarks of the engine need a checkout of the source")
    return sorted(made, key=lambda passage: -len(passage.token_ids))
