"""What there is, in Ollama's words: `/api/version`, `/api/tags`, `/api/ps`, `/api/show`."""

import asyncio
import hashlib
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from fastapi import Request as HttpRequest

from app.api.body import Body, Reads
from app.api.models import capabilities_of, known_as
from app.api.ollama.lines import moment
from app.version import version
from models.card import Format, ModelCard
from models.errors import RequestInvalid
from models.gguf import read_file
from models.header import GgufHeader
from runtimes.base import LoadState, ModelInfo
from runtimes.messages import MEMORY_KINDS

router = APIRouter()

# The level of Ollama's API that is spoken here. Editors compare it with the least they need.
SPOKEN = "0.13.0"
# A model in use has no end yet; clients want a time that is not past.
_IN_USE = timedelta(days=1)


class Named(Body):
    """A model, under either of the two names that clients use for the field."""

    model: str | None = None
    name: str | None = None

    @property
    def meant(self) -> str:
        """Raises RequestInvalid where there is none."""
        if not (name := self.model or self.name):
            raise RequestInvalid("model is required.", "model")
        return name


@router.get("/api/version")
@router.head("/api/version")
async def get_version() -> dict[str, str]:
    """The level of the API, and who speaks it."""
    return {"version": SPOKEN, "runner": version()}


@router.get("/api/tags")
@router.head("/api/tags")
async def tags(http: HttpRequest) -> dict[str, Any]:
    """Every model that can be asked for."""
    return {"models": [_entry(info) for info in http.app.state.host.models()]}


@router.get("/api/ps")
async def ps(http: HttpRequest) -> dict[str, Any]:
    """The models in memory."""
    infos: list[ModelInfo] = http.app.state.host.models()
    return {"models": [_loaded(info) for info in infos if info.state is LoadState.READY]}


@router.post("/api/show")
async def show(http: HttpRequest, body: Annotated[Named, Depends(Reads(Named))]) -> dict[str, Any]:
    """What is known of one model."""
    host = http.app.state.host
    name = body.meant
    card: ModelCard = await asyncio.to_thread(host.card, name)
    info = known_as(host, card.id)
    header = await asyncio.to_thread(read_file, card.path) if card.format is Format.GGUF else None
    return {
        "license": header.licence if header else "",
        "modelfile": f"FROM {card.id}\n",
        "parameters": "",
        "template": header.chat_template if header else "",
        "details": _details(info) | {"parameter_size": _count(header)},
        "model_info": _facts(info, header),
        "capabilities": capabilities_of(info),
        "modified_at": _modified(info),
    }


def _entry(info: ModelInfo) -> dict[str, Any]:
    return {
        "name": info.id,
        "model": info.id,
        "modified_at": _modified(info),
        "size": info.size_bytes,
        "digest": _digest(info),
        "details": _details(info),
    }


def _loaded(info: ModelInfo) -> dict[str, Any]:
    in_use = info.expires_in_s is None
    left = _IN_USE if in_use else timedelta(seconds=info.expires_in_s or 0)
    on_devices = sum(size for kind, size in info.memory.items() if kind not in MEMORY_KINDS)
    return {
        "name": info.id,
        "model": info.id,
        "size": info.memory_bytes,
        "digest": _digest(info),
        "details": _details(info),
        "expires_at": moment(datetime.now(UTC) + left),
        "size_vram": on_devices,
        "context_length": info.context or info.trained_context,
    }


def _details(info: ModelInfo) -> dict[str, Any]:
    return {
        "parent_model": "",
        "format": info.format,
        "family": info.architecture,
        "families": [info.architecture] if info.architecture else [],
        "parameter_size": "",
        "quantization_level": info.quantization,
    }


def _digest(info: ModelInfo) -> str:
    """Ollama's models have one, and clients tell models apart by it; it is no hash of weights."""
    return hashlib.sha256(f"{info.id}\0{info.size_bytes}\0{info.created}".encode()).hexdigest()


def _modified(info: ModelInfo) -> str:
    return moment(datetime.fromtimestamp(info.created, UTC))


def _facts(info: ModelInfo, header: GgufHeader | None) -> dict[str, Any]:
    """The header's numbers. The context is the one of a request, which is what clients plan by."""
    arch = info.architecture
    facts: dict[str, Any] = {
        "general.architecture": arch,
        f"{arch}.context_length": info.context or info.trained_context,
        "runner.trained_context_length": info.trained_context,
    }
    if header is not None:
        facts |= {
            "general.basename": header.name,
            "general.parameter_count": header.parameter_count,
            f"{arch}.block_count": header.block_count,
            f"{arch}.embedding_length": header.embedding_length,
            f"{arch}.attention.head_count": header.head_count,
        }
    return facts


def _count(header: GgufHeader | None) -> str:
    """As people write it: 8.0B, 134.52M."""
    if header is None:
        return ""
    count = header.parameter_count
    return f"{count / 1e9:.1f}B" if count >= 1e9 else f"{count / 1e6:.2f}M"
