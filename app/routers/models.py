"""The one model."""

from typing import Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel

from app.errors import NotFound
from app.service_api import Service

router = APIRouter(prefix="/v1", tags=["models"])


class Model(BaseModel):
    """A model by its served name."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: Literal["kvfuse"] = "kvfuse"


class ModelList(BaseModel):
    """Every model: there is one."""

    object: Literal["list"] = "list"
    data: list[Model]


@router.get("/models")
async def list_models(request: Request) -> ModelList:
    """The served model."""
    return ModelList(data=[_model(request)])


@router.get("/models/{name:path}")
async def get_model(name: str, request: Request) -> Model:
    """The served model, by name."""
    model = _model(request)
    require_model(name, model.id)
    return model


def require_model(name: str | None, served: str) -> None:
    """Raise ``NotFound`` unless the name is absent or the served one."""
    if name is not None and name != served:
        raise NotFound(
            f"There is no model {name!r}; this service has {served!r}", param="model", code="model_not_found"
        )


def _model(request: Request) -> Model:
    service: Service = request.app.state.service
    return Model(id=service.model_name, created=request.app.state.created)
