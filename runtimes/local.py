"""A loaded local model as a runtime: a request to tokens, and the tokens' news to events."""

import asyncio
import time
from asyncio import Queue
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field

from models.chat import (
    Conversation,
    Event,
    Finished,
    FinishReason,
    Logprobs,
    Prefill,
    Request,
    Started,
    Text,
    Timings,
    TokenLogprob,
    Usage,
)
from models.errors import ContextOverflow, EngineBusy, RequestInvalid, RunnerError
from models.templates import ChatTemplate, fallback_source
from runtimes.client import JobNews, WorkerClient
from runtimes.messages import JobEnd, NewToken, PrefillProgress, Submit, Vocab
from runtimes.text import Piece, StopStrings, TextAssembler


@dataclass(slots=True)
class _Answer:
    """What is counted while an answer comes."""

    prompt_tokens: int
    text: TextAssembler
    cached: int = 0
    tokens: int = 0
    submitted_at: float = field(default_factory=time.monotonic)
    admitted_at: float = 0.0
    first_at: float = 0.0

    def finished(self, reason: FinishReason) -> Finished:
        now = time.monotonic()
        admitted = self.admitted_at or now
        first = self.first_at or now
        return Finished(
            reason,
            Usage(self.prompt_tokens, self.tokens, self.cached),
            Timings(admitted - self.submitted_at, first - admitted, now - first),
        )


class LocalModel:
    """One worker and what is needed to speak with it. Raises TemplateFailed at construction where
    the model's template does not even parse."""

    def __init__(self, worker: WorkerClient, template_source: str, max_queue: int) -> None:
        vocab = worker.ready.vocab
        markup = [vocab.pieces[i].decode("utf-8", "replace") for i in vocab.control_ids]
        self.worker = worker
        self.template = ChatTemplate(
            template_source or fallback_source(markup), vocab.bos_text, vocab.eos_text
        )
        self._vocab: Vocab = vocab
        self._longest_piece = max(1, *map(len, vocab.pieces))
        self._max_jobs = worker.spec.parallel + max_queue

    @property
    def context(self) -> int:
        """Tokens one request may use, prompt and answer together."""
        return self.worker.ready.context

    async def generate(self, request: Request) -> AsyncGenerator[Event, None]:
        """See `Runtime`. Raises EngineBusy where too many requests wait already."""
        if self.worker.jobs >= self._max_jobs:
            raise EngineBusy(
                f"{self.worker.jobs} requests are running or waiting already; try again shortly."
            )
        tokens = await self.tokens(request)
        room = self.context - len(tokens)
        if room < 1:
            raise ContextOverflow(len(tokens), self.context)
        size = len(self._vocab.pieces)
        _check_ids(tokens, size, "prompt")
        _check_ids([i for i, _ in request.sampling.logit_bias], size, "logit_bias")
        wanted = request.limits.max_tokens
        sampling = request.sampling
        job_id, news = self.worker.submit(
            lambda job_id: Submit(
                id=job_id,
                tokens=tokens,
                sampling=sampling,
                max_tokens=room if wanted is None else min(wanted, room),
                logprobs=request.logprobs,
                constraint=request.constraint,
                exact=_must_repeat(request),
                boundaries=self._boundaries(tokens),
                priority=request.priority,
            )
        )
        answer = _Answer(len(tokens), TextAssembler(StopStrings(request.limits.stop)))
        try:
            yield Started(len(tokens), self.context)
            async for event in self._follow(news, answer, request.logprobs is not None):
                yield event
        finally:
            self.worker.cancel(job_id)

    def pieces(self, tokens: Sequence[int]) -> list[bytes]:
        """What tokens stand for. Raises RequestInvalid for ids that are none."""
        _check_ids(tokens, len(self._vocab.pieces), "tokens")
        return [self._vocab.pieces[token] for token in tokens]

    async def tokens(self, request: Request) -> tuple[int, ...]:
        """The request's prompt in the model's vocabulary. Raises ContextOverflow early where it is
        far too long, and TemplateFailed."""
        vocab = self._vocab
        if isinstance(request.prompt, Conversation):
            # A template is foreign code: however long it takes, the event loop goes on.
            text = await asyncio.to_thread(self.template.render, request.prompt)
        elif isinstance(request.prompt.content, tuple):
            return request.prompt.content
        else:
            text = request.prompt.content
        fewest = len(text.encode("utf-8", "replace")) // self._longest_piece
        if fewest > self.context:  # tokenizing megabytes would keep others waiting
            raise ContextOverflow(fewest, self.context)
        double = vocab.bos_text != "" and text.startswith(vocab.bos_text)
        tokens = await self.worker.encode(text, add_bos=vocab.adds_bos and not double)
        if tokens:
            return tokens
        # An empty text still has to start somewhere.
        return (vocab.bos_id if vocab.bos_id >= 0 else max(vocab.eos_id, 0),)

    def _boundaries(self, tokens: tuple[int, ...]) -> tuple[int, ...]:
        """Where messages begin: at markup that follows text."""
        control = self._vocab.control_ids
        return tuple(
            i
            for i in range(1, len(tokens))
            if tokens[i] in control and tokens[i - 1] not in control
        )

    async def _follow(
        self, news: "Queue[JobNews]", answer: _Answer, with_logprobs: bool
    ) -> AsyncGenerator[Event, None]:
        while True:
            match await news.get():
                case PrefillProgress(done=done, cached=cached):
                    answer.admitted_at = answer.admitted_at or time.monotonic()
                    answer.cached = cached
                    yield Prefill(done, answer.prompt_tokens, cached)
                case NewToken() as token:
                    answer.first_at = answer.first_at or time.monotonic()
                    answer.tokens += 1
                    for event in _shown(self._push(answer, token, with_logprobs)):
                        yield event
                    if answer.text.stopped:
                        yield answer.finished(FinishReason.STOP)
                        return
                case JobEnd(reason=reason):
                    for event in _shown(answer.text.finish()):
                        yield event
                    yield answer.finished(reason)
                    return
                case RunnerError() as error:
                    raise error

    def _push(self, answer: _Answer, token: NewToken, with_logprobs: bool) -> Piece:
        pieces = self._vocab.pieces
        ends = token.token in self._vocab.end_ids
        if not with_logprobs:
            return answer.text.push(b"" if ends else pieces[token.token])
        top = tuple((pieces[i], lp) for i, lp in token.top)
        entry = TokenLogprob(pieces[token.token], token.logprob, top)
        return answer.text.push(b"" if ends else pieces[token.token], entry)


def _must_repeat(request: Request) -> bool:
    """Whether rounding must not depend on what else runs: it would change which token is drawn, and
    every logprob after the first."""
    drawn_by_seed = request.sampling.seed is not None and request.sampling.temperature > 0
    return drawn_by_seed or request.logprobs is not None


def _shown(piece: Piece) -> list[Event]:
    events: list[Event] = []
    if piece.logprobs:
        events.append(Logprobs(piece.logprobs))
    if piece.text:
        events.append(Text(piece.text))
    return events


def _check_ids(tokens: Sequence[int], vocab_size: int, param: str) -> None:
    """Ids from outside must be of this vocabulary: the library would refuse the whole step."""
    if any(not 0 <= t < vocab_size for t in tokens):
        raise RequestInvalid(f"Token ids must lie between 0 and {vocab_size - 1}.", param)
