"""Mistral: after one mark a list of JSON calls, or since 2025 a mark, a name and its arguments."""

from dataclasses import replace

from models.dialects.base import (
    THINK,
    Dialect,
    Family,
    Ids,
    JsonCalls,
    Layout,
    NamedCalls,
    Section,
    Thinking,
)

MISTRAL_LIST = Dialect(
    name="mistral",
    sections=(
        Section(
            open=("[TOOL_CALLS]",),
            forms=(
                JsonCalls(),
                NamedCalls(head=("",), named=("[ARGS]", ""), id_mark="[CALL_ID]"),
            ),
        ),
    ),
    thinking=(Thinking("[THINK]", "[/THINK]", special=True), THINK),
    ends=("</s>",),
    ids=Ids.NINE,
    layout=Layout(
        begin="[TOOL_CALLS][",
        head='{"name": "',
        named='", "arguments": ',
        tail="}",
        between=", ",
        end="]",
    ),
)

MISTRAL_NAMED = replace(
    MISTRAL_LIST,
    name="mistral-named",
    layout=Layout(begin="[TOOL_CALLS]", head="", named="[ARGS]", between="[TOOL_CALLS]"),
)

NAMED_FAMILY = Family(MISTRAL_NAMED, signs=(("[TOOL_CALLS]", "[ARGS]"),))
FAMILY = Family(MISTRAL_LIST, signs=(("[TOOL_CALLS]",), ("[INST]", "[/INST]")))
