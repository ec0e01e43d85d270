"""FuseConfig: what the API process tells the connector, through `kv_connector_extra_config`."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from store.config import StoreConfig


@dataclass(frozen=True)
class FuseConfig:
    """store: where chunks live; load_threads: threads that read, decode and re-rotate chunks in each worker.

    hashes_dir: where hashes of weight files are remembered; None computes them at every start.
    """

    store: StoreConfig
    load_threads: int = 2
    hashes_dir: Path | None = None

    def to_extra_config(self) -> dict[str, Any]:
        """Return the JSON form, as vLLM passes it on."""
        hashes_dir = str(self.hashes_dir) if self.hashes_dir else None
        return {"load_threads": self.load_threads, "store": self.store.to_json(), "hashes_dir": hashes_dir}

    @classmethod
    def from_extra_config(cls, extra: Mapping[str, Any]) -> "FuseConfig":
        """Read what `to_extra_config` wrote. Raises ValueError or KeyError on anything else."""
        hashes_dir = Path(extra["hashes_dir"]) if extra.get("hashes_dir") else None
        return cls(StoreConfig.from_json(extra["store"]), int(extra.get("load_threads", 2)), hashes_dir)
