"""Qwen3-Coder and those that write as it does: a function with a tag for each parameter."""

from models.dialects.base import Dialect, Family, JsonCalls, Layout, NamedCalls, Section, Tags
from models.dialects.hermes import FUNCTION, PARAMETERS

_LAYOUT_PARAMETERS = Tags(
    open="<parameter=", keyed=(">\n",), close="\n</parameter>\n", padded=False
)

QWEN_CODER = Dialect(
    name="qwen-coder",
    sections=(
        Section(open=("<tool_call>",), forms=(FUNCTION, JsonCalls()), close=("</tool_call>",)),
        # The outer tag is often forgotten, its end is not.
        Section(
            open=("<function=",),
            forms=(
                NamedCalls(head=("",), named=(">",), tail=FUNCTION.tail, arguments=PARAMETERS),
                FUNCTION,
            ),
            close=("</tool_call>",),
        ),
    ),
    ends=("<|im_end|>",),
    layout=Layout(
        begin="<tool_call>\n",
        head="<function=",
        named=">\n",
        tail="</function>",
        between="\n</tool_call>\n<tool_call>\n",
        end="\n</tool_call>",
        arguments=_LAYOUT_PARAMETERS,
    ),
)

FAMILY = Family(QWEN_CODER, signs=(("<tool_call>", "<function=", "<parameter="),))
