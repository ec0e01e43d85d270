"""VllmWorker: the platform's own vLLM worker, which binds the connector to its model as soon as there is one.

Named in vLLM's `--worker-cls`; `collective_rpc("kvfuse_...")` calls the methods below in every worker process.
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from vllm.distributed.kv_transfer import get_kv_transfer_group
from vllm.platforms import current_platform

from fuse.connector.connector import FuseConnector


def _platform_worker() -> Any:
    if current_platform.is_cpu():
        from vllm.v1.worker.cpu_worker import CPUWorker as Worker
    else:
        from vllm.v1.worker.gpu_worker import Worker
    return Worker


_PlatformWorker: Any = _platform_worker()


class VllmWorker(_PlatformWorker):
    """One for each rank. A model that is refused is served without fusion."""

    def initialize_from_config(self, kv_cache_config: Any) -> None:
        """Allocate the paged cache, and bind the connector to it before the first request."""
        # Not at the top: see the note on numba in `connector.py`.
        from fuse.connector.bind import bind

        super().initialize_from_config(kv_cache_config)
        bind(_connector(), self.model_runner)

    def kvfuse_ping(self) -> bool:
        """Answer, so that the caller knows the worker runs."""
        return True

    def kvfuse_verdict(self) -> dict[str, Any]:
        """Return whether this rank's model can be fused, as `Verdict` fields."""
        return asdict(_connector().verdict)

    def kvfuse_saves(self, tags: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Return and forget those of the saves tagged `tags` that have ended, as `SaveResult` fields."""
        worker = _connector().attached
        ended = {tag: worker.take_save(tag) for tag in tags} if worker else {}
        return {tag: asdict(result) for tag, result in ended.items() if result is not None}

    def kvfuse_report(self, tag: str) -> dict[str, Any]:
        """Return the report of the fused request tagged `tag`, as `FuseReport` fields; empty if it was not fused."""
        worker = _connector().attached
        report = worker.take_report(tag) if worker else None
        return asdict(report) if report else {}

    def kvfuse_store_stats(self) -> dict[str, Any]:
        """Return the worker's view of the store, as `StoreStats` fields; empty when the model is refused."""
        worker = _connector().attached
        return asdict(worker.store_stats()) if worker else {}


def _connector() -> FuseConnector:
    connector = get_kv_transfer_group()
    assert isinstance(connector, FuseConnector)
    return connector
