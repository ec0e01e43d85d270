"""Recompute the tokens whose V of the second layer changes most: CacheBlend's rule (arXiv 2405.16444), the baseline."""

import torch

from fuse.policies.base import Evidence
from fuse.policies.budget import SharePolicy
from fuse.runs import Run, merge_runs


class DeviationPolicy(SharePolicy):
    """The very tokens that change most, as CacheBlend takes them: not merged into longer runs, whoever they follow.

    Merging as the other policies do lowers its KL at 15 % from 0.186 to 0.164 (34 questions).
    """

    def select(self, evidence: Evidence) -> list[Run]:
        loaded = torch.cat([torch.arange(*run) for run in evidence.loaded()] or [torch.arange(0)])
        change = evidence.deviation()[loaded]
        chosen = loaded[change.topk(round(self.share * len(loaded))).indices]
        return merge_runs((position, position + 1) for position in chosen.tolist())
