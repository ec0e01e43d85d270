"""The worker extension: binds the connector to the model, and answers the API process's questions.

Named in `worker_extension_cls`; vLLM mixes it into its worker, and `collective_rpc("kvfuse_...")` calls it there.
"""

from dataclasses import asdict
from typing import Any

from vllm.distributed.kv_transfer import get_kv_transfer_group
from vllm.logger import init_logger

from fuse.connector.connector import FuseConnector

logger = init_logger(__name__)


class FuseWorkerExtension:
    """Mixed into the worker class, where `model_runner` is the worker's own."""

    model_runner: Any

    def kvfuse_bind(self) -> dict[str, Any]:
        """Attach the connector's worker half to the model. Call once, before the first request.

        Returns `{"fusable": bool, "reason": str}`; a refused model is served without fusion.
        """
        # Not at the top: see the note on numba in `connector.py`.
        from fuse.connector.bind import bind

        return bind(_connector(), self.model_runner)

    def kvfuse_ping(self) -> bool:
        """Answer, so that the caller knows the worker runs."""
        return True

    def kvfuse_saves(self) -> list[dict[str, Any]]:
        """Return the saves that ended since the last call, as `SaveResult` fields."""
        worker = _connector().attached
        return [asdict(result) for result in worker.take_saves()] if worker else []

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
