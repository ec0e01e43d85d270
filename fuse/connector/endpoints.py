"""FuseEndpoints: what a stand-alone vLLM server answers about fusion, beside its OpenAI API.

An endpoint plugin of vLLM (entry point `kvfuse`), loaded when the server's `VLLM_PLUGINS` names it. Its routes lie
under `/v1`, so the server's own API key guards them.
"""

import asyncio
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, FastAPI, HTTPException, Request
from starlette.datastructures import State

from fuse.connector.channel import WorkerChannel
from fuse.connector.config import FuseConfig
from fuse.connector.likelihood import log_likelihood
from fuse.fingerprint import fingerprint_model

PREFIX = "/v1/kvfuse"

router = APIRouter(prefix=PREFIX)


class FuseEndpoints:
    """See vLLM's `EndpointPlugin`."""

    name = "kvfuse"
    required_tasks = ("generate",)

    def attach_router(self, app: FastAPI) -> None:
        """Add the routes."""
        app.include_router(router)

    async def init_state(self, engine_client: Any, state: State, args: Namespace) -> None:
        """Keep what the routes need."""
        state.kvfuse = Fusion(engine_client)


class Fusion:
    """The server's engine, its workers, and its model as far as stored K/V depend on it."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.workers = WorkerChannel(client)
        self._config = client.vllm_config
        self._model: asyncio.Task[dict[str, Any]] | None = None

    async def facts(self) -> dict[str, Any]:
        """Return whether plans are of use here, for which model, and over which store."""
        fusable, reason = await self.workers.verdict()
        if self._model is None:
            self._model = asyncio.create_task(asyncio.to_thread(self._fingerprint))
        model = self._config.model_config
        return {
            "fusable": fusable,
            "reason": reason,
            "model": model.served_model_name,
            "max_model_len": model.max_model_len,
            "store": self._fuse_config().store.to_json(),
            **await self._model,
        }

    def _fingerprint(self) -> dict[str, Any]:
        """Return the fields of `ModelFingerprint` but the ingest scheme, or why there are none."""
        model = self._config.model_config
        dtype = str(model.dtype).removeprefix("torch.")
        cache = self._config.cache_config.cache_dtype
        kv_dtype = dtype if cache == "auto" else cache
        try:
            found = fingerprint_model(Path(model.model), dtype, kv_dtype, "", cache_dir=self._fuse_config().hashes_dir)
        except (OSError, ValueError) as error:
            return {"fingerprint": None, "unknown_model": f"{model.model}: {error}"}
        return {"fingerprint": asdict(found)}

    def _fuse_config(self) -> FuseConfig:
        return FuseConfig.from_extra_config(self._config.kv_transfer_config.kv_connector_extra_config)


def _fusion(request: Request) -> Fusion:
    fusion: Fusion = request.app.state.kvfuse
    return fusion


FusionDep = Annotated[Fusion, Depends(_fusion)]


@router.get("")
async def show_facts(fusion: FusionDep) -> dict[str, Any]:
    """Show what there is to know before plans are sent; answers only while every worker does."""
    return await fusion.facts()


@router.get("/reports/{tag}")
async def take_report(fusion: FusionDep, tag: str) -> dict[str, Any]:
    """Return and forget the report of the fused request tagged `tag`; empty if it was not fused."""
    return dict(await fusion.workers.report(tag))


@router.get("/saves/{tag}")
async def wait_for_save(fusion: FusionDep, tag: str) -> dict[str, Any]:
    """Wait for the save tagged `tag`, whose request has ended."""
    try:
        return dict(await fusion.workers.saved(tag))
    except TimeoutError:
        raise HTTPException(504, f"no save tagged {tag} has ended") from None


@router.get("/store")
async def show_store(fusion: FusionDep) -> dict[str, Any]:
    """Show the workers' view of the store."""
    return dict(await fusion.workers.store_stats())


@router.post("/likelihood")
async def score(
    fusion: FusionDep,
    before: Annotated[list[int], Body()],
    token_ids: Annotated[list[int], Body()],
    kv_transfer_params: Annotated[dict[str, Any] | None, Body()] = None,
) -> float:
    """Return the log-probability of `token_ids` after `before`, whose first part is fused as the plan says."""
    return await log_likelihood(fusion.client, before, token_ids, kv_transfer_params)
