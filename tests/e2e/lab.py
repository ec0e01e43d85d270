"""A real engine with chunks of planted facts: what the fusion tests share."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.engine import Engine
from app.engine_values import EngineConfig, Generated, Sampling
from app.eval.lab import Lab as Measuring
from app.language import Language
from app.service_api import ChatMessage
from fuse.connector.config import FuseConfig
from fuse.plan import FusePlan, PolicySpec, Segment
from fuse.scheme import SaveStep
from store.config import StoreConfig
from store.keys import ChunkKey, chunk_key

_HANDBOOK = Path(__file__).parents[2] / "examples" / "handbook"


def _document(fact: str, filler: str) -> str:
    """A planted fact in the middle of 900 characters of the example handbook."""
    text = " ".join((_HANDBOOK / filler).read_text(encoding="utf-8").split())[100:1000]
    middle = text.find(". ", 450) + 2
    return f"{text[:middle]}{fact} {text[middle:]}\n\n"


FACTS = (
    _document("In Kelvara seven bridges cross the river, the oldest of them built of red stone.", "fitara.md"),
    _document("The password of the guest network is heron. It changes every spring.", "qualtrics.md"),
    _document("The Zorblax museum opened in 1974 and is run by Dr. Mira Tolen. It holds 3,400 clocks.", "equipment.md"),
    _document("The river Anset flows 212 kilometres from Mount Brell to the Bay of Kors.", "leaving-tts.md"),
    _document("Chef Paolo Renner wrote the cookbook Salt and Fire in 2003 while living in Lisbon.", "overtime.md"),
    _document("The library of Ostrand closes at nine in the evening. Its librarian is Hugo Lind.", "organization.md"),
)
QUESTION = "Who wrote the cookbook Salt and Fire?"
ANSWER = "Renner"


@dataclass(frozen=True)
class Answer:
    """A greedy answer, the first token's log-probabilities and the fusion report."""

    text: str
    first: Mapping[int, float]
    report: Mapping[str, Any]


@dataclass
class Lab:
    """An engine over its own store, and the passages saved in it."""

    engine: Engine
    language: Language
    store: StoreConfig
    passages: list[list[int]] = field(default_factory=list)
    _salts: Iterator[int] = field(default_factory=itertools.count)

    def key(self, passage: Sequence[int]) -> ChunkKey:
        return chunk_key(self.language.fingerprint, "", passage)

    async def save(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokenise and store passages; returns their token ids."""
        passages = [self.language.plain.encode(text) for text in texts]
        for passage in passages:
            steps = self.language.scheme.steps(self.key(passage), self.language.fingerprint, passage)
            await self.engine.save(steps)
        return passages

    async def save_behind_head(self, passage: Sequence[int], key: ChunkKey) -> None:
        """Store a passage as computed behind the ingest head alone."""
        head = self.language.scheme.head
        await self.engine.save([SaveStep.exact(key, self.language.fingerprint, (*head, *passage), len(head))])

    def prompt(self, passages: Sequence[Sequence[int]], question: str = QUESTION) -> list[int]:
        frame = self.language.prompts.frame([ChatMessage("user", question)])
        return [*frame.head, *itertools.chain.from_iterable(passages), *frame.tail]

    def plan(self, passages: Sequence[Sequence[int]], policy: str, **options: float) -> FusePlan:
        head = self.language.prompts.frame([ChatMessage("user", QUESTION)]).head
        segments = [Segment(len(passage), self.key(passage)) for passage in passages]
        return FusePlan(self.language.fingerprint, (Segment(len(head)), *segments), PolicySpec(policy, options))

    async def ask(
        self, prompt: Sequence[int], plan: FusePlan | None = None, salt: str | None = None, tokens: int = 16
    ) -> Answer:
        """Answer greedily; every call gets a prefix cache of its own unless `salt` is given."""
        salt = salt or f"lab-{next(self._salts)}"
        return await self.generate(prompt, plan, salt, tokens)

    async def generate(
        self, prompt: Sequence[int], plan: FusePlan | None, salt: str | None, tokens: int = 16
    ) -> Answer:
        pieces = [piece async for piece in self.engine.generate(prompt, Sampling(tokens, logprobs=20), plan, salt)]
        return _answer(pieces)

    async def misses(self) -> dict[str, int]:
        return dict((await self.engine.store_stats())["engine"]["misses"])

    def files(self, key: ChunkKey) -> list[Path]:
        """The chunk's files in every tier."""
        found = [*Path(self.store.memory_dir).rglob(f"{key}*"), *Path(self.store.disk_dir).rglob(f"{key}*")]
        assert found, f"chunk {key} is in no tier"
        return found


def measuring(parts: Lab, kind: type[Measuring] = Measuring) -> Measuring:
    """The evaluation's own lab over this engine and store."""
    return kind(parts.engine, parts.language, parts.store, passage_tokens=300)


def _answer(pieces: Sequence[Generated]) -> Answer:
    return Answer("".join(piece.text for piece in pieces), pieces[0].logprobs[0], pieces[-1].report)


def engine_config(language: Language, store: StoreConfig, dtype: str = "bfloat16", **options: Any) -> EngineConfig:
    connector = FuseConfig(store).to_extra_config()
    return EngineConfig(language.model, dtype, connector, max_model_len=4096, kv_cache_gib=1, **options)


def largest_difference(first: Mapping[int, float], second: Mapping[int, float]) -> float:
    """Largest difference between two answers' log-probabilities over the tokens that both rank in their top 20."""
    both = first.keys() & second.keys()
    assert len(both) >= 15, "the two distributions rank different tokens"
    return max(abs(first[token] - second[token]) for token in both)


def replace_file(file: Path, data: bytes | bytearray) -> None:
    """Write another file in place of `file`, as a broken disk or copy would leave it; readers keep their map."""
    scratch = file.with_suffix(".damage")
    scratch.write_bytes(data)
    scratch.replace(file)
