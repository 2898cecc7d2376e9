"""Short names that people know, and the repositories behind them."""

import difflib
from dataclasses import dataclass

from models.errors import ModelNotFound

STARTER = "smollm2:135m"


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """A short name, its GGUF repository and, where there is one, the same model for MLX."""

    name: str
    repo: str
    mlx: str = ""


_ENTRIES = (
    CatalogEntry("smollm2:135m", "bartowski/SmolLM2-135M-Instruct-GGUF"),
    CatalogEntry("smollm2:360m", "bartowski/SmolLM2-360M-Instruct-GGUF"),
    CatalogEntry("smollm2:1.7b", "bartowski/SmolLM2-1.7B-Instruct-GGUF"),
    CatalogEntry("smollm3:3b", "ggml-org/SmolLM3-3B-GGUF", "mlx-community/SmolLM3-3B-4bit"),
    CatalogEntry("qwen3:0.6b", "unsloth/Qwen3-0.6B-GGUF"),
    CatalogEntry("qwen3:1.7b", "unsloth/Qwen3-1.7B-GGUF"),
    CatalogEntry(
        "qwen3:4b",
        "unsloth/Qwen3-4B-Instruct-2507-GGUF",
        "mlx-community/Qwen3-4B-Instruct-2507-4bit",
    ),
    CatalogEntry("qwen3:8b", "unsloth/Qwen3-8B-GGUF", "mlx-community/Qwen3-8B-4bit"),
    CatalogEntry("qwen3:14b", "unsloth/Qwen3-14B-GGUF"),
    CatalogEntry("qwen3:32b", "unsloth/Qwen3-32B-GGUF"),
    CatalogEntry("qwen3:30b-a3b", "unsloth/Qwen3-30B-A3B-Instruct-2507-GGUF"),
    CatalogEntry("qwen3.5:9b", "unsloth/Qwen3.5-9B-GGUF"),
    CatalogEntry(
        "qwen3-coder:30b",
        "unsloth/Qwen3-Coder-30B-A3B-Instruct-GGUF",
        "mlx-community/Qwen3-Coder-30B-A3B-Instruct-4bit",
    ),
    CatalogEntry(
        "qwen2.5-coder:7b",
        "bartowski/Qwen2.5-Coder-7B-Instruct-GGUF",
        "mlx-community/Qwen2.5-Coder-7B-Instruct-4bit",
    ),
    CatalogEntry("qwen2.5-coder:14b", "bartowski/Qwen2.5-Coder-14B-Instruct-GGUF"),
    CatalogEntry("llama3.2:1b", "bartowski/Llama-3.2-1B-Instruct-GGUF"),
    CatalogEntry(
        "llama3.2:3b",
        "bartowski/Llama-3.2-3B-Instruct-GGUF",
        "mlx-community/Llama-3.2-3B-Instruct-4bit",
    ),
    CatalogEntry("llama3.1:8b", "bartowski/Meta-Llama-3.1-8B-Instruct-GGUF"),
    CatalogEntry("llama3.3:70b", "bartowski/Llama-3.3-70B-Instruct-GGUF"),
    CatalogEntry("gemma3:270m", "ggml-org/gemma-3-270m-it-GGUF"),
    CatalogEntry("gemma3:1b", "ggml-org/gemma-3-1b-it-GGUF"),
    CatalogEntry("gemma3:4b", "ggml-org/gemma-3-4b-it-GGUF", "mlx-community/gemma-3-4b-it-4bit"),
    CatalogEntry("gemma3:12b", "ggml-org/gemma-3-12b-it-GGUF"),
    CatalogEntry("gemma3:27b", "ggml-org/gemma-3-27b-it-GGUF"),
    CatalogEntry("gemma4:e4b", "unsloth/gemma-4-E4B-it-GGUF"),
    CatalogEntry("mistral:7b", "bartowski/Mistral-7B-Instruct-v0.3-GGUF"),
    CatalogEntry("mistral-nemo:12b", "bartowski/Mistral-Nemo-Instruct-2407-GGUF"),
    CatalogEntry("mistral-small:24b", "unsloth/Mistral-Small-3.2-24B-Instruct-2506-GGUF"),
    CatalogEntry("devstral:24b", "unsloth/Devstral-Small-2507-GGUF"),
    CatalogEntry("phi4:14b", "bartowski/phi-4-GGUF"),
    CatalogEntry("phi4-mini:3.8b", "unsloth/Phi-4-mini-instruct-GGUF"),
    CatalogEntry("gpt-oss:20b", "ggml-org/gpt-oss-20b-GGUF", "mlx-community/gpt-oss-20b-MXFP4-Q8"),
    CatalogEntry("gpt-oss:120b", "ggml-org/gpt-oss-120b-GGUF"),
    CatalogEntry("deepseek-r1:8b", "unsloth/DeepSeek-R1-0528-Qwen3-8B-GGUF"),
    CatalogEntry("deepseek-r1:14b", "bartowski/DeepSeek-R1-Distill-Qwen-14B-GGUF"),
    CatalogEntry("glm-4.5-air:106b", "unsloth/GLM-4.5-Air-GGUF"),
    CatalogEntry("glm-4.7-flash:30b", "unsloth/GLM-4.7-Flash-GGUF"),
    CatalogEntry("lfm2:1.2b", "LiquidAI/LFM2-1.2B-GGUF"),
    CatalogEntry("granite4:7b", "ibm-granite/granite-4.0-h-tiny-GGUF"),
)
_BY_NAME = {entry.name: entry for entry in _ENTRIES}

# What a family's name alone means: the size that an ordinary laptop runs.
_FAMILIES = {
    "smollm2": "smollm2:135m",
    "qwen3": "qwen3:8b",
    "llama3.2": "llama3.2:3b",
    "gemma3": "gemma3:4b",
    "qwen2.5-coder": "qwen2.5-coder:7b",
    "gpt-oss": "gpt-oss:20b",
    "deepseek-r1": "deepseek-r1:8b",
}


def entries() -> tuple[CatalogEntry, ...]:
    """Everything with a short name, small families first."""
    return _ENTRIES


def find(name: str) -> CatalogEntry | None:
    """The entry for a short name; a family's name alone gives its usual size."""
    name = name.lower()
    if name in _BY_NAME:
        return _BY_NAME[name]
    if name in _FAMILIES:
        return _BY_NAME[_FAMILIES[name]]
    members = [entry for entry in _ENTRIES if entry.name.partition(":")[0] == name]
    return members[0] if members else None


def require(name: str) -> CatalogEntry:
    """The entry for a short name. Raises ModelNotFound with the names that come close."""
    entry = find(name)
    if entry is None:
        close = suggest(name)
        meant = f" Did you mean {' or '.join(close)}?" if close else ""
        raise ModelNotFound(
            f"No model is known by the short name {name!r}.{meant} "
            "Any GGUF repository on Hugging Face can be pulled as org/repo."
        )
    return entry


def suggest(name: str) -> list[str]:
    """Up to three short names that look like `name`."""
    name = name.lower()
    family = name.partition(":")[0]
    same = [entry.name for entry in _ENTRIES if entry.name.partition(":")[0] == family]
    if same:
        return difflib.get_close_matches(name, same, 3, 0.0)
    return difflib.get_close_matches(name, _BY_NAME, 3, 0.6)


def gguf_for(mlx_repo: str) -> str:
    """The GGUF repository of the model that `mlx_repo` holds for MLX, or an empty text."""
    wanted = mlx_repo.lower()
    return next((entry.repo for entry in _ENTRIES if entry.mlx.lower() == wanted), "")
