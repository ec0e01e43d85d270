"""Settings of one store."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import Enum
from pathlib import Path
from typing import Any, Self

from store.codec import DEFAULT_CHAIN, chain_names
from store.deflate import Backend
from store.policy import make_policy

UNLIMITED = 1 << 62


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """Where chunks live and how they are encoded. Raises ValueError on values that cannot work.

    `memory_dir` should be on tmpfs; both directories are made when absent and may be shared by any number of processes
    of one machine. `remote_url` names an object store that machines share (`s3://...`, `gs://...`, `az://...`,
    `file:///...`), "" = none. `codec` is a chain name, `backend` who deflates, `threads` encode one chunk together.
    `policy` decides what leaves a tier that is fuller than `high_watermark` until it is down to `low_watermark`, both
    shares of its capacity; chunks idle for `memory_idle_s` or `disk_idle_s` sink as well (0 = never),
    which is looked at every `sweep_s` seconds.
    """

    memory_dir: Path
    disk_dir: Path
    memory_capacity_bytes: int = 4 << 30
    disk_capacity_bytes: int = 64 << 30
    codec: str = DEFAULT_CHAIN
    backend: Backend = Backend.AUTO
    threads: int = 2
    remote_url: str = ""
    remote_capacity_bytes: int = UNLIMITED
    policy: str = "lru"
    high_watermark: float = 0.95
    low_watermark: float = 0.85
    memory_idle_s: float = 0.0
    disk_idle_s: float = 0.0
    sweep_s: float = 30.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "backend", Backend(self.backend))
        make_policy(self.policy)
        if self.codec not in chain_names():
            raise ValueError(f"store codec {self.codec!r}: expected one of {', '.join(chain_names())}")
        for name in ("memory_capacity_bytes", "disk_capacity_bytes", "remote_capacity_bytes", "threads"):
            if getattr(self, name) < 1:
                raise ValueError(f"store {name} is {getattr(self, name)}, expected at least 1")
        if not 0 < self.low_watermark <= self.high_watermark <= 1:
            raise ValueError(
                f"store watermarks {self.low_watermark} and {self.high_watermark}: expected 0 < low <= high <= 1"
            )
        if Path(self.memory_dir) == Path(self.disk_dir):
            raise ValueError(f"store memory_dir and disk_dir are both {self.disk_dir}")

    def to_json(self) -> dict[str, Any]:
        """The settings as JSON holds them."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: _plain(value) for name, value in values.items()}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote; absent names keep their defaults. Raises ValueError, or TypeError on others."""
        folders = {name: Path(values[name]) for name in ("memory_dir", "disk_dir")}
        return cls(**{**values, **folders})


def _plain(value: object) -> object:
    return value.value if isinstance(value, Enum) else str(value) if isinstance(value, Path) else value
