"""Coding agents as people install them, started by `runner launch` in a home whose own settings
point elsewhere. `make test-clients` installs them."""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from app.launch.recipes import RECIPES
from app.settings import Settings
from models.chat import Conversation
from tests.app.conftest import serving, until
from tests.app.scripted import MODEL, ScriptedHost, answer
from tests.app.test_real_model import Served

ROOT = Path(__file__).resolve().parents[2]
KEY = "s3cret-key"
QUESTION = "say hi"
NOBODY = "http://127.0.0.1:9"

HEADLESS = {
    "codex": ["exec", "--skip-git-repo-check", QUESTION],
    "claude": ["-p", QUESTION],
    "opencode": ["run", QUESTION],
    "qwen": ["-p", QUESTION],
    "aider": ["--yes-always", "--no-gitignore", "--no-git", "--message", QUESTION],
    "cline": [QUESTION],
    "pi": ["-p", QUESTION],
    "copilot": ["-p", QUESTION],
}
"""How each asks one question. goose is on no package index, so it is tried nowhere here."""

OWN_SETTINGS = {
    ".codex/config.toml": (
        'model = "other"\nmodel_provider = "elsewhere"\n[model_providers.elsewhere]\n'
        f'name = "elsewhere"\nbase_url = "{NOBODY}/v1"\nwire_api = "responses"\n'
    ),
    ".claude/settings.json": json.dumps(
        {"model": "opus", "env": {"ANTHROPIC_BASE_URL": NOBODY, "ANTHROPIC_MODEL": "other"}}
    ),
    ".config/opencode/opencode.json": json.dumps(
        {
            "model": "elsewhere/other",
            "provider": {
                "elsewhere": {
                    "npm": "@ai-sdk/openai-compatible",
                    "options": {"baseURL": f"{NOBODY}/v1", "apiKey": "own"},
                    "models": {"other": {}},
                }
            },
        }
    ),
    ".qwen/settings.json": json.dumps(
        {
            "security": {"auth": {"selectedType": "openai", "apiKey": "own", "baseUrl": NOBODY}},
            "model": {"name": "other"},
        }
    ),
    ".aider.conf.yml": f"model: other\nopenai-api-base: {NOBODY}/v1\nopenai-api-key: own\n",
    ".pi/agent/settings.json": json.dumps({"defaultProvider": "openai", "defaultModel": "other"}),
    ".pi/agent/models.json": json.dumps(
        {
            "providers": {
                "runner": {
                    "baseUrl": f"{NOBODY}/v1",
                    "api": "openai-completions",
                    "apiKey": "own",
                    "models": [{"id": "other"}],
                }
            }
        }
    ),
}


def _agents() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("RUNNER_AGENTS") or Path(cache) / "runner-local" / "agents")


def _path() -> str:
    """Where the agents are, and the Node.js that was installed with them, before all others."""
    agents = _agents()
    places = [
        *sorted(agents.glob("npm/node/node_modules/node-*/bin")),
        *(agents / "npm" / name / "node_modules" / ".bin" for name in HEADLESS),
        agents / "py" / "aider" / "bin",
    ]
    return ":".join([*map(str, places), "/usr/local/bin:/usr/bin:/bin"])


def _home(folder: Path) -> dict[str, str]:
    """A home with settings of its own, and the environment that goes with it."""
    for name, text in OWN_SETTINGS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    for name in ("temporary", "work"):
        (folder / name).mkdir()
    return {
        "PATH": _path(),
        "HOME": str(folder),
        "TMPDIR": str(folder / "temporary"),
        "RUNNER_HOME": str(folder / "runner"),
        "RUNNER_API_KEY": KEY,
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "ANTHROPIC_API_KEY": "own",
        "OPENAI_API_KEY": "own",
    }


def _launch(agent: str, url: str, home: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "runner.py"), "launch", agent, "--base-url", url, "--"]
    return subprocess.run(
        [*command, *HEADLESS[agent]],
        env=_home(home),
        cwd=home,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=180,
    )


def _alive_in(home: Path) -> Callable[[], bool]:
    """Whether a process still runs that was started with this home."""

    def alive() -> bool:
        for process in psutil.process_iter():
            try:
                if process.environ().get("HOME") == str(home):
                    return True
            except psutil.Error:
                continue
        return False

    return alive


def _holding(folder: Path, text: bytes) -> list[str]:
    files = [file for file in folder.rglob("*") if file.is_file() and not file.is_symlink()]
    return [str(file) for file in files if text in file.read_bytes()]


@pytest.mark.parametrize("agent", HEADLESS)
async def test_a_launched_agent_asks_this_server_and_shows_its_answer(
    agent: str, tmp_path: Path
) -> None:
    host = ScriptedHost(answer("Hello", " there", " friend"))
    host.infos[0] = replace(host.infos[0], context=32768)
    async with serving(host, Settings(api_key=KEY)) as served:
        done = await asyncio.to_thread(_launch, agent, served.url, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Hello there friend" in done.stdout
    prompts = [request.prompt for request in host.requests]
    conversations = [prompt for prompt in prompts if isinstance(prompt, Conversation)]
    said = [message.content for each in conversations for message in each.messages]
    assert any(QUESTION in text for text in said)
    assert {request.model for request in host.requests} == {MODEL}
    alive = _alive_in(tmp_path)
    await until(lambda: not alive(), 15)
    assert not [name for name in os.listdir(tmp_path / "temporary") if name.startswith("runner-")]
    assert _holding(tmp_path, KEY.encode()) == []


async def test_an_agent_reads_and_answers_on_a_real_model(starter: Served, tmp_path: Path) -> None:
    env = {**_home(tmp_path), "RUNNER_API_KEY": ""}
    command = [sys.executable, str(ROOT / "runner.py"), "launch", "aider", "--anyway"]
    done = await asyncio.to_thread(
        subprocess.run,
        [*command, "--base-url", starter.url, "--", *HEADLESS["aider"]],
        env=env,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    sent = re.search(r"Tokens: ([\d.k]+) sent, ([\d.k]+) received", done.stdout)
    assert sent is not None, done.stdout
    assert "0" not in sent.groups()


def test_the_documented_versions_are_those_that_are_installed() -> None:
    make = (ROOT / "Makefile").read_text("utf-8")
    table = (ROOT / "docs" / "CLIENTS.md").read_text("utf-8")
    pinned = dict(re.findall(r"\b([a-z]+)(?:=@?[a-z/-]+@|-chat==)([\d.]+)", make))
    assert set(pinned) == set(HEADLESS) == set(RECIPES) - {"goose"}
    for name, version in pinned.items():
        assert re.search(rf"^\| {name} .*\| {re.escape(version)} \|", table, re.MULTILINE), name
