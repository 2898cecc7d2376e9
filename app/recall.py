"""Reasoning that clients leave out of the history, put back where the model had it.

Most chat clients drop what a model thought before it called a tool. The next prompt then differs
from the one in the cache from that turn on, and the model has forgotten why it called. What was
thought here is remembered for a while, in memory alone, and goes back to the turn it belongs to.
"""

import hashlib
import json
import re
from collections import OrderedDict
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import replace

from models.card import ModelCard
from models.chat import (
    Conversation,
    Event,
    Finished,
    Loading,
    Message,
    Reasoning,
    Request,
    Role,
    Text,
    ToolCall,
    ToolCallDelta,
    ToolCallStart,
)
from runtimes.base import Embeddings, EngineStats, ModelHost, ModelInfo, Tokenizer

MAX_TURNS = 4000
MAX_LETTERS = 16 << 20

Key = bytes
# Ids of a call that are random: those that only count come in every conversation.
_UNIQUE = re.compile(r"call_[0-9a-f]{24}|[A-Za-z0-9]{9}")


class Recall:
    """What was thought, by the turn it belongs to; the least recently used goes first."""

    def __init__(self, max_turns: int = MAX_TURNS, max_letters: int = MAX_LETTERS) -> None:
        self._max_turns, self._max_letters = max_turns, max_letters
        self._thoughts: OrderedDict[Key, str] = OrderedDict()
        self._letters = 0

    def keep(self, keys: Sequence[Key], thought: str) -> None:
        """Remember a thought under all of its turn's keys."""
        for key in keys:
            self._drop(key)
            self._thoughts[key] = thought
            self._letters += len(thought)
        while len(self._thoughts) > self._max_turns or self._letters > self._max_letters:
            self._drop(next(iter(self._thoughts)))

    def find(self, keys: Sequence[Key]) -> str | None:
        """What was thought in the turn with one of these keys."""
        for key in keys:
            if (thought := self._thoughts.get(key)) is not None:
                self._thoughts.move_to_end(key)
                return thought
        return None

    def _drop(self, key: Key) -> None:
        self._letters -= len(self._thoughts.pop(key, ""))


class RecallingHost:
    """A `ModelHost` that gives back to conversations what was thought in them."""

    def __init__(self, host: ModelHost, recall: Recall | None = None) -> None:
        self._host = host
        self._recall = recall or Recall()

    async def generate(self, request: Request) -> AsyncGenerator[Event, None]:
        """See `Runtime`."""
        request, past = self._completed(request)
        said = _Said()
        async with aclosing(self._host.generate(request)) as events:
            async for event in events:
                said.add(event)
                if isinstance(event, Finished) and past is not None and said.thought:
                    self._recall.keep(_keys(past, request.model, said.message()), said.thought)
                yield event

    async def tokens(self, request: Request) -> tuple[int, ...]:
        """See `ModelHost`."""
        return await self._host.tokens(self._completed(request)[0])

    def _completed(self, request: Request) -> tuple[Request, bytes | None]:
        """The request with its thoughts, and what stands for all that was said in it. System turns
        do not count: some clients change them from request to request."""
        prompt = request.prompt
        if not isinstance(prompt, Conversation):
            return request, None
        past, messages = request.model.encode(), list(prompt.messages)
        for index, message in enumerate(messages):
            if message.role is Role.ASSISTANT and message.reasoning is None:
                thought = self._recall.find(_keys(past, request.model, message))
                if thought is not None:
                    messages[index] = replace(message, reasoning=thought)
            if message.role is not Role.SYSTEM:
                past = _after(past, message)
        return replace(request, prompt=replace(prompt, messages=tuple(messages))), past

    # ---------------------------------------------------------------------- the rest as it is

    def models(self) -> list[ModelInfo]:
        """See `ModelHost`."""
        return self._host.models()

    def card(self, model: str) -> ModelCard:
        """See `ModelHost`."""
        return self._host.card(model)

    def tokenizer(self, model: str) -> AbstractAsyncContextManager[Tokenizer]:
        """See `ModelHost`."""
        return self._host.tokenizer(model)

    async def embed(
        self, model: str, texts: Sequence[str | tuple[int, ...]], *, truncate: bool
    ) -> Embeddings:
        """See `ModelHost`."""
        return await self._host.embed(model, texts, truncate=truncate)

    def loading(self) -> bool:
        """See `ModelHost`."""
        return self._host.loading()

    def stats(self) -> dict[str, EngineStats]:
        """See `ModelHost`."""
        return self._host.stats()

    def load(self, model: str) -> AsyncGenerator[Loading, None]:
        """See `ModelHost`."""
        return self._host.load(model)

    async def unload(self, model: str) -> None:
        """See `ModelHost`."""
        await self._host.unload(model)

    async def close(self) -> None:
        """See `ModelHost`."""
        await self._host.close()


class _Said:
    """One answer, gathered."""

    def __init__(self) -> None:
        self._thoughts: list[str] = []
        self._texts: list[str] = []
        self._calls: dict[int, ToolCall] = {}

    @property
    def thought(self) -> str:
        return "".join(self._thoughts)

    def add(self, event: Event) -> None:
        match event:
            case Reasoning(text):
                self._thoughts.append(text)
            case Text(text):
                self._texts.append(text)
            case ToolCallStart(index, id, name):
                self._calls[index] = ToolCall(id, name, "")
            case ToolCallDelta(index, arguments):
                call = self._calls[index]
                self._calls[index] = replace(call, arguments=call.arguments + arguments)
            case _:
                pass

    def message(self) -> Message:
        calls = tuple(self._calls.values())
        return Message(Role.ASSISTANT, "".join(self._texts), None, calls)


def _keys(past: bytes, model: str, message: Message) -> list[Key]:
    """A turn is known by all that was said up to it, or by the ids of its calls, which no other
    turn has where they are random: some clients rewrite what was said before."""
    keys = [_after(past, message)]
    if message.tool_calls and all(_UNIQUE.fullmatch(call.id) for call in message.tool_calls):
        ids = [model, *(call.id for call in message.tool_calls)]
        keys.append(hashlib.blake2b(json.dumps(ids).encode(), digest_size=16).digest())
    return keys


def _after(past: bytes, message: Message) -> bytes:
    """What stands for all that was said, one turn later. Clients trim texts and write arguments
    anew, and some have no ids."""
    calls = [(call.name, _plain(call.arguments)) for call in message.tool_calls]
    said = json.dumps([message.role, message.content.strip(), calls])
    return hashlib.blake2b(past + said.encode(), digest_size=16).digest()


def _plain(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments or "{}"), sort_keys=True)
    except (ValueError, RecursionError):
        return arguments
