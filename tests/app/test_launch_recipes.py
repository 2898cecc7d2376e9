"""What `runner launch` gives to each agent: variables, arguments and files, and nothing else."""

import asyncio
import json
import subprocess
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from app.launch.recipes import RECIPES
from app.settings import Settings
from tests.app import fakeagent
from tests.app.conftest import Served, serving
from tests.app.launching import KEY, Bench, Seen, bench_in, given, holding
from tests.app.scripted import MODEL, ScriptedHost

CONTEXT = 32768


@dataclass(frozen=True)
class Given:
    """What an agent shall see. `{url}` and `{folder}` stand for themselves; the key is in `key_in`
    and nowhere else."""

    env: dict[str, str] = field(default_factory=dict[str, str])
    key_in: tuple[str, ...] = ("RUNNER_AGENT_KEY",)
    args: tuple[str, ...] = ()
    files: dict[str, Any] = field(default_factory=dict[str, Any])


CLAUDE = {
    "ANTHROPIC_BASE_URL": "{url}",
    "ANTHROPIC_MODEL": MODEL,
    "ANTHROPIC_DEFAULT_HAIKU_MODEL": MODEL,
    "ANTHROPIC_DEFAULT_SONNET_MODEL": MODEL,
    "ANTHROPIC_DEFAULT_OPUS_MODEL": MODEL,
    "CLAUDE_CODE_SUBAGENT_MODEL": MODEL,
    "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_TELEMETRY": "1",
    "API_TIMEOUT_MS": "600000",
    "CLAUDE_CODE_MAX_CONTEXT_TOKENS": "32768",
    "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "8192",
}
CODEX = {
    "model": f'"{MODEL}"',
    "model_provider": '"runner"',
    "model_providers.runner.name": '"runner"',
    "model_providers.runner.base_url": '"{url}/v1"',
    "model_providers.runner.wire_api": '"responses"',
    "model_providers.runner.env_key": '"RUNNER_AGENT_KEY"',
    "check_for_update_on_startup": "false",
    "analytics.enabled": "false",
    "otel.exporter": '"none"',
    "model_context_window": "32768",
}
OPENCODE = {
    "model": f"runner/{MODEL}",
    "small_model": f"runner/{MODEL}",
    "autoupdate": False,
    "share": "disabled",
    "provider": {
        "runner": {
            "npm": "@ai-sdk/openai-compatible",
            "name": "runner",
            "options": {"baseURL": "{url}/v1", "apiKey": "{env:RUNNER_AGENT_KEY}"},
            "models": {
                MODEL: {
                    "name": MODEL,
                    "tool_call": True,
                    "limit": {"context": 32768, "output": 8192},
                }
            },
        }
    },
}
PI = {
    "baseUrl": "{url}/v1",
    "apiKey": "$RUNNER_AGENT_KEY",
    "api": "openai-completions",
    "models": [
        {
            "id": MODEL,
            "name": MODEL,
            "reasoning": False,
            "input": ["text"],
            "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
            "contextWindow": 32768,
            "maxTokens": 8192,
        }
    ],
}
EXPECTED = {
    "codex": Given(
        args=tuple(part for pair in CODEX.items() for part in ("-c", "=".join(pair))),
    ),
    "claude": Given(
        CLAUDE,
        ("ANTHROPIC_AUTH_TOKEN",),
        ("--settings", "{folder}/settings.json"),
        {"settings.json": {"env": CLAUDE}},
    ),
    "opencode": Given(
        {
            "OPENCODE_CONFIG_CONTENT": json.dumps(OPENCODE),
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
        }
    ),
    "qwen": Given(
        {
            "OPENAI_BASE_URL": "{url}/v1",
            "OPENAI_MODEL": MODEL,
            "QWEN_USAGE_STATISTICS_ENABLED": "false",
            "QWEN_CODE_SYSTEM_SETTINGS_PATH": "{folder}/settings.json",
        },
        ("OPENAI_API_KEY",),
        files={
            "settings.json": {
                "general": {"enableAutoUpdate": False, "disableAutoUpdate": True},
                "model": {"name": MODEL, "generationConfig": {"contextWindowSize": 32768}},
                "privacy": {"usageStatisticsEnabled": False},
                "security": {"auth": {"selectedType": "openai"}},
                "telemetry": {"enabled": False},
            }
        },
    ),
    "aider": Given(
        {
            "OPENAI_API_BASE": "{url}/v1",
            "AIDER_OPENAI_API_BASE": "{url}/v1",
            "AIDER_MODEL": f"openai/{MODEL}",
            "AIDER_WEAK_MODEL": f"openai/{MODEL}",
            "AIDER_ANALYTICS": "false",
            "AIDER_ANALYTICS_DISABLE": "true",
            "AIDER_CHECK_UPDATE": "false",
            "AIDER_SHOW_MODEL_WARNINGS": "false",
            "AIDER_SHOW_RELEASE_NOTES": "false",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "AIDER_MODEL_METADATA_FILE": "{folder}/models.json",
        },
        ("OPENAI_API_KEY", "AIDER_OPENAI_API_KEY"),
        files={
            "models.json": {
                f"openai/{MODEL}": {
                    "litellm_provider": "openai",
                    "mode": "chat",
                    "max_input_tokens": 32768,
                }
            }
        },
    ),
    "cline": Given(
        {
            "CLINE_PROVIDER_SETTINGS_PATH": "{folder}/providers.json",
            "CLINE_GLOBAL_SETTINGS_PATH": "{folder}/settings.json",
            "CLINE_SESSION_BACKEND_MODE": "local",
        },
        ("OPENAI_API_KEY",),
        files={
            "providers.json": {
                "version": 1,
                "lastUsedProvider": "openai-compatible",
                "modes": {},
                "providers": {
                    "openai-compatible": {
                        "settings": {
                            "provider": "openai-compatible",
                            "model": MODEL,
                            "baseUrl": "{url}/v1",
                        },
                        "updatedAt": "2026-01-01T00:00:00.000Z",
                        "tokenSource": "manual",
                    }
                },
            },
            "settings.json": {"telemetryOptOut": True, "autoUpdateEnabled": False},
        },
    ),
    "goose": Given(
        {
            "GOOSE_PROVIDER": "openai",
            "GOOSE_MODEL": MODEL,
            "GOOSE_DISABLE_KEYRING": "1",
            "GOOSE_TELEMETRY_OFF": "1",
            "GOOSE_CONTEXT_LIMIT": "32768",
            "OPENAI_HOST": "{url}",
            "OPENAI_BASE_PATH": "v1/chat/completions",
        },
        ("OPENAI_API_KEY",),
    ),
    "pi": Given(
        {"PI_OFFLINE": "1", "PI_TELEMETRY": "0"},
        args=(
            *("--extension", "{folder}/runner.js"),
            *("--provider", "runner", "--model", MODEL),
        ),
        files={"runner.js": PI},
    ),
    "copilot": Given(
        {
            "COPILOT_PROVIDER_BASE_URL": "{url}/v1",
            "COPILOT_PROVIDER_TYPE": "openai",
            "COPILOT_PROVIDER_WIRE_API": "completions",
            "COPILOT_MODEL": MODEL,
            "COPILOT_OFFLINE": "true",
            "COPILOT_PROVIDER_MAX_PROMPT_TOKENS": "24576",
            "COPILOT_PROVIDER_MAX_OUTPUT_TOKENS": "8192",
        },
        ("COPILOT_PROVIDER_API_KEY",),
    ),
}
LEADS_ELSEWHERE = {
    "claude": ("ANTHROPIC_API_KEY", "CLAUDE_CODE_USE_BEDROCK"),
    "qwen": ("QWEN_MODEL",),
    "aider": ("OPENAI_BASE_URL",),
    "goose": ("OPENAI_BASE_URL", "OPENAI_ORGANIZATION"),
    "copilot": ("COPILOT_PROVIDER_BEARER_TOKEN", "COPILOT_PROVIDER_MODEL_ID"),
}


@pytest.fixture
async def locked() -> AsyncGenerator[Served]:
    """A server that asks for a key, with a model of a comfortable context."""
    host = ScriptedHost()
    host.infos[0] = replace(host.infos[0], context=CONTEXT)
    async with serving(host, Settings(api_key=KEY)) as one:
        yield one


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return bench_in(tmp_path)


def content(name: str, text: str) -> Any:
    """JSON, or the object in the one call of a script."""
    if name.endswith(".js"):
        head, _, tail = text.partition('registerProvider("runner", ')
        assert head == "export default (pi) => pi."
        text = tail.rstrip().removesuffix(");")
    return json.loads(text)


def filled(value: Any, url: str, folder: str) -> Any:
    text = json.dumps(value).replace("{url}", url).replace("{folder}", folder)
    return json.loads(text)


def check(bench: Bench, seen: Seen, expected: Given, url: str, folder: str) -> None:
    env = {**expected.env, **dict.fromkeys(expected.key_in, KEY)}
    no_proxy = "127.0.0.1,localhost"
    env |= {"NO_PROXY": no_proxy, "no_proxy": no_proxy}
    assert given(bench, seen) == filled(env, url, folder)
    assert seen.argv == filled([*expected.args, "-p", "say hi"], url, folder)
    contents = {name: content(name, text) for name, text in seen.files.items()}
    assert contents == filled(expected.files, url, folder)


def test_every_agent_has_an_expectation() -> None:
    assert set(EXPECTED) == set(RECIPES) == set(fakeagent.NAMES)


@pytest.mark.parametrize("agent", fakeagent.NAMES)
async def test_an_agent_is_given_what_it_needs_and_the_key_by_its_environment_alone(
    agent: str, locked: Served, bench: Bench
) -> None:
    expected = EXPECTED[agent]
    own = dict.fromkeys(LEADS_ELSEWHERE.get(agent, ()), "the-user's-own")
    own |= dict.fromkeys(expected.key_in, "the-user's-own-key")
    env = bench.env(RUNNER_API_KEY=KEY, **own)
    done = await bench.launch(agent, MODEL, "--base-url", locked.url, "--", "-p", "say hi", env=env)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    seen = bench.seen()
    ((folder, mode),) = seen.folders.items()
    assert mode == "0o700"
    assert set(seen.modes.values()) <= {"0o600"}
    check(bench, seen, expected, locked.url, folder)
    assert KEY not in json.dumps([seen.argv, seen.files])
    assert holding(seen.env, KEY) == {"RUNNER_API_KEY", *expected.key_in}
    assert holding(seen.env, "the-user's-own") == set()
    assert bench.left_over() == []


@pytest.mark.parametrize("agent", fakeagent.NAMES)
async def test_what_is_printed_does_the_same_in_a_shell(
    agent: str, locked: Served, bench: Bench
) -> None:
    expected = EXPECTED[agent]
    env = bench.env(RUNNER_API_KEY=KEY)
    printed = await bench.launch(
        agent, "--print", "--base-url", locked.url, "--", "-p", "say hi", env=env
    )
    assert (printed.returncode, printed.stderr) == (0, "")
    assert KEY not in printed.stdout
    assert not bench.seen_file.exists()
    assert bench.left_over() == []
    for name in expected.key_in:
        assert f'export {name}="${{RUNNER_API_KEY:-none}}"\n' in printed.stdout
    env |= dict.fromkeys(LEADS_ELSEWHERE.get(agent, ()), "the-user's-own")
    await asyncio.to_thread(
        subprocess.run, ["sh", "-c", printed.stdout], env=env, check=True, timeout=30
    )
    seen = bench.seen()
    made = [bench.temporary / name for name in bench.left_over()]
    assert len(made) == bool(expected.files)
    written = [file for folder in made for file in folder.iterdir()]
    seen = replace(seen, files={file.name: file.read_text() for file in written})
    check(bench, seen, expected, locked.url, "".join(map(str, made)))


@pytest.mark.parametrize("agent", fakeagent.NAMES)
async def test_a_context_that_is_too_small_is_refused_with_what_to_do(
    agent: str, served: Served, bench: Bench
) -> None:
    recipe = RECIPES[agent]
    done = await bench.launch(agent, "--base-url", served.url)
    assert done.returncode == 1
    assert not bench.seen_file.exists()
    need = recipe.least_context
    assert done.stderr.startswith(f"error: {recipe.title} needs a context of {need} tokens: ")
    assert f"is about {recipe.first_prompt}, " in done.stderr
    assert f"{MODEL} has 4096 here. " in done.stderr
    assert f"`runner serve {MODEL} --ctx {need}`" in done.stderr
    assert "--anyway" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("agent", fakeagent.NAMES)
async def test_an_agent_that_is_not_installed_is_127_with_the_command_that_installs_it(
    agent: str, served: Served, bench: Bench
) -> None:
    (bench.home / "bin" / RECIPES[agent].executable).unlink()
    done = await bench.launch(agent, "org/other:Q4_K_M", "--base-url", served.url)
    assert done.returncode == 127
    assert done.stdout == ""
    assert done.stderr.startswith(f"error: {RECIPES[agent].title} is not installed: ")
    assert f"`{RECIPES[agent].install}`" in done.stderr
    assert served.host.loads == []


def test_the_least_context_holds_the_first_prompt_and_room_to_work() -> None:
    for one in RECIPES.values():
        assert one.least_context % 4096 == 0
        assert 8192 <= one.least_context - one.first_prompt < 8192 + 4096
    assert RECIPES["qwen"].least_context == 28672
    assert RECIPES["pi"].least_context == 12288
