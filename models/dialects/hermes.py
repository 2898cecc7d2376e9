"""Hermes and Qwen: each call a JSON object between tags."""

from models.dialects.base import Dialect, Family, JsonCalls, Layout, NamedCalls, Section, Tags

PARAMETERS = Tags(open="<parameter=", keyed=(">",), close="</parameter>", padded=True)
FUNCTION = NamedCalls(
    head=("<function=",), named=(">",), tail=("</function>",), arguments=PARAMETERS
)

# Small models leave the tags out, or fence the call as they would a file; then only a tool's name
# tells a call from an answer in JSON.
BARE_JSON = Section(open=(), forms=(JsonCalls(),))
FENCED_JSON = Section(open=("```json",), forms=(JsonCalls(),), close=("```",), offered_only=True)

HERMES = Dialect(
    name="hermes",
    sections=(
        Section(open=("<tool_call>",), forms=(JsonCalls(), FUNCTION), close=("</tool_call>",)),
        FENCED_JSON,
        BARE_JSON,
    ),
    ends=("<|im_end|>",),
    layout=Layout(
        begin="<tool_call>\n",
        head='{"name": "',
        named='", "arguments": ',
        tail="}",
        between="\n</tool_call>\n<tool_call>\n",
        end="\n</tool_call>",
    ),
)

FAMILY = Family(HERMES, signs=(("<tool_call>",),))
# Turns in this markup, and nothing said of tools.
PLAIN_FAMILY = Family(HERMES, signs=(("<|im_start|>",),))
