"""Tools for a model whose chat template knows none: told in the system prompt, called and answered
in plain turns, all as the Hermes and Qwen families write it, which many models have seen."""

import json
from collections.abc import Sequence
from dataclasses import replace

from models.chat import Message, Role, Tool, ToolCall

_INTRODUCTION = """\
You can call tools. Each line between <tools> and </tools> describes one, with a JSON schema of its
arguments:
<tools>
{tools}
</tools>
To call one, write its name and its arguments as JSON between <tool_call> and </tool_call>:
<tool_call>
{{"name": "NAME", "arguments": {{"KEY": "VALUE"}}}}
</tool_call>
What it returns comes to you between <tool_response> and </tool_response>."""

_RETURNED = "</tool_response>"


def introduced(turns: Sequence[Message], tools: Sequence[Tool]) -> list[Message]:
    """The conversation with the tools in its system prompt."""
    listed = "\n".join(describe(tool) for tool in tools if not tool.deferred)
    if not listed:
        return list(turns)
    text = _INTRODUCTION.format(tools=listed)
    if turns and turns[0].role is Role.SYSTEM:
        return [replace(turns[0], content=f"{turns[0].content}\n\n{text}"), *turns[1:]]
    return [Message(Role.SYSTEM, text), *turns]


def describe(tool: Tool) -> str:
    """A tool's definition in a line of JSON."""
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.parameters),
    }
    return json.dumps({"type": "function", "function": function}, ensure_ascii=False)


def spoken(turns: Sequence[Message]) -> list[Message]:
    """The conversation with calls and what tools returned as text, in turns of the assistant and
    of the user."""
    said: list[Message] = []
    for turn in turns:
        if turn.role is Role.TOOL:
            text = f"<tool_response>\n{turn.content}\n{_RETURNED}"
            last = said[-1] if said else None
            if last is not None and last.role is Role.USER and last.content.endswith(_RETURNED):
                said[-1] = replace(last, content=f"{last.content}\n{text}")
            else:
                said.append(Message(Role.USER, text))
        elif turn.tool_calls:
            calls = "\n".join(map(_call, turn.tool_calls))
            content = f"{turn.content}\n{calls}" if turn.content else calls
            said.append(replace(turn, content=content, tool_calls=()))
        else:
            said.append(turn)
    return said


def _call(call: ToolCall) -> str:
    try:
        arguments = json.dumps(json.loads(call.arguments or "{}"), ensure_ascii=False)
    except ValueError:  # the model's own mistake, which it should see as it was
        arguments = call.arguments
    name = json.dumps(call.name, ensure_ascii=False)
    return f'<tool_call>\n{{"name": {name}, "arguments": {arguments}}}\n</tool_call>'
