"""What goes into the engine and comes out of it: configuration, sampling, pieces of answers, stored bytes."""

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from app.config import Settings
from fuse.connector.config import FuseConfig
from store.config import StoreConfig


class EngineError(RuntimeError):
    """The engine is not running, or could not do what it was asked."""


class EngineDown(EngineError):
    """The engine does not answer, or failed in the middle of a request: another one may do better."""


@dataclass(frozen=True)
class EngineConfig:
    """How to run the model; `connector` is the `kv_connector_extra_config`. None leaves the choice to vLLM.

    num_gpu_blocks: blocks of the paged cache, on whatever device; by default as many as fit.
    """

    model: Path
    dtype: str
    connector: Mapping[str, Any]
    max_model_len: int | None = None
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    kv_cache_gib: float | None = None
    num_gpu_blocks: int | None = None
    tensor_parallel_size: int = 1
    enforce_eager: bool | None = None
    log_level: str = "error"

    @classmethod
    def of(cls, settings: Settings, model: Path, store: StoreConfig) -> "EngineConfig":
        """Return what `settings` say of the engine, for the model in folder `model` over `store`."""
        return cls(
            model=model,
            dtype=settings.dtype,
            connector=FuseConfig(store, settings.store_threads, settings.home).to_extra_config(),
            max_model_len=settings.max_model_len,
            max_num_batched_tokens=settings.max_num_batched_tokens,
            max_num_seqs=settings.max_num_seqs,
            kv_cache_gib=settings.kv_cache_gib,
            tensor_parallel_size=settings.tensor_parallel_size,
            enforce_eager=settings.enforce_eager,
            log_level="info" if settings.log_level == "debug" else "error",
        )

    def on(self, cpu: bool) -> "EngineConfig":
        """Fill in what depends on the platform: a CPU runs uncompiled, few requests at once, over a small cache."""
        if not cpu:
            return self
        return replace(
            self,
            max_num_seqs=self.max_num_seqs or 16,
            kv_cache_gib=self.kv_cache_gib or 2.0,
            enforce_eager=True if self.enforce_eager is None else self.enforce_eager,
        )

    def to_vllm(self) -> dict[str, Any]:
        """Return the arguments of vLLM by their names, JSON-ready; what is left to vLLM is not among them."""
        arguments = {
            "model": str(self.model),
            "dtype": self.dtype,
            "max_model_len": self.max_model_len,
            "max_num_batched_tokens": self.max_num_batched_tokens,
            "max_num_seqs": self.max_num_seqs,
            "max_logprobs": -1,
            "enable_prefix_caching": True,
            "enforce_eager": self.enforce_eager,
            "tensor_parallel_size": self.tensor_parallel_size,
            "kv_cache_memory_bytes": None if self.kv_cache_gib is None else int(self.kv_cache_gib * 2**30),
            "num_gpu_blocks_override": self.num_gpu_blocks,
            "worker_cls": "fuse.connector.vllm_worker.VllmWorker",
            "kv_transfer_config": {
                "kv_connector": "FuseConnector",
                "kv_connector_module_path": "fuse.connector.connector",
                "kv_role": "kv_both",
                "kv_connector_extra_config": dict(self.connector),
            },
        }
        return {name: value for name, value in arguments.items() if value is not None}


@dataclass(frozen=True)
class Sampling:
    """How to decode. `logprobs` -1 asks for the whole vocabulary; the answer then has no text."""

    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    logprobs: int | None = None


@dataclass(frozen=True)
class Generated:
    """The next piece of an answer. On the last one `finish_reason` is set, and `report` says how its context was fused.

    report: fields of `fuse.connector.metadata.FuseReport`; empty for an ordinary prefill.
    logprobs: one mapping of token id to log-probability per token, when asked for.
    """

    text: str
    token_ids: tuple[int, ...]
    cached_tokens: int
    finish_reason: str | None
    report: Mapping[str, Any]
    logprobs: tuple[Mapping[int, float], ...] = ()

    @property
    def tokens(self) -> int:
        return len(self.token_ids)


@dataclass(frozen=True)
class Saved:
    """Bytes of stored chunks."""

    raw_bytes: int
    stored_bytes: int

    def __add__(self, other: "Saved") -> "Saved":
        return Saved(self.raw_bytes + other.raw_bytes, self.stored_bytes + other.stored_bytes)

    def __sub__(self, other: "Saved") -> "Saved":
        return Saved(self.raw_bytes - other.raw_bytes, self.stored_bytes - other.stored_bytes)

    @classmethod
    async def result(cls, key: str, waiting: Awaitable[Mapping[str, Any]]) -> "Saved":
        """Return what the save of chunk `key` came to, of which `waiting` gives the `SaveResult` fields.

        Raises:
            EngineError: the chunk could not be stored.
        """
        try:
            found = await waiting
        except (TimeoutError, ConnectionError) as error:
            raise EngineError(f"chunk {key[:16]} was not stored: {error or 'it took too long'}") from error
        if found["error"]:
            raise EngineError(f"chunk {key[:16]} could not be stored: {found['error']}")
        return cls(found["raw_bytes"], found["stored_bytes"])
