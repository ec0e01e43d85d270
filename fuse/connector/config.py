"""FuseConfig: what the API process tells the connector, through `kv_connector_extra_config`."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from store.config import StoreConfig


@dataclass(frozen=True)
class FuseConfig:
    """store: where chunks live; load_threads: threads that read, decode and re-rotate chunks in each worker."""

    store: StoreConfig
    load_threads: int = 2

    def to_extra_config(self) -> dict[str, Any]:
        """Return the JSON form, as vLLM passes it on."""
        store = self.store
        return {
            "load_threads": self.load_threads,
            "memory_dir": str(store.memory_dir),
            "disk_dir": str(store.disk_dir),
            "memory_capacity_bytes": store.memory_capacity_bytes,
            "disk_capacity_bytes": store.disk_capacity_bytes,
            "codec": store.codec,
            "backend": store.backend.value,
            "threads": store.threads,
        }

    @classmethod
    def from_extra_config(cls, extra: Mapping[str, Any]) -> "FuseConfig":
        """Read what `to_extra_config` wrote; absent names keep the store's defaults. Raises ValueError as it does."""
        options: dict[str, Any] = dict(extra)
        threads = int(options.pop("load_threads", 2))
        for name in ("memory_dir", "disk_dir"):
            options[name] = Path(options[name])
        return cls(StoreConfig(**options), threads)
