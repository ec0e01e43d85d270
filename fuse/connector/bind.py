"""Binding the connector's worker half to a loaded model and its cache."""

from typing import Any

from vllm.logger import init_logger

from fuse.connector.config import FuseConfig
from fuse.connector.connector import FuseConnector
from fuse.connector.model import PagedModel
from fuse.connector.worker import FuseWorker
from fuse.errors import FusionRefused
from store import warm_up
from store.tiered import TieredStore

logger = init_logger(__name__)


def bind(connector: FuseConnector, runner: Any) -> dict[str, Any]:
    """Attach a `FuseWorker` over `runner`'s model, unless the model is refused.

    Returns `{"fusable": bool, "reason": str}`.
    """
    transfer = runner.vllm_config.kv_transfer_config
    config = FuseConfig.from_extra_config(transfer.kv_connector_extra_config)
    try:
        model = PagedModel(runner)
    except FusionRefused as refusal:
        logger.warning("fusion is refused for this model: %s", refusal)
        return {"fusable": False, "reason": str(refusal)}
    warm_up()
    connector.attach(FuseWorker(model, TieredStore(config.store), config.load_threads))
    return {"fusable": True, "reason": ""}
