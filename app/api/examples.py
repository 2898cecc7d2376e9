"""A request for each route that takes a body, as people would send it. Tests send all of them."""

import json
import shlex
from typing import Any

JSON = dict[str, Any]
_MODEL = "smollm2:135m"
_ASK: JSON = {"model": _MODEL, "messages": [{"role": "user", "content": "Say hello."}]}
_WEATHER: JSON = {
    "name": "get_weather",
    "description": "The weather of a place.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
}

EXAMPLES: dict[tuple[str, str], JSON] = {
    ("POST", "/v1/chat/completions"): {
        **_ASK,
        "tools": [{"type": "function", "function": _WEATHER}],
        "max_tokens": 64,
        "stream": False,
    },
    ("POST", "/v1/completions"): {"model": _MODEL, "prompt": "Once upon a", "max_tokens": 16},
    ("POST", "/v1/embeddings"): {"model": _MODEL, "input": "Once upon a time"},
    ("POST", "/v1/responses"): {
        "model": _MODEL,
        "instructions": "Answer in one line.",
        "input": "Say hello.",
        "tools": [{"type": "function", **_WEATHER}],
        "max_output_tokens": 64,
    },
    ("POST", "/v1/responses/input_tokens"): {"model": _MODEL, "input": "Say hello."},
    ("POST", "/v1/messages"): {
        **_ASK,
        "max_tokens": 64,
        "system": "Answer in one line.",
        "tools": [
            {
                "name": "get_weather",
                "description": _WEATHER["description"],
                "input_schema": _WEATHER["parameters"],
            }
        ],
    },
    ("POST", "/v1/messages/count_tokens"): _ASK,
    ("POST", "/api/chat"): {**_ASK, "stream": False, "options": {"num_predict": 64}},
    ("POST", "/api/generate"): {"model": _MODEL, "prompt": "Say hello.", "stream": False},
    ("POST", "/api/embed"): {"model": _MODEL, "input": "Once upon a time"},
    ("POST", "/api/embeddings"): {"model": _MODEL, "prompt": "Once upon a time"},
    ("POST", "/api/show"): {"model": _MODEL},
    ("POST", "/api/pull"): {"model": _MODEL},
    ("DELETE", "/api/delete"): {"model": _MODEL},
    ("POST", "/tokenize"): {"model": _MODEL, "prompt": "Say hello."},
    ("POST", "/detokenize"): {"model": _MODEL, "tokens": [10, 11]},
}


def curl(url: str, method: str, path: str, body: JSON) -> str:
    """The command that sends a request."""
    verb = "" if method == "POST" else f" -X {method}"
    data = shlex.quote(json.dumps(body, ensure_ascii=False))
    return f"curl{verb} {url}{path} -H 'content-type: application/json' \\\n  -d {data}"
