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
    made = [
        passage
        for file in sorted(HANDBOOK.glob("*.md"))
        for passage in lab.passages(file.stem, file.stem.replace("-", " "), file.read_text("utf-8"), MediaType.MARKDOWN)
    ]
    if len(made) < count:
        raise EvalError(f"{HANDBOOK.name} gives {len(made)} passages, {count} are asked for")
    return sorted(made, key=lambda passage: -len(passage.token_ids))[:count]
