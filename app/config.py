"""Settings: one frozen, typed object, parsed once. Command line over environment over YAML over defaults."""

import hashlib
import os
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from app.errors import ConfigError
from app.no_context import NoContext
from store.config import StoreConfig
from store.deflate import Backend

ENV_PREFIX = "KVFUSE_"
PACKAGED_MODEL_NAME = "smollm2-135m-instruct"
Policy = Literal["none", "boundary", "deviation", "variance", "query", "hybrid", "full"]


def default_memory_dir(home: Path) -> Path:
    """A directory on tmpfs, one for each user and home; ``home/memory`` where the system has no tmpfs."""
    shared_memory = Path("/dev/shm")
    if not os.access(shared_memory, os.W_OK):
        return home / "memory"
    digest = hashlib.sha256(str(home.absolute()).encode()).hexdigest()[:8]
    return shared_memory / f"kvfuse-{os.getuid()}-{digest}"


class Settings(BaseSettings):
    """Every setting; each is a flag (``--top-k``), a variable (``KVFUSE_TOP_K``) and a YAML key (``top_k``)."""

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, env_ignore_empty=True, frozen=True, extra="forbid")

    config: Path | None = Field(None, description="YAML file with settings.")
    home: Path = Field(Path("~/.cache/kvfuse"), validate_default=True, description="Folder for models and data.")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least severe level logged.")

    model: Path | None = Field(None, description="Main model's folder; the packaged SmolLM2-135M if none.")
    embedder: Path | None = Field(None, description="Embedding model's folder; the packaged MiniLM if none.")
    served_model_name: str | None = Field(None, min_length=1, description="Model name in the API.")
    dtype: Literal["bfloat16", "float16", "float32"] = Field("bfloat16", description="Type of weights and K/V.")
    max_model_len: int | None = Field(None, ge=256, description="Context length in tokens; the model's own if none.")
    max_num_batched_tokens: int | None = Field(None, ge=64, description="Tokens in one engine step.")
    max_num_seqs: int | None = Field(
        None, ge=1, le=1024, description="Requests the engine runs at once; 16 on a CPU, else vLLM's choice if none."
    )
    kv_cache_gib: float | None = Field(
        None, gt=0, description="Paged K/V cache of the engine, in GiB; 2 on a CPU, else vLLM's choice if none."
    )
    tensor_parallel_size: int = Field(1, ge=1, description="Devices that share the model's layers.")
    enforce_eager: bool | None = Field(None, description="Run the model uncompiled; by default on CPU only.")

    engine_urls: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="Engine servers to use, separated by commas; an engine in this process if none."
    )
    engine_api_key: SecretStr = Field(SecretStr(""), description="Key that the engine servers ask for.")

    host: str = Field("127.0.0.1", min_length=1, description="Address to listen on.")
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on; 0 picks a free one.")
    api_keys: Annotated[tuple[SecretStr, ...], NoDecode] = Field(
        (), description="Keys that open /v1, separated by commas; open to all if none."
    )
    tenant_salt: str = Field("", description="Separates the K/V of tenants that share a store.")
    max_upload_bytes: int = Field(20 * 2**20, ge=1, description="Largest uploaded file, in bytes.")
    request_timeout_s: float = Field(300.0, gt=0, description="Longest time for one answer, in seconds.")

    memory_dir: Path = Field(
        default_factory=lambda data: default_memory_dir(data["home"]), description="Memory tier's folder, on tmpfs."
    )
    memory_capacity_gib: float = Field(2.0, gt=0, description="Size of the memory tier, in GiB.")
    disk_dir: Path = Field(default_factory=lambda data: data["home"] / "chunks", description="Disk tier's folder.")
    disk_capacity_gib: float = Field(50.0, gt=0, description="Size of the disk tier, in GiB.")
    remote_url: str = Field("", description="Remote tier: s3://bucket/folder, gs://..., az://..., file:///...")
    eviction_policy: Literal["lru", "gdsf"] = Field("lru", description="What leaves a full tier first.")
    memory_idle_s: float = Field(0.0, ge=0, description="Seconds unused until K/V sinks to disk; 0 is never.")
    disk_idle_s: float = Field(0.0, ge=0, description="Seconds unused until K/V leaves the disk tier; 0 is never.")
    codec: str = Field("a4-deflate", min_length=1, description="Codec chain of stored K/V.")
    codec_backend: Literal["auto", "hardware", "software"] = Field("auto", description="Where deflate runs.")
    store_threads: int = Field(2, ge=1, le=256, description="Threads that encode and decode K/V.")

    passage_tokens: int = Field(300, ge=64, le=8192, description="Longest passage, in tokens of the main model.")
    top_k: int = Field(6, ge=1, le=100, description="Most passages in one answer's context.")
    selector: Literal["gap", "top_k"] = Field(
        "gap", description="Passages that score nearly as well as the best one, or always the best."
    )
    reranker: Literal["zsum3", "zsum3+lm", "none", "server", "cross-encoder"] = Field(
        "zsum3", description="How candidates are put in order after search; lm asks the main model about each."
    )
    rerank_url: str = Field("", description="Server with /v1/rerank (vLLM, Cohere, Jina), for reranker server.")
    rerank_model: str = Field("", description="Model name at that server, or the folder of a cross-encoder.")
    rerank_api_key: SecretStr | None = Field(None, description="Key for that server.")
    rerank_timeout_s: float = Field(5.0, gt=0, description="Seconds until zsum3 takes the server's place.")
    relevance_floor: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Similarity below which a passage is beside the question; 0.4 for the packaged embedder, else 0.",
    )
    no_context: NoContext = Field(NoContext.REFUSE, description="What a question gets that no document is about.")
    context_tokens: int = Field(3072, ge=32, description="Most passage tokens in one answer's context.")
    policy: Policy = Field("hybrid", description="Which reused tokens are recomputed.")
    budget: float = Field(0.15, ge=0, le=1, description="Most that is recomputed: a share of tokens and of prefill.")
    share_fused: bool = Field(False, description="Let questions over the same passages share one fused context.")
    boundary_tokens: int = Field(
        32, ge=0, le=8192, description="Tokens recomputed at the start of a passage, by policy boundary."
    )
    ingest_passes: Literal[1, 2] = Field(
        2, description="Prefills of a passage at ingest; 2 allow policy hybrid at its best."
    )
    ingest_concurrency: int = Field(8, ge=1, le=1024, description="Passages precomputed at once.")
    ingest_workers: int = Field(4, ge=1, le=256, description="Documents parsed, embedded and precomputed at once.")
    max_output_tokens: int = Field(512, ge=1, description="Longest answer, in tokens.")

    @field_validator("config", "home", "model", "embedder", "memory_dir", "disk_dir", mode="after")
    @classmethod
    def _expand_user(cls, path: Path | None) -> Path | None:
        return path.expanduser() if path is not None else None

    @field_validator("api_keys", "engine_urls", mode="before")
    @classmethod
    def _split(cls, values: object) -> object:
        return tuple(each.strip() for each in values.split(",") if each.strip()) if isinstance(values, str) else values

    @property
    def model_name(self) -> str:
        """Name of the model in the API."""
        return self.served_model_name or (self.model.resolve().name if self.model else PACKAGED_MODEL_NAME)

    @property
    def memory_capacity_bytes(self) -> int:
        """Size of the memory tier in bytes."""
        return int(self.memory_capacity_gib * 2**30)

    @property
    def disk_capacity_bytes(self) -> int:
        """Size of the disk tier in bytes."""
        return int(self.disk_capacity_gib * 2**30)

    def store_config(self) -> StoreConfig:
        """What the store is made from."""
        return StoreConfig(
            memory_dir=self.memory_dir,
            disk_dir=self.disk_dir,
            memory_capacity_bytes=self.memory_capacity_bytes,
            disk_capacity_bytes=self.disk_capacity_bytes,
            codec=self.codec,
            backend=Backend(self.codec_backend),
            threads=self.store_threads,
            remote_url=self.remote_url,
            policy=self.eviction_policy,
            memory_idle_s=self.memory_idle_s,
            disk_idle_s=self.disk_idle_s,
        )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Explicit values, then the environment, then the YAML file that either of them names."""
        config = init_settings().get("config") or env_settings().get("config")
        from_file = _read_yaml(Path(config).expanduser()) if config else {}
        return init_settings, env_settings, InitSettingsSource(settings_cls, from_file)


def load_settings(**explicit: Any) -> Settings:
    """Settings from explicit values (flags), the environment and YAML.

    Raises:
        ConfigError: naming every setting that is unknown or outside its limits.
    """
    try:
        return Settings(**explicit)
    except ValidationError as error:
        problems = [problem for problem in error.errors() if problem["type"] != "default_factory_not_called"]
        raise ConfigError("; ".join(_explain(problem) for problem in problems)) from None


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"config: cannot read {path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"config: {path} is not YAML: {error}") from None
    if not isinstance(values, dict | None):
        raise ConfigError(f"config: {path} holds a {type(values).__name__}, expected keys and values")
    return values or {}


def _explain(problem: ErrorDetails) -> str:
    name = str(problem["loc"][0]) if problem["loc"] else "settings"
    if problem["type"] == "extra_forbidden":
        return f"{name}: there is no such setting"
    observed = "" if "api_key" in name else f", got {problem['input']!r}"
    return f"{name} ({ENV_PREFIX}{name.upper()}, --{name.replace('_', '-')}): {problem['msg']}{observed}"
