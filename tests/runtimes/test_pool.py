"""Local models as one runtime: real worker processes on tiny weights."""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from models.card import Format, ModelCard, Origin
from models.chat import (
    Conversation,
    Event,
    Finished,
    FinishReason,
    Limits,
    Loading,
    Logprobs,
    Message,
    Prefill,
    RawPrompt,
    Request,
    Role,
    Sampling,
    Started,
    Text,
)
from models.errors import (
    ContextOverflow,
    DoesNotFit,
    EngineBusy,
    EngineFailed,
    ModelInvalid,
    ModelNotFound,
    RequestInvalid,
    SettingsError,
)
from models.fit import estimate
from models.gguf import read_file
from models.kv import KvType
from runtimes.base import LoadState
from runtimes.plan import PoolSettings
from runtimes.pool import ModelPool
from tests.weights import write_model

LLAMA = "runtimes.llamacpp.model:load"
GREEDY = Sampling(temperature=0)


@dataclass
class Shelf:
    """A catalogue of files in a folder: `name` is `name.gguf`."""

    folder: Path

    def list(self) -> Sequence[ModelCard]:
        return [self._card(path) for path in sorted(self.folder.glob("*.gguf"))]

    def find(self, name: str) -> ModelCard:
        for card in self.list():
            if card.id == name:
                return card
        raise ModelNotFound(f"no {name} here")

    def _card(self, path: Path) -> ModelCard:
        size = path.stat().st_size
        return ModelCard(
            path.stem, path, (path,), Format.GGUF, Origin.PATH, size, "llama", "F32", 4096
        )


@dataclass
class Bench:
    """Makes pools on a shelf, and closes them."""

    shelf: Shelf
    notes: list[str] = field(default_factory=list[str])
    pools: list[ModelPool] = field(default_factory=list[ModelPool])

    def pool(self, executor: str = LLAMA, **changes: object) -> ModelPool:
        settings: dict[str, object] = {
            "memory": lambda taken: 1 << 33,
            "executors": {Format.GGUF: executor},
            "ctx": 256,
            "parallel": 4,
            "threads": 1,
            **changes,
        }
        made = ModelPool(self.shelf, PoolSettings(**settings), self.notes.append)  # type: ignore[arg-type]
        self.pools.append(made)
        return made


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncGenerator[Bench]:
    write_model(tmp_path / "tiny.gguf", "llama")
    made = Bench(Shelf(tmp_path))
    yield made
    for pool in made.pools:
        await pool.close()


def ask(text: str = "hello", model: str = "tiny", **more: object) -> Request:
    fields: dict[str, object] = {"sampling": GREEDY, "limits": Limits(max_tokens=6), **more}
    return Request(model, Conversation((Message(Role.USER, text),)), **fields)  # type: ignore[arg-type]


async def events(pool: ModelPool, request: Request) -> list[Event]:
    return [event async for event in pool.generate(request)]


def finished(of: list[Event]) -> Finished:
    last = of[-1]
    assert isinstance(last, Finished)
    return last


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - what is waited for lies in another process
            await asyncio.sleep(0.01)


async def test_an_answer_comes_as_events_in_order(bench: Bench) -> None:
    pool = bench.pool()
    got = await events(pool, ask())
    kinds = [type(event) for event in got if not isinstance(event, Loading)]
    assert kinds[:2] == [Started, Prefill]
    assert kinds[-1] is Finished
    end = finished(got)
    assert end.reason is FinishReason.LENGTH
    assert end.usage.completion_tokens == 6
    started = next(event for event in got if isinstance(event, Started))
    assert (started.prompt_tokens, started.context) == (end.usage.prompt_tokens, 256)
    assert end.timings.prefill_s > 0
    assert pool.models()[0].state is LoadState.READY


async def test_requests_at_once_load_the_model_once(bench: Bench) -> None:
    pool = bench.pool()
    ends = await asyncio.gather(*(events(pool, ask(f"{i}")) for i in range(6)))
    assert all(finished(e).usage.completion_tokens == 6 for e in ends)
    assert sum(note.startswith("loaded") for note in bench.notes) == 1


async def test_a_repeated_prompt_is_answered_from_the_cache(bench: Bench) -> None:
    pool = bench.pool()
    first = await events(pool, ask("the same"))
    rows = pool.stats()["tiny"].prompt_rows
    again = await events(pool, ask("the same"))
    assert finished(again).usage.cached_tokens == finished(again).usage.prompt_tokens
    assert pool.stats()["tiny"].prompt_rows == rows
    assert [e for e in again if isinstance(e, Text)] == [e for e in first if isinstance(e, Text)]


async def test_requests_that_must_repeat_do_so_in_company(bench: Bench) -> None:
    pool = bench.pool()
    asked = ask("again and again", logprobs=2, sampling=Sampling(temperature=1, seed=5))

    async def told() -> list[Event]:
        return [e for e in await events(pool, asked) if isinstance(e, Text | Logprobs)]

    alone = await told()
    noise = [asyncio.create_task(events(pool, ask(c * 50))) for c in "abcdef"]
    crowded = await asyncio.gather(told(), told(), told())
    await asyncio.gather(*noise)
    assert crowded == [alone] * 3


async def test_a_waiter_that_leaves_does_not_end_the_load(bench: Bench) -> None:
    pool = bench.pool()
    waiting = pool.load("tiny")
    assert isinstance(await anext(waiting), Loading)
    await waiting.aclose()
    await until(lambda: pool.models()[0].state is LoadState.READY)


async def test_closing_the_stream_cancels_the_request_and_keeps_its_prefix(bench: Bench) -> None:
    pool = bench.pool()
    stream = pool.generate(ask("x" * 60, limits=Limits(max_tokens=150)))
    async for event in stream:
        if isinstance(event, Text):
            break
    await stream.aclose()
    await until(lambda: pool.stats()["tiny"].cancelled == 1 or not pool.stats()["tiny"].running)
    again = finished(await events(pool, ask("x" * 60)))
    assert again.usage.cached_tokens >= again.usage.prompt_tokens - 1
    assert pool.stats()["tiny"].cancelled == 1


async def test_a_prompt_longer_than_the_context_is_refused_with_both_numbers(bench: Bench) -> None:
    pool = bench.pool()
    with pytest.raises(ContextOverflow) as caught:
        await events(pool, ask("y" * 300))
    assert caught.value.limit == 256
    assert caught.value.prompt_tokens > 300


async def test_many_long_prompts_at_once_do_not_lock_the_pipe(bench: Bench) -> None:
    pool = bench.pool(ctx=4096)
    await events(pool, ask())
    long = [RawPrompt("hello world " * 100_000 + str(i)) for i in range(2)]
    fits = [RawPrompt("he" * 1500 + str(i)) for i in range(6)]
    async with asyncio.timeout(60):
        ends = await asyncio.gather(
            *(events(pool, Request("tiny", p, GREEDY, Limits(2))) for p in (*long, *fits)),
            return_exceptions=True,
        )
        worker = pool._slots["tiny"].model.worker  # type: ignore[union-attr]
        texts = ["hello world " * 20_000 + str(i) for i in range(6)]
        ids = await asyncio.gather(*(worker.encode(text, add_bos=False) for text in texts))
    assert [type(end) for end in ends[:2]] == [ContextOverflow] * 2
    assert all(isinstance(end, list) for end in ends[2:])
    assert [len(tokens) for tokens in ids] == [200_001 + 20_000] * 6


async def test_the_answer_is_clamped_to_the_context(bench: Bench) -> None:
    pool = bench.pool()
    end = finished(await events(pool, ask("z" * 200, limits=Limits(max_tokens=10**6))))
    assert end.usage.prompt_tokens + end.usage.completion_tokens <= 256
    assert end.reason in (FinishReason.LENGTH, FinishReason.STOP)


async def test_ids_of_another_vocabulary_are_refused(bench: Bench) -> None:
    pool = bench.pool()
    with pytest.raises(RequestInvalid, match="between 0 and 258"):
        await events(pool, Request("tiny", RawPrompt((5, 259))))
    with pytest.raises(RequestInvalid):
        await events(pool, ask(sampling=Sampling(logit_bias=((999, 1.0),))))


async def test_a_full_queue_refuses_at_once(bench: Bench) -> None:
    pool = bench.pool(parallel=1, max_queue=1)
    await events(pool, ask())
    slow = [ask(f"{i}", limits=Limits(max_tokens=100)) for i in range(2)]
    running = [asyncio.create_task(events(pool, request)) for request in slow]
    await until(lambda: pool.stats()["tiny"].running == 1 and pool.stats()["tiny"].waiting == 1)
    with pytest.raises(EngineBusy):
        await events(pool, ask("one more"))
    await asyncio.gather(*running)


async def test_an_idle_model_is_unloaded_after_its_keep_alive(bench: Bench) -> None:
    pool = bench.pool(keep_alive_s=0.2)
    await events(pool, ask())
    await until(lambda: "unloaded tiny" in bench.notes)
    assert pool.models()[0].state is LoadState.ABSENT
    assert finished(await events(pool, ask())).usage.completion_tokens == 6


async def test_the_longest_unused_model_makes_room_for_another(bench: Bench) -> None:
    write_model(bench.shelf.folder / "other.gguf", "llama", seed=1)
    one = estimate(read_file(bench.shelf.folder / "tiny.gguf"), 1024).total
    pool = bench.pool(memory=lambda taken: int(one * 1.5))
    await events(pool, ask())
    await events(pool, ask(model="other"))
    assert {m.id: m.state for m in pool.models()} == {
        "tiny": LoadState.ABSENT,
        "other": LoadState.READY,
    }


async def test_a_model_that_can_never_fit_is_refused_with_the_numbers(bench: Bench) -> None:
    with pytest.raises(DoesNotFit, match=r"needs .* MB .* context of 256 tokens"):
        await events(bench.pool(memory=lambda taken: 1 << 20), ask())


async def test_a_model_that_can_never_fit_is_told_before_anything_starts(bench: Bench) -> None:
    with pytest.raises(DoesNotFit, match=r"context of 900000 tokens.*Use --ctx \d+"):
        bench.pool(memory=lambda taken: 1 << 27, ctx=900_000).check("tiny")
    with pytest.raises(SettingsError, match="have 16 numbers"):
        bench.pool(kv_type=KvType.Q4_0).check("tiny")
    bench.pool().check("tiny")
    assert bench.notes == []


async def test_a_context_beyond_the_training_is_told_once(bench: Bench) -> None:
    pool = bench.pool(ctx=5000)
    pool.check("tiny")
    await events(pool, ask())
    await pool.unload("tiny")
    await events(pool, ask())
    assert sum("was trained for 4096 tokens" in note for note in bench.notes) == 1
    assert pool.models()[0].context == 5000


async def test_a_gpus_memory_counts_beside_the_hosts(bench: Bench) -> None:
    need = estimate(read_file(bench.shelf.folder / "tiny.gguf"), 4096, sequences=20).total
    with pytest.raises(DoesNotFit):
        bench.pool(memory=lambda taken: need // 2, ctx=4096).check("tiny")
    bench.pool(memory=lambda taken: need // 2, ctx=4096, device_memory=lambda: need).check("tiny")


async def test_a_loaded_model_tells_what_it_holds_and_where(bench: Bench) -> None:
    pool = bench.pool(cache_ram=1 << 20, gpu_layers=3)
    await events(pool, ask())
    info = pool.models()[0]
    size = pool._slots["tiny"].size
    assert size is not None
    assert size.host_cache == 1 << 20
    assert info.memory_bytes == size.bytes - (1 << 20)
    assert info.placement == "CPU"
    assert info.memory["kv"] == size.cells * 2 * 4 * 2 * (16 + 16)
    assert set(info.memory) == {"weights", "kv", "compute", "outputs"}
    assert any("--gpu-layers has no effect" in note for note in bench.notes)
    spec = pool._slots["tiny"].model.worker.spec  # type: ignore[union-attr]
    assert (spec.host_cache_bytes, spec.gpu_layers) == (1 << 20, 3)


async def test_the_worker_has_the_last_word_on_cells(bench: Bench) -> None:
    pool = bench.pool(
        executor="tests.runtimes.dying:load_on_a_small_gpu", ctx=None, gpu_layers=None
    )
    started = next(e for e in await events(pool, ask()) if isinstance(e, Started))
    assert started.context == 512
    info = pool.models()[0]
    assert (info.context, info.placement) == (512, "CUDA0")
    assert any("the context is 512 instead of 4096 tokens" in note for note in bench.notes)
    size = pool._slots["tiny"].size
    assert size is not None
    assert (size.context, size.cells) == (512, 512)


async def test_a_malformed_file_never_reaches_native_code(bench: Bench) -> None:
    (bench.shelf.folder / "broken.gguf").write_bytes(b"GGUF" + b"\x03" * 100)
    with pytest.raises(ModelInvalid):
        await events(bench.pool(executor="nowhere:load"), ask(model="broken"))


async def test_a_trapped_instruction_is_stepped_around_and_said(bench: Bench) -> None:
    pool = bench.pool(executor="tests.runtimes.dying:load_without_wide_instructions")
    assert finished(await events(pool, ask())).usage.completion_tokens == 6
    assert any("CMAKE_ARGS=" in note and "--force-reinstall" in note for note in bench.notes)


async def test_a_trap_that_cannot_be_avoided_names_cause_and_cure(bench: Bench) -> None:
    pool = bench.pool(executor="tests.runtimes.dying:load_never")
    with pytest.raises(EngineFailed, match=r"SIGILL.*CMAKE_ARGS=.*pip install") as first:
        await events(pool, ask())
    assert pool.models()[0].state is LoadState.FAILED
    with pytest.raises(EngineFailed) as again:  # not tried again for a while
        await events(pool, ask())
    assert again.value is first.value


async def test_a_request_whose_worker_dies_before_it_answered_is_run_again(bench: Bench) -> None:
    pool = bench.pool(executor="tests.runtimes.dying:load_and_die_once")
    ends = await asyncio.gather(*(events(pool, ask(c * 120)) for c in "abc"))
    assert all(finished(end).usage.completion_tokens == 6 for end in ends)
    assert any("died before it answered" in note for note in bench.notes)


async def test_a_stream_under_way_ends_with_an_error_when_its_worker_is_killed(
    bench: Bench,
) -> None:
    pool = bench.pool()
    await events(pool, ask())
    worker = pool._slots["tiny"].model.worker  # type: ignore[union-attr]
    assert worker.pid is not None
    got: list[Event] = []
    pid = worker.pid

    async def kill_at_the_first_text() -> None:
        async for event in pool.generate(ask("v" * 20, limits=Limits(max_tokens=200))):
            if isinstance(event, Text) and not any(isinstance(e, Text) for e in got):
                os.kill(pid, signal.SIGKILL)
            got.append(event)

    with pytest.raises(EngineFailed, match="SIGKILL"):
        await kill_at_the_first_text()
    assert any(isinstance(event, Text) for event in got)
    assert finished(await events(pool, ask())).usage.completion_tokens == 6


async def test_closing_ends_every_process(bench: Bench) -> None:
    pool = bench.pool()
    await events(pool, ask())
    pid = pool._slots["tiny"].model.worker.pid  # type: ignore[union-attr]
    assert pid is not None
    await pool.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


# ---------------------------------------------------------------------- a model that guesses


async def test_a_draft_model_is_loaded_beside_and_counted(bench: Bench) -> None:
    write_model(bench.shelf.folder / "small.gguf", "llama")
    alone, pair = bench.pool(), bench.pool(draft_model=bench.shelf.find("small"))
    text = [e for e in await events(alone, ask()) if isinstance(e, Text)]
    assert [e for e in await events(pair, ask()) if isinstance(e, Text)] == text
    sizes = [
        next(i for i in pool.models() if i.id == "tiny").memory_bytes for pool in (alone, pair)
    ]
    small = bench.shelf.find("small").size_bytes
    assert sizes[1] - sizes[0] > small


async def test_a_draft_model_of_another_kind_is_refused_in_a_note(bench: Bench) -> None:
    write_model(bench.shelf.folder / "stateful.gguf", "mamba")
    pool = bench.pool(draft_model=bench.shelf.find("stateful"))
    finished(await events(pool, ask()))
    assert any("cannot draft for tiny.gguf" in note for note in bench.notes)


async def test_a_model_does_not_guess_for_itself(bench: Bench) -> None:
    pool = bench.pool(draft_model=bench.shelf.find("tiny"))
    finished(await events(pool, ask()))
    assert not any("draft" in note for note in bench.notes)
