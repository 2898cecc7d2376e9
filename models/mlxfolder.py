"""Models in MLX's form: a folder with a config and safetensors."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from models.card import Format, ModelCard, Origin
from models.discover import hub_snapshots

_MAX_JSON = 64 << 20


def mlx_cards(cache: Path) -> Iterator[ModelCard]:
    """The MLX models of a Hugging Face cache that are complete."""
    for repo, snapshot in hub_snapshots(cache):
        card = mlx_card(snapshot, repo, Origin.HUB)
        if card is not None:
            yield card


def mlx_card(folder: Path, name: str, origin: Origin) -> ModelCard | None:
    """The MLX model in `folder`, or None where there is none or it is not complete.

    Plain safetensors are for other libraries; MLX's are told by their quantization or by who
    published them."""
    weights = sorted(path for path in folder.glob("*.safetensors") if path.is_file())
    config = _read(folder / "config.json") if weights else {}
    quantization = _table(config, "quantization")
    if not config or not (quantization or name.startswith("mlx-community/")):
        return None
    index = _read(folder / "model.safetensors.index.json")
    shards = {str(shard) for shard in _table(index, "weight_map").values()}
    if not shards <= {path.name for path in weights}:
        return None
    key = "max_position_embeddings"
    context = config.get(key) or _table(config, "text_config").get(key)
    bits = quantization.get("bits")
    stats = [path.stat() for path in weights]
    return ModelCard(
        id=name,
        path=folder,
        files=tuple(weights),
        format=Format.MLX,
        origin=origin,
        size_bytes=sum(stat.st_size for stat in stats),
        architecture=str(config.get("model_type") or ""),
        quantization=f"{bits}bit" if isinstance(bits, int) else "",
        context_length=context if isinstance(context, int) else 0,
        modified=max(stat.st_mtime for stat in stats),
    )


def _table(values: dict[str, Any], key: str) -> dict[str, Any]:
    value = values.get(key)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _read(file: Path) -> dict[str, Any]:
    try:
        if file.stat().st_size > _MAX_JSON:
            return {}
        return _table({"file": json.loads(file.read_text())}, "file")
    except (OSError, ValueError):
        return {}
