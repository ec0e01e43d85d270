"""A tiny model in float32 whose engine runs in a process of its own, where the connector can be watched at work."""

import asyncio
import itertools
import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from vllm.distributed.kv_transfer import get_kv_transfer_group

from app.engine_values import EngineConfig, Generated, Sampling
from app.language import Language
from fuse.connector.config import FuseConfig
from fuse.plan import FusePlan, PolicySpec, Segment
from fuse.rope import RotaryTable
from fuse.runs import Run
from store.config import StoreConfig
from store.keys import ChunkKey, chunk_key
from tests.e2e.inline import InlineEngine
from tests.e2e.models import TinyModel

BATCH = 128
"""Tokens of one engine step: contexts and recomputes are cut into several."""
LIMIT = 1024
"""Tokens of the model's context."""

PASSAGES = (
    "The ferry to Ostrand leaves at nine from the northern pier. It carries forty cars and a cargo of red bricks.\n\n",
    "Ilse Brandt bought the old mill in spring. She repaired its wheel and now grinds rye for three villages.\n\n",
    "A storm took the roof of the boathouse in November; the club has met in the school ever since.\n\n",
    "The observatory opens on clear nights only. Its larger telescope was ground by hand in 1911 and still turns.\n\n",
    ".",
)
"""Stored before the first question. The last one is a single token."""
QUESTION = "The ferry to Ostrand leaves at"

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Asked:
    """A prompt: the head, `passages`, and `tail`. An ordinary prefill if `policy` is None.

    lost: places of passages whose chunks the store does not have. salt: one of its own if None, none at all if "".
    """

    passages: tuple[str, ...] = PASSAGES
    policy: PolicySpec | None = None
    tail: str = QUESTION
    lost: tuple[int, ...] = ()
    salt: str | None = None


@dataclass(frozen=True)
class Reply:
    """Log-probabilities of the first token, the report, and the runs of each recompute pass."""

    first: Mapping[int, float]
    report: Mapping[str, Any]
    passes: Sequence[Sequence[Run]]


@dataclass
class Tiny:
    """The engine and its model, in the engine's process. Requests are asked one call at a time."""

    engine: InlineEngine
    language: Language
    store: StoreConfig
    folder: Path
    rotary: RotaryTable
    block_size: int
    passes: list[list[Run]] = field(default_factory=list)
    _salts: Iterator[int] = field(default_factory=itertools.count)

    @classmethod
    async def start(cls, folder: Path, tokenizer: Path, overrides: Mapping[str, Any]) -> "Tiny":
        rotary = TinyModel("llama", "llama", {"num_hidden_layers": 4}).write(folder / "model", tokenizer)
        assert rotary is not None
        language = Language.load(folder / "model", "float32")
        store = StoreConfig(folder / "memory", folder / "disk", codec="raw")
        connector = FuseConfig(store).to_extra_config()
        blocks = 2 * LIMIT // overrides["block_size"]
        config = EngineConfig(language.model, "float32", connector, LIMIT, BATCH, num_gpu_blocks=blocks)
        engine = InlineEngine(config, overrides)
        await engine.start()
        assert engine.fusable, engine.refusal
        tiny = cls(engine, language, store, folder / "model", rotary, overrides["block_size"])
        for text in PASSAGES:
            tokens = tiny.tokens(text)
            await engine.save(language.scheme.steps(tiny.key(text), language.fingerprint, tokens))
        tiny._watch()
        return tiny

    def tokens(self, text: str) -> list[int]:
        return self.language.plain.encode(text)

    def key(self, text: str, salt: str = "") -> ChunkKey:
        return chunk_key(self.language.fingerprint, salt, self.tokens(text))

    def prompt(self, asked: Asked) -> list[int]:
        return [*self.language.scheme.head, *itertools.chain(*map(self.tokens, (*asked.passages, asked.tail)))]

    def plan(self, asked: Asked) -> FusePlan | None:
        if asked.policy is None:
            return None
        keys = [self.key(text, "lost" if at in asked.lost else "") for at, text in enumerate(asked.passages)]
        segments = [Segment(len(self.tokens(text)), key) for text, key in zip(asked.passages, keys, strict=True)]
        return FusePlan(self.language.fingerprint, (Segment(len(self.language.scheme.head)), *segments), asked.policy)

    async def ask(self, asked: Asked) -> Reply:
        return await self.send(self.prompt(asked), self.plan(asked), asked.salt)

    async def ask_at_once(self, questions: Sequence[Asked]) -> list[Reply]:
        return list(await asyncio.gather(*map(self.ask, questions)))

    async def send(self, prompt: Sequence[int], plan: FusePlan | None, salt: str | None = None) -> Reply:
        salt = f"tiny-{next(self._salts)}" if salt is None else salt or None
        before = len(self.passes)
        sampling = Sampling(1, logprobs=20)
        pieces: list[Generated] = [piece async for piece in self.engine.generate(prompt, sampling, plan, salt)]
        return Reply(pieces[0].logprobs[0], pieces[-1].report, self.passes[before:])

    def _watch(self) -> None:
        """Note the runs of every recompute pass."""
        connector: Any = get_kv_transfer_group()
        model = connector.attached._model
        recompute = model.recompute

        def noted(runs: Sequence[Run], *arguments: Any) -> None:
            self.passes.append(list(runs))
            recompute(runs, *arguments)

        model.recompute = noted


class TinyProcess:
    """Calls coroutine functions with the `Tiny` of another process."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool

    def __call__(self, function: Callable[Concatenate[Tiny, P], Any], *arguments: P.args, **options: P.kwargs) -> Any:
        return self._pool.submit(_run, function, arguments, options).result()

    def ask(self, passages: tuple[str, ...] = PASSAGES, policy: PolicySpec | None = None, **more: Any) -> Reply:
        reply: Reply = self(Tiny.ask, Asked(passages, policy, **more))
        return reply


@contextmanager
def tiny_process(folder: Path, tokenizer: Path, **overrides: Any) -> Iterator[TinyProcess]:
    """Start the model in a process of its own; `overrides` are further arguments of vLLM, `block_size` among them."""
    context = multiprocessing.get_context("forkserver")
    with ProcessPoolExecutor(1, context, initializer=_start, initargs=(folder, tokenizer, overrides)) as pool:
        yield TinyProcess(pool)


_runner = asyncio.Runner()
_started: list[Tiny] = []


def _start(folder: Path, tokenizer: Path, overrides: Mapping[str, Any]) -> None:
    _started.append(_runner.run(Tiny.start(folder, tokenizer, overrides)))


def _run(function: Callable[..., Any], arguments: Sequence[Any], options: Mapping[str, Any]) -> Any:
    return _runner.run(function(_started[0], *arguments, **options))
