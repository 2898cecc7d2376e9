"""Kimi K2: each call with an id that holds the tool's name and a number."""

from models.dialects.base import Dialect, Family, Ids, Layout, NamedCalls, Section

KIMI = Dialect(
    name="kimi",
    sections=(
        Section(
            open=("<|tool_calls_section_begin|>", "<|tool_call_section_begin|>"),
            forms=(
                NamedCalls(
                    head=("<|tool_call_begin|>",),
                    named=("<|tool_call_argument_begin|>",),
                    tail=("<|tool_call_end|>",),
                ),
            ),
            close=("<|tool_calls_section_end|>", "<|tool_call_section_end|>"),
        ),
    ),
    ends=("<|im_end|>",),
    ids=Ids.NUMBERED,
    layout=Layout(
        begin="<|tool_calls_section_begin|>",
        head="<|tool_call_begin|>functions.",
        named="<|tool_call_argument_begin|>",
        tail="<|tool_call_end|>",
        between="",
        end="<|tool_calls_section_end|>",
        counted=True,
    ),
)

FAMILY = Family(KIMI, signs=(("<|tool_calls_section_begin|>",), ("<|im_middle|>",)))
