"""Embeddings, in every dialect: not served yet, and said so."""

from fastapi import APIRouter
from starlette.exceptions import HTTPException

router = APIRouter()


@router.post("/v1/embeddings")
@router.post("/api/embed")
@router.post("/api/embeddings")
async def embed() -> None:
    """Texts as vectors."""
    raise HTTPException(501, "Embeddings are not served yet.")
