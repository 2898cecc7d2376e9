"""A template's text tells the dialect, whatever the model is called."""

# ruff: noqa: RUF001 - one family writes its marks with a full-width bar

import pytest

from models.dialects.base import THINK
from models.dialects.choose import DIALECTS, dialect_for

# The lines of templates that matter, as they stand in Jinja.
TEMPLATES = {
    "hermes": r"""{{- '<|im_start|>' }}<tool_call>\n{\"name\": <n>, \"arguments\": <a>}\n""",
    "qwen-coder": r"""'<|im_start|>' ... '<tool_call>\n<function=f>\n<parameter=p>\nv\n'""",
    "llama": r"""{{- "<|start_header_id|>" }} '{"name": n, "parameters": p}' "<|python_tag|>" """,
    "llama-python": r"""'<|header_start|>' ... [func_name1(params_name1=v), func_name2()]""",
    "mistral": "[INST] ... '[TOOL_CALLS] [' ",
    "mistral-named": "'[TOOL_CALLS]' + name + '[ARGS]' + arguments",
    "deepseek-v3": r"'<｜tool▁calls▁begin｜>' '<｜tool▁sep｜>' + name + '\n' + '```json' + '\n'",
    "deepseek-v3.1": "'<｜tool▁call▁begin｜>'+ name + '<｜tool▁sep｜>' + arguments",
    "deepseek-v3.2": "{%- set dsml = '｜DSML｜' -%} '<｜Assistant｜>'",
    "deepseek-v4": """'... <｜DSML｜tool_calls>\\n<｜DSML｜invoke name=' '<｜Assistant｜>'""",
    "kimi": "<|im_middle|> <|tool_calls_section_begin|>",
    "glm": "[gMASK]<sop> <tool_call>{name}\n<arg_key>{k}</arg_key>",
    "minimax": "{%- set begin = '<minimax:tool_call>' -%}",
    "gemma": "{{ '<start_of_turn>' + role }}",
    "function-gemma": "'<start_of_turn>' '<start_function_call>call:'",
    "gemma-4": "'<|turn>' '<|tool_call>call:' '<|channel>thought'",
    "harmony": "<|start|>assistant<|channel|>analysis<|message|>",
    "granite": "'<|start_of_role|>' '<|tool_call|>'",
    "granite-3.3": "'<|start_of_role|>' '<think>' '<response>'",
    "granite-4": "'<|start_of_role|>' '<tool_call>'",
    "phi": "'<|tool|>' + tools + '<|/tool|>' '<|end|>'",
    "command": "<|CHATBOT_TOKEN|><|START_ACTION|>",
    "seed": "{%- set begin = '<seed:tool_call>' -%} <function= <parameter=",
    "nemotron": "'<|start_header_id|>' <TOOLCALL>[",
    "lfm": "'<|im_start|>' '<|tool_call_start|>['",
    "olmo": "'<|im_start|>' '<function_calls>'",
    "generic": "{{ message.content }}",
}


def test_every_dialect_has_a_sign() -> None:
    assert {d.name for d in DIALECTS} == set(TEMPLATES)
    assert len(DIALECTS) == len(TEMPLATES)


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_tells_its_dialect(name: str) -> None:
    assert dialect_for(TEMPLATES[name]).name == name


def test_turn_markup_alone_tells_enough() -> None:
    assert dialect_for("{{ '<|im_start|>' + role }}").name == "hermes"
    assert dialect_for("{{ '<|start_header_id|>' + role }}").name == "llama"


def test_without_a_template_the_vocabularys_markup_tells() -> None:
    assert dialect_for("", ["<s>", "[TOOL_CALLS]", "[ARGS]"]).name == "mistral-named"
    assert dialect_for("").name == "generic"


def test_a_template_may_bring_another_familys_reasoning() -> None:
    assert THINK not in dialect_for(TEMPLATES["gemma-4"]).thinking
    assert THINK in dialect_for(TEMPLATES["gemma-4"] + "</think>").thinking
