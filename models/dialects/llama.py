"""Llama 3 and 4: a JSON object alone, or a list of calls as Python writes them."""

from dataclasses import replace

from models.dialects.base import (
    Dialect,
    Family,
    JsonCalls,
    Layout,
    NamedCalls,
    PythonCalls,
    Section,
)

LLAMA_JSON = Dialect(
    name="llama",
    sections=(
        # The same mark opens code for a built-in interpreter, so that only offered names are calls.
        Section(
            open=("<|python_tag|>", "<|python_start|>"),
            forms=(JsonCalls(), PythonCalls()),
            close=("<|python_end|>",),
            offered_only=True,
        ),
        Section(
            open=("<function=",),
            forms=(NamedCalls(head=("",), named=(">",), tail=("</function>",)),),
        ),
        Section(open=(), forms=(JsonCalls(), PythonCalls(listed=True))),
    ),
    ends=("<|eot_id|>", "<|eom_id|>", "<|eot|>", "<|eom|>", "<|end_of_text|>"),
    layout=Layout(head='{"name": "', named='", "parameters": ', tail="}"),
)

# Reads the same; what Python's calls look like is no grammar yet.
LLAMA_PYTHON = replace(LLAMA_JSON, name="llama-python", layout=None)

PYTHON_FAMILY = Family(
    LLAMA_PYTHON,
    signs=(
        ("<|start_header_id|>", "func_name1("),
        ("<|header_start|>", "func_name1("),
    ),
)
FAMILY = Family(
    LLAMA_JSON, signs=(("<|python_tag|>",), ("<|start_header_id|>",), ("<|header_start|>",))
)
