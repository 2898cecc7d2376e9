"""A model host that says what a test scripts, and remembers how its requests ended."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from models.card import Format, ModelCard, Origin
from models.chat import (
    Conversation,
    Event,
    Finished,
    FinishReason,
    Loading,
    Prefill,
    Request,
    Started,
    Text,
    Timings,
    Usage,
)
from models.errors import ModelNotFound
from runtimes.base import Embeddings, EngineStats, LoadState, ModelInfo, TokenizerInfo

MODEL = "toy:1b"
Step = Event | float | Exception
"""An event to send, seconds to wait, or an error to raise."""
Script = Callable[[Request], Iterable[Step]]


def finished(
    tokens: int = 2, reason: FinishReason = FinishReason.STOP, prompt: int = 5, cached: int = 3
) -> Finished:
    """The last event, with plain numbers."""
    return Finished(reason, Usage(prompt, tokens, cached), Timings(0.001, 0.002, 0.003))


def answer(*words: str) -> Script:
    """A script that says these words."""
    return lambda request: [
        Started(5, 4096),
        Prefill(5, 5, 3),
        *(Text(word) for word in words),
        finished(len(words)),
    ]


class ScriptedTokenizer:
    """A token for each character; 1 starts a text, and 2 is `<s>` where that is markup."""

    tokenizer_info = TokenizerInfo(300, "<s>", "</s>", True, 4096, "{{ messages }}")

    async def encode(self, text: str, *, add_special: bool, parse_special: bool) -> tuple[int, ...]:
        text = text.replace("<s>", "\2") if parse_special else text
        return (*((1,) if add_special else ()), *map(ord, text))

    def pieces(self, tokens: Sequence[int]) -> list[bytes]:
        return [chr(token).encode() for token in tokens]


@dataclass
class ScriptedHost:
    """A `ModelHost` whose `script` says how each request goes."""

    script: Script = field(default_factory=lambda: answer("Hello", " there"))
    requests: list[Request] = field(default_factory=list[Request])
    done: int = 0
    cancelled: int = 0
    closed: bool = False
    busy: bool = False
    load_script: tuple[Step, ...] = ()
    embedded: list[tuple[str | tuple[int, ...], ...]] = field(
        default_factory=list[tuple[str | tuple[int, ...], ...]]
    )
    embed_s: float = 0.0
    loads: list[str] = field(default_factory=list[str])
    unloads: list[str] = field(default_factory=list[str])
    tokens_are: ScriptedTokenizer = field(default_factory=ScriptedTokenizer)
    files: dict[str, Path] = field(default_factory=dict[str, Path])
    infos: list[ModelInfo] = field(
        default_factory=lambda: [
            ModelInfo(
                MODEL,
                1700000000,
                4096,
                32768,
                LoadState.READY,
                1000,
                2 * 1024**3,
                61.0,
                1,
                placement="CUDA0 (20 of 33 layers)",
            ),
            ModelInfo("org/other:Q4_K_M", 1700000001, None, 8192, LoadState.ABSENT, 2000),
        ]
    )

    def card(self, model: str) -> ModelCard:
        """No file is behind it, unless a test puts one there."""
        info = next((info for info in self.infos if info.id == model), None)
        if info is None:
            raise ModelNotFound(f"No model {model} is here.")
        path = self.files.get(model, Path("nowhere.gguf"))
        return ModelCard(
            model, path, (path,), Format.GGUF, Origin.RUNNER, info.size_bytes, "llama", "Q4_K_M", 8
        )

    async def tokens(self, request: Request) -> tuple[int, ...]:
        """A token for each character of the prompt."""
        self.requests.append(request)
        if request.model not in {info.id for info in self.infos}:
            raise ModelNotFound(f"No model {request.model} is here.")
        prompt = request.prompt
        if isinstance(prompt, Conversation):
            return tuple(ord(c) for message in prompt.messages for c in message.content)
        return (
            prompt.content if isinstance(prompt.content, tuple) else tuple(map(ord, prompt.content))
        )

    @contextlib.asynccontextmanager
    async def tokenizer(self, model: str) -> AsyncGenerator[ScriptedTokenizer]:
        self.card(model)
        yield self.tokens_are

    async def generate(self, request: Request) -> AsyncGenerator[Event, None]:
        self.requests.append(request)
        if request.model not in {info.id for info in self.infos}:
            raise ModelNotFound(f"No model {request.model} is here.")
        try:
            async for step in _play(self.script(request)):
                yield step
        except (asyncio.CancelledError, GeneratorExit):
            self.cancelled += 1
            raise
        finally:
            self.done += 1

    async def embed(
        self, model: str, texts: Sequence[str | tuple[int, ...]], *, truncate: bool
    ) -> Embeddings:
        """Each text's length, 4 and 0, and 12 where it may be cut; a token for each character."""
        self.card(model)
        self.embedded.append(tuple(texts))
        try:
            await asyncio.sleep(self.embed_s)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        rows = [[len(text), 4.0, 0.0, 12.0 * truncate] for text in texts]
        vectors = np.array(rows, np.float32).reshape(len(texts), 4)
        return Embeddings(vectors, sum(map(len, texts)))

    def models(self) -> list[ModelInfo]:
        return self.infos

    def loading(self) -> bool:
        return self.busy

    def stats(self) -> dict[str, EngineStats]:
        return {MODEL: EngineStats(steps=7, prompt_rows=11, cached_tokens=3, cells=4096)}

    async def load(self, model: str) -> AsyncGenerator[Loading, None]:
        if model not in {info.id for info in self.infos}:
            raise ModelNotFound(f"No model {model} is here.")
        self.loads.append(model)
        async for step in _play(self.load_script):
            assert isinstance(step, Loading)
            yield step

    async def unload(self, model: str) -> None:
        self.unloads.append(model)
        raise ModelNotFound(f"{model} is not loaded.")

    async def close(self) -> None:
        self.closed = True


async def _play(steps: Iterable[Step]) -> AsyncGenerator[Event, None]:
    for step in steps:
        if isinstance(step, Exception):
            raise step
        if isinstance(step, int | float):
            await asyncio.sleep(step)
        else:
            await asyncio.sleep(0)
            yield step
