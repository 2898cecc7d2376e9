"""Models without a way of their own: JSON that names a tool, with or without the usual tags."""

from models.dialects.base import Dialect, JsonCalls, Layout, Section
from models.dialects.hermes import BARE_JSON, FENCED_JSON

GENERIC = Dialect(
    name="generic",
    sections=(
        Section(
            open=("<tool_call>", "<tool_calls>"),
            forms=(JsonCalls(),),
            close=("</tool_call>", "</tool_calls>"),
        ),
        FENCED_JSON,
        BARE_JSON,
    ),
    ends=("<|im_end|>", "<|endoftext|>", "</s>"),
    layout=Layout(head='{"name": "', named='", "arguments": ', tail="}"),
)
