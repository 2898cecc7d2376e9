"""The command line: answers on stdout, one line for each error, and its exit codes."""

import asyncio
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

import app.build
from app.cli.main import main
from app.settings import Settings
from models.chat import Request, Started
from models.errors import ModelNotFound
from tests.app.conftest import Served, serving
from tests.app.scripted import MODEL, ScriptedHost, Step, finished

ROOT = Path(__file__).resolve().parents[2]
Pipe = Callable[[str], None]
pytestmark = pytest.mark.usefixtures("own_home")


@pytest.fixture(autouse=True)
def pipe(monkeypatch: pytest.MonkeyPatch) -> Pipe:
    def write(text: str) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))

    write("")
    return write


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> ScriptedHost:
    """The host that a command makes for itself."""
    host = ScriptedHost()

    def build(settings: Settings) -> ScriptedHost:
        return host

    monkeypatch.setattr(app.build, "build_private_host", build)
    return host


def prompt_of(request: Request) -> list[str]:
    return [message.content for message in request.prompt.messages]  # pyright: ignore


def test_run_answers_in_this_process(
    here: ScriptedHost, pipe: Pipe, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe("from a pipe\n")
    arguments = ["--system", "Be brief", "--max-tokens", "9", "--temperature", "0", "--seed", "3"]
    assert main(["run", MODEL, "Why?", *arguments]) == 0
    assert capsys.readouterr() == ("Hello there\n", "")
    (request,) = here.requests
    assert prompt_of(request) == ["Be brief", "Why?\n\nfrom a pipe"]
    assert (request.limits.max_tokens, request.sampling.seed) == (9, 3)
    assert request.sampling.temperature == 0
    assert here.closed


def test_run_takes_the_pipe_alone(here: ScriptedHost, pipe: Pipe) -> None:
    pipe("only this")
    assert main(["run", MODEL]) == 0
    assert prompt_of(here.requests[0]) == ["only this"]


def test_run_prints_json(here: ScriptedHost, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", MODEL, "Why?", "--json"]) == 0
    reply = json.loads(capsys.readouterr().out)
    assert reply["text"] == "Hello there"
    assert reply["usage"]["completion_tokens"] == 2


def test_run_without_an_answer_fails(
    here: ScriptedHost, capsys: pytest.CaptureFixture[str]
) -> None:
    here.script = lambda request: [Started(5, 4096), finished(0)]
    assert main(["run", MODEL, "Why?"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: The model gave no answer")


@pytest.mark.parametrize("arguments", [["run", "nope", "Why?"], ["run", MODEL]])
def test_errors_are_one_line(
    here: ScriptedHost, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert here.closed or not here.requests


@pytest.mark.parametrize(
    "arguments",
    [
        ["serve", "--port", "99999"],
        ["serve", "--host", "0.0.0.0"],
        ["serve", "--log-level", "loud"],
        ["ps"],
        ["ps", "--base-url", "nonsense"],
        ["run", "--base-url", "http://127.0.0.1:9/v1", MODEL, "Why?"],
    ],
)
def test_what_cannot_be_done_is_one_line(
    here: ScriptedHost, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1


def test_a_wrong_command_line_is_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fly"]) == 2
    assert main(["run"]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_an_interrupt_is_130(here: ScriptedHost) -> None:
    def script(request: Request) -> list[Step]:
        raise KeyboardInterrupt

    here.script = script
    assert main(["run", MODEL, "Why?"]) == 130
    assert here.closed


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("runner ")


async def command(*arguments: str) -> int:
    return await asyncio.to_thread(main, list(arguments))


async def test_run_asks_a_named_server_whatever_the_proxy(
    served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    for url in (served.url, served.url + "/v1", served.url + "/v1/"):
        assert await command("run", "--base-url", url, MODEL, "Why?") == 0
        assert capsys.readouterr().out == "Hello there\n"
    assert prompt_of(served.host.requests[0]) == ["Why?"]


async def test_run_finds_the_server_of_the_settings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RUNNER_API_KEY", "s3cret")
    async with serving(settings=Settings(api_key="s3cret")) as served:
        monkeypatch.setenv("RUNNER_PORT", served.url.rpartition(":")[2])
        assert await command("run", MODEL, "Why?") == 0
        assert len(served.host.requests) == 1
        assert await command("ps") == 0
        assert MODEL in capsys.readouterr().out
        monkeypatch.setenv("RUNNER_API_KEY", "wrong")
        assert await command("ps") == 1
        assert "key" in capsys.readouterr().err


async def test_a_servers_refusal_is_told(
    served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await command("run", "--base-url", served.url, "nope", "Why?") == 1
    assert "No model nope is here." in capsys.readouterr().err
    served.host.script = lambda r: [Started(5, 4096), 1.0, ModelNotFound("It went away.")]
    assert await command("run", "--base-url", served.url, MODEL, "Why?") == 1
    assert capsys.readouterr().err == "error: It went away.\n"


async def test_ps_shows_a_table(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    assert await command("ps", "--base-url", served.url) == 0
    heading, row = capsys.readouterr().out.splitlines()
    assert heading.split()[:3] == ["NAME", "STATE", "CONTEXT"]
    context, place = ["4096", "of", "32768"], ["CUDA0", "(20", "of", "33", "layers)"]
    assert row.split() == [MODEL, "ready", *context, "2.0", "GiB", *place, "1", "0", "61", "s"]
    assert await command("ps", "--base-url", served.url, "--json") == 0
    assert json.loads(capsys.readouterr().out)["models"][0]["id"] == MODEL


SERVE = """
import sys
sys.path.insert(0, {root!r})
from app.cli.errors import guarded
from app import server
from app.server import serve
from app.settings import Settings
from models.chat import Loading
from models.errors import DoesNotFit
from tests.app.scripted import ScriptedHost, answer
server.GRACE_S = {grace}
host = ScriptedHost()
words = answer(*["word "] * 10)
host.script = lambda r: [step for event in words(r) for step in (0.1, event)]
host.load_script = {load}
def ready(url): print(url, flush=True)
code = guarded(lambda: serve(Settings(port={port}), lambda s: host, preload={model!r}, ready=ready))
print("closed", host.closed, "cancelled", host.cancelled, "exit", code, flush=True)
sys.exit(code)
"""


def start(
    load: str = "()", model: str | None = None, port: int = 0, grace: int = 10
) -> subprocess.Popen[str]:
    code = SERVE.format(root=str(ROOT), load=load, model=model, port=port, grace=grace)
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_lets_running_answers_end(number: int, code: int) -> None:
    with start() as process:
        assert process.stdout
        url = process.stdout.readline().strip()
        with httpx.Client(base_url=url, trust_env=False, timeout=20) as http:
            body = {"model": MODEL, "messages": [{"role": "user", "content": "x"}], "stream": True}
            with http.stream("POST", "/v1/chat/completions", json=body) as reply:
                lines = reply.iter_lines()
                next(lines)
                process.send_signal(number)
                rest = "".join(lines)
            assert rest.count("word ") == 10
            assert "[DONE]" in rest
        out, err = process.communicate(timeout=20)
    assert out == f"closed True cancelled 0 exit {code}\n"
    assert "Traceback" not in err
    assert process.returncode == code


def test_an_answer_that_outlasts_the_grace_is_cut() -> None:
    with start(grace=0) as process:
        assert process.stdout
        url = process.stdout.readline().strip()
        body = {"model": MODEL, "messages": [{"role": "user", "content": "x"}]}
        with (
            httpx.Client(base_url=url, trust_env=False, timeout=20) as http,
            http.stream("POST", "/v1/chat/completions", json=body | {"stream": True}) as reply,
        ):
            lines = reply.iter_lines()  # held: a client that drops it hangs up
            next(lines)
            process.terminate()
            out, err = process.communicate(timeout=20)
    assert out == "closed True cancelled 1 exit 0\n"
    assert "Traceback" not in err
    assert "cut by the shutdown" in err


def test_a_second_signal_does_not_wait() -> None:
    with start() as process:
        assert process.stdout
        url = process.stdout.readline().strip()
        with httpx.Client(base_url=url, trust_env=False, timeout=20) as http:
            body = {"model": MODEL, "messages": [{"role": "user", "content": "x"}], "stream": True}
            with http.stream("POST", "/v1/chat/completions", json=body) as reply:
                lines = reply.iter_lines()
                next(lines)
                process.send_signal(signal.SIGINT)
                time.sleep(0.2)
                process.send_signal(signal.SIGINT)
                began = time.monotonic()
                out, err = process.communicate(timeout=20)
                assert time.monotonic() - began < 5
    assert out.startswith("closed True")
    assert "Traceback" not in err


def test_health_waits_for_the_model_that_was_named() -> None:
    with start("(Loading(0.1), 0.6, Loading(0.9))", MODEL) as process:
        assert process.stdout
        url = process.stdout.readline().strip()
        with httpx.Client(base_url=url, trust_env=False) as http:
            states = [http.get("/health").status_code]
            while states[-1] == 503:
                time.sleep(0.05)
                states.append(http.get("/health").status_code)
        process.terminate()
        out, _ = process.communicate(timeout=20)
    assert states[0] == 503
    assert states[-1] == 200
    assert "exit 0" in out


def test_a_model_that_cannot_be_loaded_ends_the_server() -> None:
    with start("(0.1, DoesNotFit('It is too big.'))", MODEL) as process:
        _, err = process.communicate(timeout=20)
    assert process.returncode == 1
    assert err.endswith("error: It is too big.\n")
    assert "Traceback" not in err


async def test_a_port_that_is_taken_is_one_line(served: Served) -> None:
    port = int(served.url.rpartition(":")[2])
    with start(port=port) as process:
        _, err = await asyncio.to_thread(process.communicate, None, 20)
    assert process.returncode == 1
    assert err.startswith(f"error: Cannot listen on 127.0.0.1 port {port}: a runner server (pid ")
    assert err.count("\n") == 1


def test_a_closed_pipe_is_quiet(tmp_path: Path) -> None:
    env = {**os.environ, "RUNNER_HOME": str(tmp_path)}
    command = f"{sys.executable} {ROOT / 'runner.py'} --help | true"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, env=env, timeout=20)
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr
