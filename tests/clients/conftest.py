"""Two servers for the clients that people use: a scripted one that says what a test expects, and
one on the starter model. `make test-clients` installs the clients and runs these tests."""

import asyncio
import os
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from models.chat import (
    Conversation,
    FinishReason,
    Prefill,
    Reasoning,
    Request,
    Role,
    Started,
    Text,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    ToolMode,
)
from tests.app.conftest import serving as serving_here
from tests.app.scripted import ScriptedHost, Step, finished
from tests.app.test_real_model import Served
from tests.app.test_real_model import serving as serving_process


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What clients warn of among themselves is not ours to mend."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("default"))


@pytest.fixture(autouse=True, scope="session")
def _alone() -> Iterator[None]:
    """No proxy, key or phone home of whoever runs the tests."""
    patch = pytest.MonkeyPatch()
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name.startswith(("OPENAI_", "ANTHROPIC_", "OLLAMA_")):
            patch.delenv(name)
    patch.setenv("NO_PROXY", "*")
    patch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    yield
    patch.undo()


def helpful(request: Request) -> Iterable[Step]:
    """Calls the first tool once, tells what it returned, and greets where there is no tool."""
    prompt = request.prompt
    assert isinstance(prompt, Conversation)
    yield Started(5, 4096)
    yield Prefill(5, 5, 3)
    results = [m.content for m in prompt.messages if m.role is Role.TOOL]
    if prompt.tools and not results and request.tool_choice.mode is not ToolMode.NONE:
        yield Reasoning("I need a sum.")
        yield ToolCallStart(0, "a1b2c3d4e", prompt.tools[0].name)
        yield ToolCallDelta(0, '{"a": 2, ')
        yield ToolCallDelta(0, '"b": 3}')
        yield ToolCallEnd(0)
        yield finished(7, FinishReason.TOOL_CALLS)
        return
    words = ("It is ", f"{results[-1]}.") if results else ("Hello", " there")
    for word in words:
        yield Text(word)
    yield finished(len(words))


class Scripted:
    """A server in a thread of its own, for clients that block."""

    def __init__(self) -> None:
        self.host = ScriptedHost(helpful)
        self.url = ""
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    async def _run(self) -> None:
        self._stop, self._loop = asyncio.Event(), asyncio.get_running_loop()
        async with serving_here(self.host) as served:
            self.url = served.url
            self._ready.set()
            await self._stop.wait()

    def __enter__(self) -> "Scripted":
        self._thread.start()
        assert self._ready.wait(20)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._loop is not None
        assert self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(20)
        assert not self._thread.is_alive()

    @property
    def asked(self) -> list[Conversation]:
        """The conversations that came in."""
        prompts = [request.prompt for request in self.host.requests]
        return [prompt for prompt in prompts if isinstance(prompt, Conversation)]

    def tool_results(self) -> list[str]:
        """What the last request had from tools."""
        return [m.content for m in self.asked[-1].messages if m.role is Role.TOOL]


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    with Scripted() as made:
        yield made


@pytest.fixture(scope="session")
def starter(tmp_path_factory: pytest.TempPathFactory, smollm2_path: Path) -> Iterator[Served]:
    """A server process on SmolLM2."""
    assert smollm2_path.exists()
    with serving_process(tmp_path_factory.mktemp("starter")) as one:
        yield one
