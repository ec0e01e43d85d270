"""Which engine the settings mean, and the settings' engine as a server of its own."""

from collections.abc import Sequence
from typing import NoReturn

from app.config import Settings
from app.engine import Engine
from app.engine_local import LocalEngine, run_server
from app.engine_pool import EnginePool
from app.engine_remote import RemoteEngine
from app.engine_values import EngineConfig
from app.language import Language
from app.models import prepare_models
from app.selfcheck import check_fusion
from store.config import StoreConfig


def make_engine(settings: Settings, language: Language, store: StoreConfig) -> Engine:
    """Return an engine in this process, or the servers that the settings name, not yet started."""
    if not settings.engine_urls:
        return LocalEngine(EngineConfig.of(settings, language.model, store))
    key = settings.engine_api_key.get_secret_value()
    engines = [RemoteEngine(url, key, language, store) for url in settings.engine_urls]
    return EnginePool(engines, lambda engine: check_fusion(engine, language), language.plain.decode)


def serve_engine(settings: Settings, options: Sequence[str]) -> NoReturn:
    """Become a vLLM server for services whose `engine_urls` name it; `options` are passed on to vLLM."""
    model = settings.model or prepare_models(settings.home).llm
    address = ["--host", settings.host, "--port", str(settings.port), "--served-model-name", settings.model_name]
    config = EngineConfig.of(settings, model, settings.store_config())
    run_server(config, [*address, *options], settings.engine_api_key.get_secret_value())
