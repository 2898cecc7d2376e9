"""The agents that can be launched, and how each is pointed at a server.

Whatever an agent has a variable or a flag for is set there, since its own files stay as they are;
what it reads from a file only lies in a folder that goes when the agent ends."""

import json
from typing import Any

from app.launch.base import KEY_VARIABLE, Recipe, Setup, Target
from models.errors import RequestInvalid

_PROVIDER = "runner"


def recipe(name: str) -> Recipe:
    """The recipe of an agent. Raises RequestInvalid."""
    found = RECIPES.get(name.lower())
    if found is None:
        raise RequestInvalid(
            f"{name} is not an agent that can be launched; these can: {', '.join(RECIPES)}. "
            "Another one can be pointed at the address that `runner serve` prints."
        )
    return found


def _codex(target: Target) -> Setup:
    provider = f"model_providers.{_PROVIDER}"
    settings: dict[str, Any] = {
        "model": target.model,
        "model_provider": _PROVIDER,
        f"{provider}.name": _PROVIDER,
        f"{provider}.base_url": target.openai_url,
        f"{provider}.wire_api": "responses",
        f"{provider}.env_key": KEY_VARIABLE,
        "check_for_update_on_startup": False,
        "analytics.enabled": False,
        "otel.exporter": "none",
    }
    if target.context:
        settings["model_context_window"] = target.context
    # The values are TOML, and JSON's strings, numbers and booleans are the same there.
    pairs = [f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in settings.items()]
    return Setup({}, (KEY_VARIABLE,), args=tuple(part for pair in pairs for part in ("-c", pair)))


def _claude(target: Target) -> Setup:
    env = {
        "ANTHROPIC_BASE_URL": target.url,
        "ANTHROPIC_MODEL": target.model,
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": target.model,
        "ANTHROPIC_DEFAULT_SONNET_MODEL": target.model,
        "ANTHROPIC_DEFAULT_OPUS_MODEL": target.model,
        "CLAUDE_CODE_SUBAGENT_MODEL": target.model,
        "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",  # differs in each session, before all else
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "DISABLE_TELEMETRY": "1",
        "API_TIMEOUT_MS": "600000",
    }
    if target.context and target.answer:
        env["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] = str(target.context)
        env["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] = str(target.answer)
    unset = (
        "ANTHROPIC_API_KEY",  # would go along beside the token
        "ANTHROPIC_CUSTOM_HEADERS",
        "CLAUDE_CODE_USE_BEDROCK",
        "CLAUDE_CODE_USE_FOUNDRY",
        "CLAUDE_CODE_USE_VERTEX",
    )
    # Variables in the user's settings come before those of the process, and these before both.
    files = {"settings.json": _text({"env": env})}
    args = ("--settings", f"{target.folder}/settings.json")
    return Setup(env, ("ANTHROPIC_AUTH_TOKEN",), unset, args, files)


def _opencode(target: Target) -> Setup:
    model: dict[str, Any] = {"name": target.model, "tool_call": True}
    if target.context:
        model["limit"] = {"context": target.context, "output": target.answer}
    config = {
        "model": f"{_PROVIDER}/{target.model}",
        "small_model": f"{_PROVIDER}/{target.model}",
        "autoupdate": False,
        "share": "disabled",
        "provider": {
            _PROVIDER: {
                "npm": "@ai-sdk/openai-compatible",
                "name": _PROVIDER,
                "options": {"baseURL": target.openai_url, "apiKey": f"{{env:{KEY_VARIABLE}}}"},
                "models": {target.model: model},
            }
        },
    }
    env = {
        "OPENCODE_CONFIG_CONTENT": json.dumps(config),
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
    }
    return Setup(env, (KEY_VARIABLE,))


def _qwen(target: Target) -> Setup:
    generation = {"contextWindowSize": target.context} if target.context else {}
    settings = {
        "general": {"enableAutoUpdate": False, "disableAutoUpdate": True},
        "model": {"name": target.model, "generationConfig": generation},
        "privacy": {"usageStatisticsEnabled": False},
        "security": {"auth": {"selectedType": "openai"}},
        "telemetry": {"enabled": False},
    }
    env = {
        "OPENAI_BASE_URL": target.openai_url,
        "OPENAI_MODEL": target.model,
        "QWEN_USAGE_STATISTICS_ENABLED": "false",
        "QWEN_CODE_SYSTEM_SETTINGS_PATH": f"{target.folder}/settings.json",
    }
    return Setup(
        env,
        ("OPENAI_API_KEY",),
        ("QWEN_MODEL",),
        files={"settings.json": _text(settings)},
    )


def _aider(target: Target) -> Setup:
    name = f"openai/{target.model}"
    env = {
        "OPENAI_API_BASE": target.openai_url,
        "AIDER_OPENAI_API_BASE": target.openai_url,  # comes before .aider.conf.yml
        "AIDER_MODEL": name,
        "AIDER_WEAK_MODEL": name,
        "AIDER_ANALYTICS": "false",
        "AIDER_ANALYTICS_DISABLE": "true",
        "AIDER_CHECK_UPDATE": "false",
        "AIDER_SHOW_MODEL_WARNINGS": "false",
        "AIDER_SHOW_RELEASE_NOTES": "false",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
    files: dict[str, str] = {}
    if target.context:
        known = {"litellm_provider": "openai", "mode": "chat", "max_input_tokens": target.context}
        files = {"models.json": _text({name: known})}
        env["AIDER_MODEL_METADATA_FILE"] = f"{target.folder}/models.json"
    keys = ("OPENAI_API_KEY", "AIDER_OPENAI_API_KEY")
    return Setup(env, keys, ("OPENAI_BASE_URL",), files=files)


def _cline(target: Target) -> Setup:
    kind = "openai-compatible"
    provider = {"provider": kind, "model": target.model, "baseUrl": target.openai_url}
    entry = {
        "settings": provider,
        "updatedAt": "2026-01-01T00:00:00.000Z",
        "tokenSource": "manual",
    }
    providers = {"version": 1, "lastUsedProvider": kind, "modes": {}, "providers": {kind: entry}}
    env = {
        "CLINE_PROVIDER_SETTINGS_PATH": f"{target.folder}/providers.json",
        "CLINE_GLOBAL_SETTINGS_PATH": f"{target.folder}/settings.json",
        "CLINE_SESSION_BACKEND_MODE": "local",  # else a daemon stays behind
    }
    files = {
        "providers.json": _text(providers),
        "settings.json": _text({"telemetryOptOut": True, "autoUpdateEnabled": False}),
    }
    return Setup(env, ("OPENAI_API_KEY",), files=files)


def _goose(target: Target) -> Setup:
    env = {
        "GOOSE_PROVIDER": "openai",
        "GOOSE_MODEL": target.model,
        "GOOSE_DISABLE_KEYRING": "1",  # a stored key comes before the variable's
        "GOOSE_TELEMETRY_OFF": "1",
        "OPENAI_HOST": target.url,
        "OPENAI_BASE_PATH": "v1/chat/completions",
    }
    if target.context:
        env["GOOSE_CONTEXT_LIMIT"] = str(target.context)
    unset = ("OPENAI_BASE_URL", "OPENAI_ORGANIZATION", "OPENAI_PROJECT")
    return Setup(env, ("OPENAI_API_KEY",), unset)


def _pi(target: Target) -> Setup:
    model: dict[str, Any] = {
        "id": target.model,
        "name": target.model,
        "reasoning": False,
        "input": ["text"],
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
        "contextWindow": target.context or 32768,
        "maxTokens": target.answer or 8192,
    }
    provider = {
        "baseUrl": target.openai_url,
        "apiKey": f"${KEY_VARIABLE}",
        "api": "openai-completions",
        "models": [model],
    }
    # An extension adds to the user's own folder; models.json would have to replace it.
    code = f'export default (pi) => pi.registerProvider("{_PROVIDER}", {_text(provider)});\n'
    file = f"{target.folder}/runner.js"
    args = ("--extension", file, "--provider", _PROVIDER, "--model", target.model)
    env = {"PI_OFFLINE": "1", "PI_TELEMETRY": "0"}
    return Setup(env, (KEY_VARIABLE,), args=args, files={"runner.js": code})


def _copilot(target: Target) -> Setup:
    env = {
        "COPILOT_PROVIDER_BASE_URL": target.openai_url,
        "COPILOT_PROVIDER_TYPE": "openai",
        "COPILOT_PROVIDER_WIRE_API": "completions",
        "COPILOT_MODEL": target.model,
        "COPILOT_OFFLINE": "true",
    }
    if target.context and target.answer:
        env["COPILOT_PROVIDER_MAX_PROMPT_TOKENS"] = str(target.context - target.answer)
        env["COPILOT_PROVIDER_MAX_OUTPUT_TOKENS"] = str(target.answer)
    unset = (
        "COPILOT_PROVIDER_API_KEY_COMMAND",
        "COPILOT_PROVIDER_BEARER_TOKEN",
        "COPILOT_PROVIDER_HEADERS",
        "COPILOT_PROVIDER_MODEL_ID",
        "COPILOT_PROVIDER_TRANSPORT",
        "COPILOT_PROVIDER_WIRE_MODEL",
    )
    return Setup(env, ("COPILOT_PROVIDER_API_KEY",), unset)


def _text(value: object) -> str:
    return json.dumps(value, indent=2) + "\n"


def _npm(package: str) -> str:
    return f"npm install -g {package}"


RECIPES = {
    one.name: one
    for one in (
        Recipe("codex", "Codex", "codex", _npm("@openai/codex"), 9_000, _codex),
        Recipe(
            "claude", "Claude Code", "claude", _npm("@anthropic-ai/claude-code"), 11_900, _claude
        ),
        Recipe("opencode", "opencode", "opencode", _npm("opencode-ai"), 7_200, _opencode),
        Recipe("qwen", "Qwen Code", "qwen", _npm("@qwen-code/qwen-code"), 17_900, _qwen),
        Recipe("aider", "aider", "aider", "python -m pip install aider-chat", 1_900, _aider),
        Recipe("cline", "Cline", "cline", _npm("cline"), 5_200, _cline),
        Recipe("goose", "goose", "goose", "brew install block-goose-cli", 8_000, _goose),
        Recipe("pi", "pi", "pi", _npm("@earendil-works/pi-coding-agent"), 1_300, _pi),
        Recipe("copilot", "Copilot CLI", "copilot", _npm("@github/copilot"), 11_300, _copilot),
    )
}
"""By the name that is typed."""
