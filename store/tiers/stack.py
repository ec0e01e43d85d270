"""The tiers of one store, each wrapped in what its medium calls for."""

from collections.abc import Callable, Sequence
from concurrent.futures import Executor

from store.breaker import BreakerTier
from store.config import StoreConfig
from store.tally import Tally
from store.tier import Tier
from store.tiers.directory import DirectoryTier
from store.wrapped import MeteredTier, ReadAheadTier


def open_tiers(config: StoreConfig, wrap: Callable[[Tier], Tier], counters: Tally, fetches: Executor) -> Sequence[Tier]:
    """Memory, disk and, where one is set, remote; `wrap` goes next to each medium, below metrics and read-ahead."""
    local = (
        DirectoryTier("memory", config.memory_dir, config.memory_capacity_bytes),
        DirectoryTier("disk", config.disk_dir, config.disk_capacity_bytes),
    )
    tiers: list[Tier] = [MeteredTier(wrap(tier), counters) for tier in local]
    if config.remote_url:
        from store.tiers.remote import ObjectTier, open_object_store  # obstore is for those who have a remote tier

        remote = ObjectTier("remote", open_object_store(config.remote_url), config.remote_capacity_bytes)
        guarded = BreakerTier(MeteredTier(wrap(remote), counters), counters)
        tiers.append(ReadAheadTier(guarded, fetches))
    return tiers
