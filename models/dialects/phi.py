"""Phi-4: a JSON call between marks, or a list of them after the word functools."""

from models.dialects.base import Dialect, Family, JsonCalls, Layout, Section

PHI = Dialect(
    name="phi",
    sections=(
        Section(open=("<|tool_call|>",), forms=(JsonCalls(),), close=("<|/tool_call|>",)),
        # An ordinary word in a text about Python.
        Section(open=("functools",), forms=(JsonCalls(),), offered_only=True),
    ),
    ends=("<|end|>", "<|endoftext|>"),
    layout=Layout(
        begin="<|tool_call|>",
        head='{"name": "',
        named='", "arguments": ',
        tail="}",
        between="<|/tool_call|><|tool_call|>",
        end="<|/tool_call|>",
    ),
)

FAMILY = Family(
    PHI,
    signs=(("<|tool|>",), ("functools",), ("<|/tool_call|>",), ("<|assistant|>", "<|end|>")),
)
