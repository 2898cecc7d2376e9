"""Granite: 3 a list of JSON calls after a mark, 4 as Hermes does; reasoning in words or tags."""

from dataclasses import replace

from models.dialects.base import THINK, Dialect, Family, JsonCalls, Layout, Section, Thinking
from models.dialects.hermes import HERMES

_ENDS = ("<|end_of_text|>", "<|start_of_role|>")

GRANITE_3 = Dialect(
    name="granite",
    sections=(
        Section(
            open=("<|tool_call|>", "<tool_call>"),
            forms=(JsonCalls(),),
            close=("</tool_call>", "<|/tool_call|>"),
        ),
        Section(open=("<function_call>",), forms=(JsonCalls(),), close=("</function_call>",)),
    ),
    thinking=(
        THINK,
        Thinking("Here is my thought process:", "Here is my response:"),
        Thinking("Here's my thought process:", "Here's my response:"),
    ),
    ends=_ENDS,
    layout=Layout(
        begin="<|tool_call|>[",
        head='{"name": "',
        named='", "arguments": ',
        tail="}",
        between=", ",
        end="]",
    ),
)

# 3.3 puts the answer in tags as well, where it thinks.
GRANITE_33 = replace(GRANITE_3, name="granite-3.3", ends=(*_ENDS, "<response>", "</response>"))
GRANITE_4 = replace(GRANITE_3, name="granite-4", layout=HERMES.layout)

FAMILIES = (
    Family(GRANITE_4, signs=(("<|start_of_role|>", "<tool_call>"),)),
    Family(GRANITE_33, signs=(("<|start_of_role|>", "<response>"),)),
    Family(GRANITE_3, signs=(("<|start_of_role|>",),)),
)
