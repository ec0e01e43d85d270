"""A run: every arm on every question in one process; resumable from `results.jsonl`."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import gettempdir
from typing import Any

from tqdm import tqdm

from app.config import Settings
from app.eval.arms import Arm, make_arms
from app.eval.data import Question, load_questions
from app.eval.errors import EvalError
from app.eval.lab import Lab
from app.eval.library import Found, Library, all_passages
from app.eval.measure import Measurer, Probe
from app.eval.outside import OutsideEngine, outside_engine
from app.eval.prompt import FORMATS, Prompt
from app.eval.records import QuestionRecord, Record, ResultFile
from app.eval.run_file import RunFile
from app.eval.running import run_to_end
from app.eval.scratch import Scratch
from app.eval.store_use import store_use
from cascade.types import Passage

PASSAGES = ("all", "cascade")


@dataclass(frozen=True)
class RunSpec:
    """Everything that decides what a run measures. A run is resumed only by an equal spec."""

    data: tuple[str, ...]
    modes: tuple[str, ...]
    budgets: tuple[float, ...] = (0.15,)
    passages: str = "all"
    form: str = "chat"
    limit: int | None = None
    seed: int = 0
    answer_tokens: int = 24
    kl_tokens: int = 8
    engine_url: str | None = None

    def __post_init__(self) -> None:
        if not self.data:
            raise EvalError("no data set is named")
        if self.passages not in PASSAGES:
            raise EvalError(f"passages are {' or '.join(PASSAGES)}, not {self.passages!r}")
        if self.form not in FORMATS:
            raise EvalError(f"unknown prompt format {self.form!r}: there are {', '.join(FORMATS)}")
        if "outside" in self.modes and self.engine_url is None:
            raise EvalError("mode 'outside' needs --engine-url")
        self.arms()

    def arms(self) -> list[Arm]:
        outside = ("outside",) if self.engine_url else ()
        return make_arms((*self.modes, *outside), self.budgets)


class Run:
    """One run in its folder: `run.json`, `results.jsonl`."""

    def __init__(self, spec: RunSpec, settings: Settings, out: Path) -> None:
        self._spec = spec
        self._settings = settings
        self._out = out
        self._questions = load_questions(spec.data, spec.limit, spec.seed)
        self.results = ResultFile(out / "results.jsonl")

    async def measure(self) -> None:
        """Start an engine and measure what is not measured yet.

        Raises:
            EvalError: the folder holds a run of another spec, or the engine cannot do what is asked.
        """
        if self.waiting():
            async with self._workplace() as asker:
                await self.work_off(asker)

    def waiting(self) -> list[Question]:
        """Claim the folder; return the questions that it holds no result of. Raises EvalError as `measure` does."""
        RunFile(self._out).claim(asdict(self._spec), self._of_settings())
        finished = self.results.resume()
        return [question for question in self._questions if (question.dataset, question.id) not in finished]

    async def work_off(self, asker: "Asker") -> None:
        """Ask every question that is waiting."""
        waiting, total = self.waiting(), len(self._questions)
        with tqdm(total=total, initial=total - len(waiting), desc="Questions", unit="question") as bar:
            for question in waiting:
                self.results.append(await asker.ask(question))
                bar.update()

    def _of_settings(self) -> dict[str, Any]:
        settings = self._settings
        names = (
            "dtype",
            "codec",
            "codec_backend",
            "ingest_passes",
            "passage_tokens",
            "top_k",
            "selector",
            "reranker",
            "context_tokens",
            "max_num_batched_tokens",
        )
        return {"model": settings.model_name, **{name: getattr(settings, name) for name in names}}

    @asynccontextmanager
    async def _workplace(self) -> AsyncIterator["Asker"]:
        spec = self._spec
        async with AsyncExitStack() as stack:
            outside = await stack.enter_async_context(outside_engine(spec.engine_url)) if spec.engine_url else None
            lab = await stack.enter_async_context(Lab.open(self._settings))
            library = await self._library(stack, lab) if spec.passages == "cascade" else None
            yield Asker.of(spec, lab, library, outside)

    async def _library(self, stack: AsyncExitStack, lab: Lab) -> Library:
        from app.models import prepare_models
        from cascade.embed import Embedder

        settings = self._settings
        embedder = Embedder(settings.embedder or prepare_models(settings.home).embedder)
        folder = stack.enter_context(Scratch(Path(gettempdir())))
        opened = Library.open(lab, folder, embedder, settings)
        library = await stack.enter_async_context(opened)
        for question in tqdm(self._questions, desc="Indexing documents", unit="question"):
            await library.add(question.docs)
        return library


@dataclass(frozen=True)
class Asker:
    """Takes one question from its documents to its records."""

    lab: Lab
    measurer: Measurer
    library: Library | None
    answer_tokens: int

    @classmethod
    def of(
        cls, spec: RunSpec, lab: Lab, library: Library | None = None, outside: OutsideEngine | None = None
    ) -> "Asker":
        """An asker for the arms and the probe of a spec."""
        probe = Probe(spec.form, spec.answer_tokens, spec.kl_tokens, spec.seed)
        return cls(lab, Measurer(lab, spec.arms(), probe, outside), library, spec.answer_tokens)

    async def ask(self, question: Question) -> list[Record]:
        """Return the records of one question, its own last; one that does not fit the model is left out and says so."""
        found = await self._find(question)
        prompt = self.measurer.prompt(question, found.passages)
        record = _question_record(question, found)
        if reason := self._misfit(prompt):
            return [replace(record, left_out=reason)]
        before = await self.lab.store_stats()
        saved = await self.lab.bank(found.passages)
        answers = await self.measurer.measure(question, prompt, sum(found.select_s.values()))
        record = replace(
            record,
            raw_bytes=saved.raw_bytes,
            stored_bytes=saved.stored_bytes,
            layer_bytes=self.lab.layer_bytes(found.passages),
            store=store_use(before, await self.lab.store_stats()),
        )
        return [*answers, record]

    async def _find(self, question: Question) -> Found:
        if self.library is not None:
            return await self.library.find(question)
        return all_passages(self.lab, question)

    def _misfit(self, prompt: Prompt) -> str:
        needed, limit = len(prompt.token_ids()) + self.answer_tokens, self.lab.engine.max_model_len
        if not prompt.passages:
            return "no passage was found"
        return f"{needed} tokens with the answer, the model reads {limit}" if needed > limit else ""


def run_eval(spec: RunSpec, settings: Settings, out: Path) -> Run:
    """Measure a run to its end."""
    run = Run(spec, settings, out)
    run_to_end(run.measure())
    return run


def _question_record(question: Question, found: Found) -> QuestionRecord:
    return QuestionRecord(
        id=question.id,
        dataset=question.dataset,
        question=question.question,
        answers=question.answers,
        gold=sorted(question.gold),
        passages=[_passage(*named) for named in zip(found.passages, found.documents, strict=True)],
        ranking=found.ranking,
        select_s=found.select_s,
    )


def _passage(passage: Passage, document: str) -> dict[str, str]:
    return {"document": document, "title": passage.title, "text": passage.text}
