"""The cascade's auxiliary model over any texts."""

from fastapi import APIRouter

from app.deps import ServiceDep
from app.schemas.rerank import RerankAnswer, RerankBody

router = APIRouter(prefix="/v1", tags=["rerank"])

MODEL = "maxsim"


@router.post("/rerank")
async def rerank(body: RerankBody, service: ServiceDep) -> RerankAnswer:
    """Put texts in order by how well they answer a query; `model` is not looked at: there is one."""
    return RerankAnswer.of(MODEL, body, await service.library.rerank(body.query, body.texts))
