"""`runner launch`: which server and model an agent gets, its terminal, its signals, its status."""

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from models.chat import Loading
from runtimes.base import LoadState
from tests.app import fakeagent
from tests.app.conftest import Served, serving, until
from tests.app.launching import Bench, bench_in, exists
from tests.app.scripted import MODEL, ScriptedHost
from tests.weights import write_model

OTHER = "org/other:Q4_K_M"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return bench_in(tmp_path)


@pytest.fixture
async def roomy() -> AsyncGenerator[Served]:
    """A server with a model of a comfortable context, and one that is not loaded."""
    host = ScriptedHost()
    host.infos[0] = replace(host.infos[0], context=32768)
    host.infos[1] = replace(host.infos[1], trained_context=131072)
    async with serving(host) as one:
        yield one


@pytest.mark.parametrize(("act", "status"), [("exit 0", 0), ("exit 3", 3), ("die 9", 137)])
async def test_the_status_is_the_agents(roomy: Served, bench: Bench, act: str, status: int) -> None:
    env = bench.env(**{fakeagent.ACT: act})
    done = await bench.launch("claude", "--base-url", roomy.url, env=env)
    assert done.returncode == status
    assert list(bench.seen().modes) == ["settings.json"]
    assert bench.left_over() == []


async def test_what_follows_two_dashes_is_the_agents_as_it_stands(
    roomy: Served, bench: Bench
) -> None:
    rest = ["exec", "--print", "--", "a 'b' $c", ""]
    done = await bench.launch("opencode", "--base-url", roomy.url, "--", *rest)
    assert done.returncode == 0, done.stderr
    assert bench.seen().argv == rest


async def test_arguments_without_the_dashes_are_refused(roomy: Served, bench: Bench) -> None:
    done = await bench.launch("opencode", MODEL, "run", "--base-url", roomy.url)
    assert done.returncode == 2
    assert not bench.seen_file.exists()


async def test_an_unknown_agent_is_told_which_there_are(bench: Bench) -> None:
    done = await bench.launch("emacs")
    assert done.returncode == 1
    assert ", ".join(fakeagent.NAMES) in done.stderr
    usage = (await bench.launch("--help")).stdout
    assert all(name in usage for name in fakeagent.NAMES)


async def test_without_a_name_the_loaded_model_is_meant(roomy: Served, bench: Bench) -> None:
    port = roomy.url.rpartition(":")[2]
    done = await bench.launch("goose", env=bench.env(RUNNER_PORT=port))
    assert (done.returncode, done.stderr) == (0, "")
    assert bench.seen().env["GOOSE_MODEL"] == MODEL
    assert roomy.host.loads == []


async def test_without_a_name_and_a_loaded_one_the_choice_is_asked_for(
    roomy: Served, bench: Bench
) -> None:
    roomy.host.infos[0] = replace(roomy.host.infos[0], state=LoadState.ABSENT)
    done = await bench.launch("goose", "--base-url", roomy.url)
    assert done.returncode == 1
    assert f"{MODEL}, {OTHER}. Name one: `runner launch AGENT MODEL`." in done.stderr
    del roomy.host.infos[0]
    done = await bench.launch("goose", "--base-url", roomy.url, "--print")
    assert f"export GOOSE_MODEL={OTHER}\n" in done.stdout
    assert roomy.host.loads == []


async def test_a_model_that_is_not_there_is_told(roomy: Served, bench: Bench) -> None:
    done = await bench.launch("goose", "nope", "--base-url", roomy.url)
    assert done.returncode == 1
    assert done.stderr == "error: No model nope is here.\n"


class Loads(ScriptedHost):
    """Loads with as much context as it is told to."""

    gets = 65536

    async def load(self, model: str) -> AsyncGenerator[Loading, None]:
        async for step in super().load(model):
            yield step
        self.infos[1] = replace(self.infos[1], state=LoadState.READY, context=self.gets)


@pytest.mark.parametrize("gets", [65536, 8192])
async def test_a_model_is_loaded_first_and_judged_by_the_context_that_it_gets(
    bench: Bench, gets: int
) -> None:
    host = Loads()
    host.gets = gets
    host.infos[1] = replace(host.infos[1], trained_context=131072)
    async with serving(host) as served:
        done = await bench.launch("goose", OTHER, "--base-url", served.url)
    assert host.loads == [OTHER]
    assert done.stderr.startswith(f"launch: loading {OTHER}\n")
    if gets == 65536:
        assert done.returncode == 0
        assert bench.seen().env["GOOSE_CONTEXT_LIMIT"] == "65536"
    else:
        assert done.returncode == 1
        assert f"{OTHER} has 8192 here. Serve it with more: " in done.stderr
        assert not bench.seen_file.exists()


async def test_what_no_setting_can_mend_is_not_loaded(served: Served, bench: Bench) -> None:
    done = await bench.launch("codex", OTHER, "--base-url", served.url)
    assert done.returncode == 1
    assert f"{OTHER} has 8192 here. No setting makes it longer" in done.stderr
    assert served.host.loads == []


async def test_a_small_context_is_taken_where_the_user_wants_it(
    served: Served, bench: Bench
) -> None:
    done = await bench.launch("goose", "--anyway", "--base-url", served.url)
    assert (done.returncode, done.stderr) == (0, "")
    assert bench.seen().env["GOOSE_CONTEXT_LIMIT"] == "4096"


async def test_printing_warns_of_a_small_context_and_prints(served: Served, bench: Bench) -> None:
    done = await bench.launch("goose", "--print", "--base-url", served.url)
    assert done.returncode == 0
    assert done.stderr.startswith("launch: goose needs a context of ")
    assert "export GOOSE_CONTEXT_LIMIT=4096\n" in done.stdout


async def test_a_server_without_a_key_is_sent_a_word(roomy: Served, bench: Bench) -> None:
    await bench.launch("claude", "--base-url", roomy.url)
    assert bench.seen().env["ANTHROPIC_AUTH_TOKEN"] == "none"


async def test_a_proxy_is_not_asked_for_the_server(roomy: Served, bench: Bench) -> None:
    env = bench.env(NO_PROXY="intra.example, 10.0.0.1", http_proxy="http://127.0.0.1:9")
    assert (await bench.launch("goose", "--base-url", roomy.url, env=env)).returncode == 0
    seen = bench.seen()
    for name in ("NO_PROXY", "no_proxy"):
        assert seen.env[name] == "intra.example,10.0.0.1,127.0.0.1,localhost"
    assert seen.env["http_proxy"] == "http://127.0.0.1:9"


async def test_a_program_that_cannot_be_started_is_one_line(roomy: Served, bench: Bench) -> None:
    (bench.home / "bin" / "goose").write_text("#!/nowhere/at/all\n")
    done = await bench.launch("goose", "--base-url", roomy.url)
    assert done.returncode == 1
    assert "goose cannot be started: " in done.stderr
    assert done.stderr.count("\n") == 1
    assert bench.left_over() == []


async def ended(process: subprocess.Popen[bytes]) -> int:
    return await asyncio.to_thread(process.wait, 30)


@pytest.mark.parametrize(
    ("numbers", "status"),
    [([signal.SIGTERM], 10), ([signal.SIGINT, signal.SIGTERM], 11), ([signal.SIGHUP], 129)],
)
async def test_signals_are_the_agents_and_nothing_stays_behind(
    roomy: Served, bench: Bench, numbers: list[signal.Signals], status: int
) -> None:
    env = bench.env(**{fakeagent.ACT: "wait"})
    with bench.start("claude", "--base-url", roomy.url, env=env) as process:
        await until(exists(bench.seen_file), 30)
        assert len(bench.left_over()) == 1
        for number in numbers:
            process.send_signal(number)
            if number is signal.SIGINT:
                await until(exists(bench.seen_file.with_suffix(".interrupts")), 30)
        assert await ended(process) == status
    assert bench.left_over() == []


async def test_control_c_reaches_the_agent_once_and_the_terminal_is_its_own(
    roomy: Served, bench: Bench
) -> None:
    ours, theirs = os.openpty()
    try:
        env = bench.env(**{fakeagent.ACT: "wait"})
        with bench.start("claude", "--base-url", roomy.url, env=env, terminal=theirs) as process:
            await until(exists(bench.seen_file), 30)
            assert bench.seen().terminal == [True, True, True]
            os.write(ours, b"\x03")
            await until(exists(bench.seen_file.with_suffix(".interrupts")), 30)
            assert process.poll() is None
            process.terminate()
            assert await ended(process) == 11
    finally:
        os.close(ours)
        os.close(theirs)
    assert bench.left_over() == []


async def test_where_no_server_runs_one_is_started_and_ends_with_the_agent(bench: Bench) -> None:
    model = write_model(bench.home / "random.gguf", "llama")
    env = bench.env(**{fakeagent.ACT: "ask"}, RUNNER_API_KEY="")
    refused = await bench.launch("goose", str(model), env=env)
    assert refused.returncode == 1
    assert "goose needs a context of 16384 tokens: " in refused.stderr
    done = await bench.launch("goose", str(model), "--anyway", env=env)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith(f"launch: starting a server for {model}\n")
    seen = bench.seen()
    assert seen.env["GOOSE_MODEL"] in [one["id"] for one in seen.models["data"]]
    assert seen.env["GOOSE_CONTEXT_LIMIT"] == "4096"
    async with httpx.AsyncClient(trust_env=False) as http:
        with pytest.raises(httpx.ConnectError):
            await http.get(seen.env["OPENAI_HOST"] + "/health")


async def test_where_no_server_runs_and_several_models_are_here_this_is_told(
    bench: Bench,
) -> None:
    own = bench.home / "runner" / "models"
    own.mkdir(parents=True)
    write_model(own / "first.gguf", "llama", seed=1)
    write_model(own / "second.gguf", "llama", seed=2)
    done = await bench.launch("goose")
    assert done.returncode == 1
    assert "not clear: no server runs, and this machine has " in done.stderr
    assert "first" in done.stderr


async def test_printing_starts_nothing(bench: Bench) -> None:
    model = write_model(bench.home / "random.gguf", "llama")
    done = await bench.launch("goose", str(model), "--print")
    assert (done.returncode, done.stderr) == (0, "")
    assert "export OPENAI_HOST=http://127.0.0.1:9\n" in done.stdout
    assert "GOOSE_CONTEXT_LIMIT" not in done.stdout
    assert not bench.seen_file.exists()
