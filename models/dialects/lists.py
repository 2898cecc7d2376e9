"""Families that differ in nothing but the marks around a list of calls."""

from models.dialects.base import Dialect, Family, JsonCalls, Layout, PythonCalls, Section

NEMOTRON = Dialect(
    name="nemotron",
    sections=(Section(open=("<TOOLCALL>",), forms=(JsonCalls(),), close=("</TOOLCALL>",)),),
    ends=("<SPECIAL_12>", "<SPECIAL_11>", "<|eot_id|>"),
    layout=Layout(
        begin="<TOOLCALL>[",
        head='{"name": "',
        named='", "arguments": ',
        tail="}",
        between=", ",
        end="]</TOOLCALL>",
    ),
)

LFM = Dialect(
    name="lfm",
    sections=(
        Section(
            open=("<|tool_call_start|>",),
            forms=(PythonCalls(), JsonCalls()),
            close=("<|tool_call_end|>",),
        ),
    ),
    ends=("<|im_end|>",),
)

OLMO = Dialect(
    name="olmo",
    sections=(
        Section(open=("<function_calls>",), forms=(PythonCalls(),), close=("</function_calls>",)),
    ),
    ends=("<|im_end|>", "<|endoftext|>"),
)

FAMILIES = (
    Family(NEMOTRON, signs=(("<TOOLCALL>",),)),
    Family(LFM, signs=(("<|tool_call_start|>",), ("<|tool_list_start|>",))),
    Family(OLMO, signs=(("<function_calls>", "<|im_start|>"),)),
)
