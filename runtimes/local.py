"""A loaded local model as a runtime: a request to tokens, and the tokens' news to events."""

import time
from asyncio import Queue
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field

import numpy as np

from models.chat import (
    Event,
    Finished,
    FinishReason,
    Miss,
    Prefill,
    RawPrompt,
    Request,
    Started,
    Timings,
    TokenLogprob,
    ToolCallStart,
    Usage,
)
from models.errors import ContextOverflow, EngineBusy, RequestInvalid, RunnerError
from runtimes.base import Embeddings, TokenizerInfo
from runtimes.client import JobNews, WorkerClient
from runtimes.messages import JobEnd, NewToken, PrefillProgress, Scored, Submit, Vocab
from runtimes.misses import Misses
from runtimes.prompting import Prompt, Prompter
from runtimes.repeating import Repeating
from runtimes.text import AnswerReader


@dataclass(slots=True)
class _Answer:
    """What is counted while an answer comes."""

    prompt_tokens: int
    text: AnswerReader
    repeating: Repeating | None = None
    silent: bool = False
    miss: Miss | None = None
    said: list[int] = field(default_factory=list[int])
    cached: int = 0
    tokens: int = 0
    submitted_at: float = field(default_factory=time.monotonic)
    admitted_at: float = 0.0
    first_at: float = 0.0

    def finished(self, reason: FinishReason) -> Finished:
        now = time.monotonic()
        admitted = self.admitted_at or now
        first = self.first_at or now
        if self.text.called and reason is FinishReason.STOP:
            reason = FinishReason.TOOL_CALLS
        return Finished(
            reason,
            Usage(self.prompt_tokens, self.tokens, self.cached, self.text.reasoning_tokens),
            Timings(admitted - self.submitted_at, first - admitted, now - first, self.miss),
            self.text.stopped,
        )


class LocalModel:
    """One worker and what is needed to speak with it. Raises TemplateFailed at construction where
    the model's template does not even parse."""

    def __init__(
        self,
        worker: WorkerClient,
        template_source: str,
        max_queue: int,
        *,
        canonical_prompts: bool = True,
    ) -> None:
        self.worker = worker
        self._vocab: Vocab = worker.ready.vocab
        self._prompter = Prompter(
            self._vocab,
            template_source,
            lambda text, add_bos: worker.encode(text, add_bos=add_bos),
            self.context,
            canonical_prompts=canonical_prompts,
        )
        self._misses = Misses()
        self._max_jobs = worker.spec.parallel + max_queue

    async def close(self) -> None:
        """End the model's processes; whatever still runs is told."""
        self._prompter.close()
        await self.worker.close()

    @property
    def context(self) -> int:
        """Tokens one request may use, prompt and answer together."""
        return self.worker.ready.context

    @property
    def tokenizer_info(self) -> TokenizerInfo:
        """See `Tokenizer`."""
        vocab = self._vocab
        return TokenizerInfo(
            size=len(vocab.pieces),
            bos=vocab.bos_text,
            eos=vocab.eos_text,
            adds_bos=vocab.adds_bos,
            context=self.context,
            chat_template=self._prompter.template_source,
        )

    async def encode(self, text: str, *, add_special: bool, parse_special: bool) -> tuple[int, ...]:
        """See `Tokenizer`. What starts a text is never doubled, as in prompts."""
        vocab = self._vocab
        double = parse_special and vocab.bos_text != "" and text.startswith(vocab.bos_text)
        add_bos = add_special and vocab.adds_bos and not double
        return await self.worker.encode(text, add_bos=add_bos, specials=parse_special)

    async def generate(self, request: Request) -> AsyncGenerator[Event, None]:
        """See `Runtime`. Raises EngineBusy where too many requests wait already."""
        self._check_queue()
        if not self.worker.ready.writes:
            text = f"{request.model} gives embeddings and writes no text: use /v1/embeddings."
            raise RequestInvalid(text, "model")
        prompt = await self._prompter.prompt(request)
        tokens = prompt.tokens
        room = self.context - len(tokens)
        if room < 1:
            raise ContextOverflow(len(tokens), self.context)
        size = len(self._vocab.pieces)
        _check_ids(tokens, size, "prompt")
        _check_ids([i for i, _ in request.sampling.logit_bias], size, "logit_bias")
        wanted = request.limits.max_tokens
        sampling, choice = request.sampling, request.tool_choice
        repeating = self._repeating(request, tokens)
        job_id, news = self.worker.submit(
            lambda job_id: Submit(
                id=job_id,
                tokens=tokens,
                sampling=sampling,
                max_tokens=room if wanted is None else max(1, min(wanted, room)),
                logprobs=request.logprobs,
                guide=prompt.guide,
                exact=_must_repeat(request),
                boundaries=prompt.boundaries,
                priority=request.priority,
                prompt_logprobs=request.logprobs if repeating is not None else None,
            )
        )
        reader = AnswerReader(request.limits.stop, prompt.parser)
        answer = _Answer(len(tokens), reader, repeating, silent=wanted == 0)
        try:
            yield Started(len(tokens), self.context)
            async for event in self._follow(news, prompt, answer, request.logprobs is not None):
                if isinstance(event, ToolCallStart) and event.index and not choice.parallel:
                    yield answer.finished(FinishReason.STOP)  # a second call is one too many
                    return
                yield event
        finally:
            self._misses.remember([*tokens, *answer.said])
            self.worker.cancel(job_id)

    async def embed(self, texts: Sequence[str | tuple[int, ...]], *, truncate: bool) -> Embeddings:
        """See `ModelHost`."""
        self._check_queue()
        ready = self.worker.ready
        if not ready.embeds:
            raise RequestInvalid("This model ranks texts: it gives no embeddings.", "model")
        ends = (await self.worker.encode("", add_bos=True))[int(ready.vocab.adds_bos) :]
        tokens: list[tuple[int, ...]] = []
        for text in texts:
            whole = await self.worker.encode(text, add_bos=True) if isinstance(text, str) else text
            _check_ids(whole, len(ready.vocab.pieces), "input")
            if len(whole) > ready.embeds:
                if not truncate:
                    raise ContextOverflow(len(whole), ready.embeds)
                whole = whole[: ready.embeds - len(ends)] + ends
            tokens.append(whole or (max(ready.vocab.bos_id, ready.vocab.eos_id, 0),))
        data = await self.worker.embed(tokens) if tokens else b""
        vectors = np.frombuffer(data, np.float32).reshape(len(tokens), ready.vector_size)
        return Embeddings(vectors, sum(map(len, tokens)))

    def _check_queue(self) -> None:
        if self.worker.jobs >= self._max_jobs:
            raise EngineBusy(
                f"{self.worker.jobs} requests are running or waiting already; try again shortly."
            )

    def _repeating(self, request: Request, tokens: Sequence[int]) -> Repeating | None:
        prompt = request.prompt
        if not isinstance(prompt, RawPrompt) or not prompt.echo:
            return None
        return Repeating(prompt, tokens, self._vocab, with_logprobs=request.logprobs is not None)

    def pieces(self, tokens: Sequence[int]) -> list[bytes]:
        """See `Tokenizer`."""
        _check_ids(tokens, len(self._vocab.pieces), "tokens")
        return [self._vocab.pieces[token] for token in tokens]

    async def tokens(self, request: Request) -> tuple[int, ...]:
        """The request's prompt in the model's vocabulary. Raises as `Prompter.prompt`."""
        return (await self._prompter.prompt(request)).tokens

    async def _follow(
        self, news: "Queue[JobNews]", prompt: Prompt, answer: _Answer, with_logprobs: bool
    ) -> AsyncGenerator[Event, None]:
        while True:
            match await news.get():
                case PrefillProgress(done=done, cached=cached):
                    answer.admitted_at = answer.admitted_at or time.monotonic()
                    answer.cached = cached
                    if answer.miss is None:
                        answer.miss = self._misses.explain(prompt.tokens, prompt.boundaries, cached)
                    yield Prefill(done, answer.prompt_tokens, cached)
                case Scored() as scored:
                    assert answer.repeating is not None
                    answer.repeating.hear(scored)
                case NewToken() as token:
                    if answer.repeating is not None and not answer.tokens:
                        yield answer.repeating.said()
                    if answer.silent:
                        yield answer.finished(FinishReason.LENGTH)
                        return
                    answer.first_at = answer.first_at or time.monotonic()
                    answer.tokens += 1
                    answer.said.append(token.token)
                    for event in self._push(answer, token, with_logprobs):
                        yield event
                    if answer.text.stopped is not None:
                        yield answer.finished(FinishReason.STOP)
                        return
                case JobEnd(reason=reason):
                    cut_short = reason is FinishReason.LENGTH
                    for event in answer.text.finish(cut_short=cut_short):
                        yield event
                    yield answer.finished(reason)
                    return
                case RunnerError() as error:
                    raise error

    def _push(self, answer: _Answer, token: NewToken, with_logprobs: bool) -> list[Event]:
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


def _check_ids(tokens: Sequence[int], vocab_size: int, param: str) -> None:
    """Ids from outside must be of this vocabulary: the library would refuse the whole step."""
    if any(not 0 <= t < vocab_size for t in tokens):
        raise RequestInvalid(f"Token ids must lie between 0 and {vocab_size - 1}.", param)
