"""One engine whose recomputes begin while their chunks are still being loaded, as on a GPU."""

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from vllm.distributed.kv_transfer import get_kv_transfer_group

from app.language import Language
from fuse.connector.landing import Landing
from fuse.connector.loader import Load
from store.config import StoreConfig
from tests.e2e.inline import Beside, InlineEngine
from tests.e2e.lab import FACTS, Answer, Lab, engine_config, replace_file
from tests.e2e.models import TinyModel

POLICIES: Mapping[str, Mapping[str, float]] = {
    "none": {},
    "boundary": {"tokens": 16},
    "deviation": {"share": 0.15},
    "hybrid": {"share": 0.15},
    "full": {},
}
_LAYERS = 6
_HELD_FROM = 5
"""The layer from which on none is loaded before a pass waits for it; watching the question goes as far as layer 4."""
_PATIENCE_S = 20.0


@dataclass
class Overlap:
    """after, during: answers by policy, of recomputes that began after and during the load. awaited: how often a layer
    was held until it was waited for. gone, damaged: answers without a chunk of `lost_tokens` that was gone from the
    start, or whose last layer turned out to be damaged.
    """

    after: dict[str, Answer] = field(default_factory=dict)
    during: dict[str, Answer] = field(default_factory=dict)
    awaited: dict[str, int] = field(default_factory=dict)
    gone: Answer | None = None
    damaged: Answer | None = None
    lost_tokens: int = 0


def overlap(folder: Path, tokenizer: Path) -> Overlap:
    """Make a model, start an engine in this process and ask it both ways. Once a process."""
    TinyModel("llama", "llama", {"num_hidden_layers": _LAYERS}).write(folder / "model", tokenizer)
    return asyncio.run(_overlap(folder))


async def _overlap(folder: Path) -> Overlap:
    language = Language.load(folder / "model", "bfloat16", passes=2)
    store = StoreConfig(folder / "memory", folder / "disk")
    engine = InlineEngine(engine_config(language, store), {"max_model_len": 2048})
    await engine.start()
    assert engine.fusable, engine.refusal
    return await _compare(Lab(engine, language, store))


async def _compare(lab: Lab) -> Overlap:
    found, passages = Overlap(), await lab.save(FACTS)
    prompt = lab.prompt(passages)
    model: Any = get_kv_transfer_group().attached._model
    for policy, options in POLICIES.items():
        plan = lab.plan(passages, policy, **options)
        found.after[policy] = await lab.ask(prompt, plan)
        with mock.patch.object(model, "staging", Beside()), _held() as awaited:
            found.during[policy] = await lab.ask(prompt, plan)
        found.awaited[policy] = len(awaited)
    plan, found.lost_tokens = lab.plan(passages, "boundary", tokens=16), len(passages[2])
    files = lab.files(lab.key(passages[2]))
    for file in files:
        _damage_the_last_layer(file)
    with mock.patch.object(model, "staging", Beside()), _held():
        found.damaged = await lab.ask(prompt, plan)
    assert not any(file.exists() for file in files)
    found.gone = await lab.ask(prompt, plan)
    return found


@contextmanager
def _held() -> Iterator[list[int]]:
    """Hold the last layers of every load until they are waited for; yields those that were, one entry a layer."""
    due, awaited = threading.Event(), list[int]()
    prepare, reach = Load._prepare, Landing.reach

    def held(self: Load, layer: int) -> Any:
        if layer >= _HELD_FROM and due.wait(_PATIENCE_S):
            awaited.append(layer)
        return prepare(self, layer)

    def waiting(self: Landing, layer: int) -> None:
        if layer >= _HELD_FROM:
            due.set()
        reach(self, layer)

    with mock.patch.object(Load, "_prepare", held), mock.patch.object(Landing, "reach", waiting):
        yield awaited


def _damage_the_last_layer(file: Path) -> None:
    """Flip a bit near the end."""
    data = bytearray(file.read_bytes())
    data[-1000] ^= 0x10
    replace_file(file, data)
