"""What is known of one model on this machine."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class Format(StrEnum):
    """How the weights are written, which decides the runtime."""

    GGUF = "gguf"
    MLX = "mlx"


class Origin(StrEnum):
    """Which program put the files where they are."""

    RUNNER = "runner"
    HUB = "hub"
    OLLAMA = "ollama"
    LM_STUDIO = "lm-studio"
    LLAMA_CPP = "llama.cpp"
    PATH = "path"


@dataclass(frozen=True, slots=True)
class ModelCard:
    """A model that can be run. `path` is what a runtime opens: the first (or only) GGUF shard, or
    an MLX folder; `files` are all its files. Sizes in bytes, `context_length` (trained) in
    tokens; whether it `thinks` before it answers is what its chat template says. Encoders do not
    `write` text; what was made to give vectors `embeds`."""

    id: str
    path: Path
    files: tuple[Path, ...]
    format: Format
    origin: Origin
    size_bytes: int
    architecture: str
    quantization: str
    context_length: int
    modified: float = 0.0
    thinks: bool = False
    writes: bool = True
    embeds: bool = False
