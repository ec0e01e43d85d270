"""Settings of one store."""

from dataclasses import dataclass
from pathlib import Path

from store.codec import DEFAULT_CHAIN, chain_names
from store.deflate import Backend


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """Where chunks live and how they are encoded. Raises ValueError on values that cannot work.

    `memory_dir` should be on tmpfs; both directories are made when absent and may be shared by any number of processes
    of one machine. `codec` is a chain name, `backend` who deflates, `threads` encode one chunk together.
    """

    memory_dir: Path
    disk_dir: Path
    memory_capacity_bytes: int = 4 << 30
    disk_capacity_bytes: int = 64 << 30
    codec: str = DEFAULT_CHAIN
    backend: Backend = Backend.AUTO
    threads: int = 2

    def __post_init__(self) -> None:
        object.__setattr__(self, "backend", Backend(self.backend))
        if self.codec not in chain_names():
            raise ValueError(f"store codec {self.codec!r}: expected one of {', '.join(chain_names())}")
        for name in ("memory_capacity_bytes", "disk_capacity_bytes", "threads"):
            if getattr(self, name) < 1:
                raise ValueError(f"store {name} is {getattr(self, name)}, expected at least 1")
        if Path(self.memory_dir) == Path(self.disk_dir):
            raise ValueError(f"store memory_dir and disk_dir are both {self.disk_dir}")
