"""Recompute the first tokens of every passage, where a chunk computed alone differs most (EPIC, arXiv 2410.15332)."""

from dataclasses import dataclass
from typing import ClassVar

from fuse.errors import PlanError
from fuse.policies.base import Evidence
from fuse.runs import Run, merge_runs

DEFAULT_TOKENS = 32


@dataclass(frozen=True)
class BoundaryPolicy:
    """`tokens`: how many tokens at the start of each passage are recomputed, at least 0."""

    query_aware: ClassVar[bool] = False

    tokens: float = DEFAULT_TOKENS

    def __post_init__(self) -> None:
        if self.tokens < 0 or self.tokens != int(self.tokens):
            raise PlanError(f"boundary tokens must be a whole number of at least 0, got {self.tokens}")

    def select(self, evidence: Evidence) -> list[Run]:
        count = int(self.tokens)
        return merge_runs((start, min(start + count, end)) for start, end in evidence.loaded())
