"""Asking one prompt the way of an arm: over which chunks, by which policy, with what in the engine's prefix cache."""

from dataclasses import replace

from app.engine_values import Sampling
from app.eval.arms import Arm, Reuse
from app.eval.lab import Answer, Lab
from app.eval.prompt import Prompt

_WARM_UP = "Say yes."


async def chunks_for(lab: Lab, arm: Arm, prompt: Prompt) -> Prompt:
    """The prompt over the chunks that the arm reuses, which are stored when this returns; its own must be before."""
    if arm.reuse is Reuse.ALONE:
        return await lab.alone(prompt)
    return lab.misplaced(prompt) if arm.reuse is Reuse.MISPLACED else prompt


async def ask(lab: Lab, arm: Arm, prompt: Prompt, sampling: Sampling, salt: str) -> Answer:
    """Answer a prompt of `chunks_for` once; a `salt` never used before measures cold, but for what the arm has warm."""
    if arm.reuse in (Reuse.PREFIX, Reuse.REORDERED):
        order = prompt.passages if arm.reuse is Reuse.PREFIX else prompt.passages[::-1]
        earlier = replace(prompt, passages=order, tail=tuple(lab.language.plain.encode(_WARM_UP)))
        await lab.answer(earlier, None, Sampling(1), salt)
    return await lab.answer(prompt, arm.policy(prompt), sampling, salt)
