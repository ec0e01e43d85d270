"""Binding the connector's worker half to a loaded model and its cache."""

from typing import Any

from vllm.logger import init_logger

from fuse.connector.config import FuseConfig
from fuse.connector.connector import FuseConnector
from fuse.connector.metadata import Verdict
from fuse.connector.model import PagedModel
from fuse.connector.worker import FuseWorker
from fuse.errors import FusionRefused
from store import warm_up
from store.tiered import TieredStore

logger = init_logger(__name__)


def bind(connector: FuseConnector, runner: Any) -> None:
    """Attach a `FuseWorker` over `runner`'s model to `connector`, unless the model is refused."""
    transfer = runner.vllm_config.kv_transfer_config
    config = FuseConfig.from_extra_config(transfer.kv_connector_extra_config)
    try:
        model = PagedModel(runner)
    except FusionRefused as refusal:
        logger.warning("fusion is refused for this model: %s", refusal)
        connector.verdict = Verdict(False, str(refusal))
        return
    warm_up()
    connector.attach(FuseWorker(model, TieredStore(config.store), config.load_threads))
