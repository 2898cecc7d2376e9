"""Command: a list of JSON calls after a mark, or fenced after the word Action."""

from models.dialects.base import THINK, Dialect, Family, JsonCalls, Layout, Section, Thinking

COMMAND = Dialect(
    name="command",
    sections=(
        Section(open=("<|START_ACTION|>",), forms=(JsonCalls(),), close=("<|END_ACTION|>",)),
        Section(
            open=("Action: ```json", "Action:```json", "Action:\n```json"),
            forms=(JsonCalls(),),
            close=("```",),
        ),
    ),
    thinking=(Thinking("<|START_THINKING|>", "<|END_THINKING|>", special=True), THINK),
    ends=(
        "<|START_RESPONSE|>",
        "<|END_RESPONSE|>",
        "<|START_TEXT|>",
        "<|END_TEXT|>",
        "<|START_OF_TURN_TOKEN|>",
        "<|END_OF_TURN_TOKEN|>",
        "<|CHATBOT_TOKEN|>",
    ),
    layout=Layout(
        begin="<|START_ACTION|>[\n    ",
        head='{"tool_call_id": "0", "tool_name": "',
        named='", "parameters": ',
        tail="}",
        end="\n]<|END_ACTION|>",
    ),
)

FAMILY = Family(COMMAND, signs=(("<|START_ACTION|>",), ("<|CHATBOT_TOKEN|>",)))
