"""FuseConnector: the class that vLLM loads. One instance in the scheduler, one in each worker.

Configured by `KVTransferConfig(kv_connector="FuseConnector", kv_connector_module_path="fuse.connector.connector",
kv_role="kv_both", kv_connector_extra_config={...FuseConfig})`.

Nothing imported here may import numba: vLLM's CPU worker scans every loaded module for Triton kernels when it starts,
and the scan fails on llvmlite's.
"""

from typing import TYPE_CHECKING, Any

import torch
from vllm.config import VllmConfig
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorHandshakeMetadata,
    KVConnectorMetadata,
    KVConnectorRole,
)
from vllm.v1.attention.backend import AttentionMetadata
from vllm.v1.core.sched.output import SchedulerOutput

from fuse.connector.metadata import FuseMetadata, Verdict
from fuse.connector.orphan import end_with_parent
from fuse.connector.scheduler import FuseScheduler

if TYPE_CHECKING:
    from vllm.forward_context import ForwardContext
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks, KVCacheManager
    from vllm.v1.kv_cache_interface import KVCacheConfig
    from vllm.v1.request import Request

    from fuse.connector.worker import FuseWorker


class FuseConnector(KVConnectorBase_V1):
    """Delegates to `FuseScheduler` or `FuseWorker`.

    The worker's half is attached by `VllmWorker` once model and cache exist, and every rank's verdict reaches the
    scheduler's half before the first request (vLLM's handshake): without it, nothing is fused or saved.

    attached, verdict: of the worker-side instance.
    """

    def __init__(self, vllm_config: VllmConfig, role: KVConnectorRole, kv_cache_config: "KVCacheConfig") -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        if role is KVConnectorRole.SCHEDULER:
            end_with_parent()
        self._scheduler = FuseScheduler()
        self.attached: FuseWorker | None = None
        self.verdict = Verdict(
            False, "the engine was started without --worker-cls fuse.connector.vllm_worker.VllmWorker"
        )

    def attach(self, worker: "FuseWorker") -> None:
        """Give the worker-side instance its half."""
        self.attached, self.verdict = worker, Verdict(True)

    # Scheduler side.

    def set_xfer_handshake_metadata(self, metadata: dict[int, KVConnectorHandshakeMetadata]) -> None:
        verdicts = [verdict for verdict in metadata.values() if isinstance(verdict, Verdict)]
        self._scheduler.fusable = bool(verdicts) and all(verdict.fusable for verdict in verdicts)

    def bind_kv_cache_manager(self, kv_cache_manager: "KVCacheManager") -> None:
        super().bind_kv_cache_manager(kv_cache_manager)
        self._scheduler.evict = kv_cache_manager.evict_blocks

    def get_num_new_matched_tokens(self, request: "Request", num_computed_tokens: int) -> tuple[int, bool]:
        matched = self._scheduler.matched_tokens(request, num_computed_tokens)
        return matched, matched > 0

    def update_state_after_alloc(self, request: "Request", blocks: "KVCacheBlocks", num_external_tokens: int) -> None:
        self._scheduler.allocated(request, list(blocks.get_block_ids()[0]), num_external_tokens)

    def build_connector_meta(self, scheduler_output: SchedulerOutput) -> KVConnectorMetadata:
        return self._scheduler.build_metadata(scheduler_output)

    def request_finished(self, request: "Request", block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        return self._scheduler.finished(request, block_ids), None

    # Worker side. vLLM binds a step's metadata before its forward pass, and (with asynchronous loads only) calls
    # `start_load_kv` after it.

    def get_handshake_metadata(self) -> KVConnectorHandshakeMetadata:
        return self.verdict

    def bind_connector_metadata(self, connector_metadata: KVConnectorMetadata) -> None:
        assert isinstance(connector_metadata, FuseMetadata)
        if self.attached is not None:
            # Before it is bound, so that the recompute's attention layers do not call back into the connector.
            self.attached.begin_step(connector_metadata)
        super().bind_connector_metadata(connector_metadata)

    def start_load_kv(self, forward_context: "ForwardContext", **kwargs: Any) -> None:
        metadata = self._get_connector_metadata()
        assert isinstance(metadata, FuseMetadata)
        if self.attached is not None:
            self.attached.end_step(metadata.idle)

    def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str] | None, set[str] | None]:
        return self.attached.take_finished() if self.attached is not None else (None, None)

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Nothing to wait for: the tail is scheduled only after its context has been loaded."""

    def save_kv_layer(
        self, layer_name: str, kv_layer: torch.Tensor, attn_metadata: AttentionMetadata, **kwargs: Any
    ) -> None:
        """Nothing to do: chunks are read from the paged cache when their request ends."""

    def wait_for_save(self) -> None:
        """Nothing to wait for: the K/V to save are copied out of the cache in `begin_step`."""

    def shutdown(self) -> None:
        if self.attached is not None:
            self.attached.close()
