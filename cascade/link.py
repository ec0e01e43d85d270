"""Documents that name each other: the second step of questions that need two."""

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cascade.types import Passage

BONUS = 2.0  # standard deviations; 1 and 1.5 gave less on the multi-hop sets, none changed the others
MIN_TITLE_CHARS = 4

_QUALIFIER = re.compile(r"\s*\([^)]*\)$")  # "Mercury (planet)" is named as "Mercury"


def link_bonus(scores: NDArray[np.float64], passages: Sequence[Passage], bonus: float = BONUS) -> NDArray[np.float64]:
    """Raise the passages whose document is named in the text of the best one, to just below it at most.

    `scores` `[passages]` are z-scores. The best passage keeps its place: who is named there comes next. Passages under
    its own title are of the same subject and no second step.
    """
    if not len(scores):
        return scores
    at = int(np.argmax(scores))
    top = passages[at]
    raised = np.minimum(scores + bonus, np.nextafter(scores[at], -np.inf))
    linked = [
        passage.document_id != top.document_id and passage.title != top.title and _names(top.text, passage.title)
        for passage in passages
    ]
    return np.where(linked, np.maximum(scores, raised), scores)


def _names(text: str, title: str) -> bool:
    name = _QUALIFIER.sub("", title)
    if len(name) < MIN_TITLE_CHARS:
        return False
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text, re.IGNORECASE) is not None
