"""Measuring one question: every arm's answer, timed, and its distance to full prefill's own answer."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from app.engine_values import Sampling
from app.eval import metrics
from app.eval.arms import Arm, Reuse
from app.eval.asking import ask, chunks_for
from app.eval.data import Question
from app.eval.flops import PrefillCost
from app.eval.lab import Answer, Lab
from app.eval.metrics import LogProbs
from app.eval.outside import OutsideEngine
from app.eval.prompt import Prompt, make_prompt
from app.eval.records import AnswerRecord
from cascade.types import Passage

_STOPS = {"few": ("\n",), "chat": ()}


@dataclass(frozen=True)
class Probe:
    """How a question is asked: `answer_tokens` bounds the timed answer, `kl_tokens` the compared tokens (0: none)."""

    form: str
    answer_tokens: int
    kl_tokens: int
    seed: int


@dataclass
class _Reference:
    """Full prefill's greedy answer token by token, with the distribution that each token was taken from."""

    tokens: list[int] = field(default_factory=list)
    distributions: list[LogProbs] = field(default_factory=list)


class Measurer:
    """Asks one question in every arm, in an order drawn for each question so that drift hits all arms alike."""

    def __init__(self, lab: Lab, arms: Sequence[Arm], probe: Probe, outside: OutsideEngine | None = None) -> None:
        self._lab = lab
        self._arms = arms
        self._probe = probe
        self._outside = outside
        self._cost = PrefillCost.of_model(lab.language.model)
        self._stops = _STOPS[probe.form]
        newline = [id for text in self._stops for id in lab.language.plain.encode(text)]
        self._ends = lab.language.plain.control_ids | set(newline)

    def prompt(self, question: Question, passages: Sequence[Passage]) -> Prompt:
        return make_prompt(self._lab.language, self._probe.form, question.question, passages, question.answer_prefix)

    async def measure(self, question: Question, prompt: Prompt, retrieve_s: float) -> list[AnswerRecord]:
        """Return one record an arm, in the order of the arms. The prompt's chunks must be stored.

        retrieve_s: seconds that choosing the passages took, part of every arm's time to first token.
        """
        prompts = {arm: await chunks_for(self._lab, arm, prompt) for arm in self._arms}
        answers = await self._timed(question, prompts)
        full = answers[self._arms[0]]
        reference = await self._reference(question, prompt)
        return [
            await self._record(question, prompts[arm], arm, answers[arm], full, reference, retrieve_s)
            for arm in self._arms
        ]

    async def _timed(self, question: Question, prompts: Mapping[Arm, Prompt]) -> dict[Arm, Answer]:
        order = list(self._arms)
        random.Random(f"{self._probe.seed}-{question.id}").shuffle(order)
        return {arm: await self._time(question, prompts[arm], arm) for arm in order}

    async def _time(self, question: Question, prompt: Prompt, arm: Arm) -> Answer:
        sampling = Sampling(self._probe.answer_tokens, stop=self._stops)
        if arm.reuse is Reuse.OUTSIDE:
            assert self._outside is not None
            return await self._outside.answer(prompt, sampling)
        return await ask(self._lab, arm, prompt, sampling, self._salt(question, arm))

    async def _reference(self, question: Question, prompt: Prompt) -> _Reference:
        """Take full prefill's most likely token again and again, up to the end of its answer."""
        reference = _Reference()
        salt = self._salt(question, self._arms[0])
        while len(reference.tokens) < self._probe.kl_tokens:
            distribution = await self._next(prompt, reference.tokens, self._arms[0], salt)
            reference.distributions.append(distribution)
            reference.tokens.append(int(distribution.argmax()))
            if reference.tokens[-1] in self._ends:
                break
        return reference

    async def _record(
        self,
        question: Question,
        prompt: Prompt,
        arm: Arm,
        answer: Answer,
        full: Answer,
        reference: _Reference,
        retrieve_s: float,
    ) -> AnswerRecord:
        text = answer.text.strip()
        kl, agreement = await self._distance(question, prompt, arm, reference)
        tokens = _tokens(prompt, answer)
        computed = tokens["recomputed"] + tokens["computed"]
        return AnswerRecord(
            id=question.id,
            dataset=question.dataset,
            arm=arm.name,
            mode=arm.mode,
            budget=arm.budget,
            answer=text,
            scores=_scores(text, question.answers),
            f1_vs_full=metrics.f1(text, full.text.strip()),
            kl=kl,
            agreement=agreement,
            times={"ttft": retrieve_s + answer.ttft, "retrieve": retrieve_s, **answer.stages()},
            gaps=answer.gaps,
            tokens=tokens,
            flops_share=self._cost.share(tokens["prompt"], computed, min(computed, len(prompt.tail))),
        )

    async def _distance(
        self, question: Question, prompt: Prompt, arm: Arm, reference: _Reference
    ) -> tuple[list[float], list[float]]:
        """KL and top-1 agreement at each token of the reference; the same plan and salt make further tokens cheap."""
        kl: list[float] = []
        agreement: list[float] = []
        if arm.reuse in (Reuse.NOTHING, Reuse.OUTSIDE):
            return kl, agreement
        salt = self._salt(question, arm)
        for at, expected in enumerate(reference.distributions):
            found = await self._next(prompt, reference.tokens[:at], arm, salt)
            kl.append(metrics.kl_divergence(expected, found))
            agreement.append(metrics.top_agrees(expected, found))
        return kl, agreement

    async def _next(self, prompt: Prompt, so_far: Sequence[int], arm: Arm, salt: str) -> LogProbs:
        return await self._lab.next_token(prompt, so_far, arm.policy(prompt), salt)

    def _salt(self, question: Question, arm: Arm) -> str:
        """The timed answer is the first request of its salt; what it left in the prefix cache serves the others."""
        return f"{arm.name}-{question.dataset}-{question.id}"


def _scores(answer: str, accepted: Sequence[str]) -> dict[str, float]:
    measures = {
        "em": metrics.exact_match,
        "f1": metrics.f1,
        "rouge_l": metrics.rouge_l,
        "contains": metrics.contains,
    }
    return {name: metrics.best_of(measure, answer, accepted) for name, measure in measures.items()}


def _tokens(prompt: Prompt, answer: Answer) -> dict[str, int]:
    """Prompt tokens by origin: `reused` from chunks or the engine's cache, `recomputed` though stored, `computed`."""
    total = len(prompt.token_ids())
    report = answer.report
    recomputed = int(report["recomputed"]) if report else 0
    reused = int(report["reused"]) + int(report["cached"]) if report else answer.cached_tokens
    return {
        "prompt": total,
        "context": prompt.context_tokens,
        "reused": reused,
        "recomputed": recomputed,
        "computed": total - reused - recomputed,
        "missed_chunks": int(report["missed_chunks"]) if report else 0,
        "declined_chunks": int(report["declined_chunks"]) if report else 0,
    }
