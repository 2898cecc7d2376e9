"""Gemma: 3 has no marks of its own, FunctionGemma and 4 write braces with bare keys."""

from models.dialects.base import (
    Braces,
    Dialect,
    Family,
    JsonCalls,
    Layout,
    NamedCalls,
    PythonCalls,
    Section,
    Thinking,
)
from models.dialects.hermes import BARE_JSON

_ENDS = ("<end_of_turn>", "<start_of_turn>", "<eos>")

GEMMA = Dialect(
    name="gemma",
    sections=(
        Section(
            open=("```tool_code",),
            forms=(PythonCalls(), JsonCalls()),
            close=("```",),
            offered_only=True,
        ),
        Section(
            open=("```tool_call", "```json"),
            forms=(JsonCalls(),),
            close=("```",),
            offered_only=True,
        ),
        BARE_JSON,
    ),
    ends=_ENDS,
    layout=Layout(head='{"name": "', named='", "parameters": ', tail="}"),
)

FUNCTION_GEMMA = Dialect(
    name="function-gemma",
    sections=(
        Section(
            open=("<start_function_call>",),
            forms=(
                NamedCalls(head=("call:",), named=("",), arguments=Braces(quotes=("<escape>",))),
            ),
            close=("<end_function_call>",),
        ),
    ),
    ends=(*_ENDS, "<start_function_response>"),
)

GEMMA_4 = Dialect(
    name="gemma-4",
    sections=(
        Section(
            open=("<|tool_call>",),
            forms=(NamedCalls(head=("call:",), named=("",), arguments=Braces(quotes=('<|"|>',))),),
            close=("<tool_call|>",),
        ),
    ),
    thinking=(Thinking("<|channel>thought", "<channel|>", special=True),),
    ends=("<turn|>", "<|turn>", "<|tool_response>", "<eos>"),
)

FAMILIES = (
    Family(GEMMA_4, signs=(("<|tool_call>",), ("<|turn>", "<turn|>"))),
    Family(FUNCTION_GEMMA, signs=(("<start_function_call>",),)),
    Family(GEMMA, signs=(("<start_of_turn>",),)),
)
