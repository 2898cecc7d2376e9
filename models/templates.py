"""Chat templates: a conversation to the text a model was trained on.

The model's own Jinja template runs in a sandbox, with the extensions Hugging Face gives it. What a
template cannot express (a system turn, two turns of one speaker, ...) is found out once, by
rendering small probes, and coerced the same way in every request: a coercion that depended on the
messages would change the beginning of the prompt between turns, and with it the cached prefix.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from models.chat import Conversation, Message, Role, Tool, ToolCall
from models.errors import TemplateFailed
from models.tooltext import introduced, spoken


class _Generation(Extension):
    """`{% generation %}`, which marks assistant text for training and means nothing here."""

    tags = {"generation"}  # noqa: RUF012 - the base class's contract

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _tojson(value: Any, indent: int | None = None, **options: Any) -> str:
    """As Hugging Face's filter: no HTML escapes, real characters."""
    options.setdefault("ensure_ascii", False)
    return json.dumps(value, indent=indent, **options)


def _raise(message: str) -> str:
    raise jinja2.TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    untyped: Any = environment
    untyped.filters["tojson"] = _tojson
    untyped.globals |= {"raise_exception": _raise, "strftime_now": _strftime_now}
    return environment


@dataclass(frozen=True, slots=True)
class Traits:
    """What a template can express."""

    system: bool
    late_system: bool
    neighbours: bool
    assistant_first: bool
    tools: bool
    calls: bool
    """Calls in an assistant's turn, and turns of tools."""


class ChatTemplate:
    """A compiled template with its traits. Raises TemplateFailed where the source does not
    parse."""

    def __init__(self, source: str, bos: str = "", eos: str = "") -> None:
        self.source = source
        self._special = {"bos_token": bos, "eos_token": eos}
        try:
            self._template = _environment().from_string(source)
        except jinja2.TemplateError as error:
            raise TemplateFailed(f"The model's chat template does not parse: {error}") from error
        self.traits = _probe(self._render)

    def render(self, conversation: Conversation) -> str:
        """The prompt's text, up to where the assistant speaks. Raises TemplateFailed."""
        messages = coerce(conversation.messages, self.traits, conversation.tools)
        tools = [t for t in conversation.tools if not t.deferred] if self.traits.tools else []
        try:
            return self._render(messages, tools, conversation.template_args)
        except Exception as error:  # the template's own code: anything may come out of it
            raise TemplateFailed(
                f"The model's chat template refuses these messages: {error}", "messages"
            ) from error

    def _render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool] = (),
        extra: Mapping[str, Any] | None = None,
    ) -> str:
        return self._template.render(
            messages=[_as_dict(m) for m in messages],
            tools=[_tool_dict(t) for t in tools] or None,
            add_generation_prompt=True,
            **self._special,
            **(extra or {}),
        )


def _as_dict(message: Message) -> dict[str, Any]:
    """A message as templates expect it: the OpenAI shape, arguments as an object where they
    parse."""
    out: dict[str, Any] = {"role": message.role.value, "content": message.content}
    if message.reasoning:
        out["reasoning_content"] = message.reasoning
    if message.name:
        out["name"] = message.name
    if message.tool_call_id:
        out["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        out["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": _parsed(call.arguments)},
            }
            for call in message.tool_calls
        ]
    return out


def _parsed(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def _tool_dict(tool: Tool) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description,
            "parameters": dict(tool.parameters),
        },
    }


# ---------------------------------------------------------------------- what a template can express

_U, _A, _S = (
    Message(role, f"probe-{role.value}") for role in (Role.USER, Role.ASSISTANT, Role.SYSTEM)
)
_LATE = Message(Role.SYSTEM, "probe-late")
_SECOND = Message(Role.USER, "probe-second")
_TOOL = Tool("probe_tool", "probe", {"type": "object", "properties": {}})
# Nine letters and digits, the only ids that some templates take.
_CALL = Message(Role.ASSISTANT, "", tool_calls=(ToolCall("probecall", "probe_call", "{}"),))
_RETURNED = Message(Role.TOOL, "probe-returned", tool_call_id="probecall", name="probe_call")


def _probe(render: Callable[..., str]) -> Traits:
    def shows(messages: Sequence[Message], tools: Sequence[Tool] = ()) -> bool:
        """Whether everything said can be found in the prompt."""
        try:
            text = render(messages, tools)
        except Exception:  # the template's own code: anything may come out of it
            return False
        said = [m.content for m in messages] + [t.name for t in tools]
        said += [call.name for m in messages for call in m.tool_calls]
        return all(s in text for s in said)

    return Traits(
        system=shows([_S, _U]),
        late_system=shows([_U, _A, _LATE, _SECOND]),
        neighbours=shows([_U, _SECOND])
        and shows([_U, _A, replace(_A, content="probe-again"), _SECOND]),
        assistant_first=shows([_A, _U]),
        tools=shows([_U], [_TOOL]),
        calls=shows([_U, _CALL, _RETURNED, replace(_A, content="probe-again"), _SECOND], [_TOOL]),
    )


def coerce(
    messages: Sequence[Message], traits: Traits, tools: Sequence[Tool] = ()
) -> list[Message]:
    """The same conversation in turns the template can express."""
    turns = list(messages) if traits.calls else spoken(messages)
    leading = 0
    while leading < len(turns) and turns[leading].role is Role.SYSTEM:
        leading += 1
    if leading > 1:
        joined = "\n\n".join(m.content for m in turns[:leading])
        turns[:leading] = [Message(Role.SYSTEM, joined)]
        leading = 1
    if tools and not traits.tools:
        turns = introduced(turns, tools)
        leading = 1
    if not traits.late_system:
        turns = turns[:leading] + [_as_note(m) for m in turns[leading:]]
    if not traits.system and leading:
        turns = _fold_system(turns)
    if not traits.assistant_first:
        turns = _user_first(turns)
    return turns if traits.neighbours else _merge(turns)


def _as_note(message: Message) -> Message:
    if message.role is not Role.SYSTEM:
        return message
    return Message(Role.USER, f"[System note]\n{message.content}")


def _fold_system(turns: list[Message]) -> list[Message]:
    system, rest = turns[0], turns[1:]
    if rest and rest[0].role is Role.USER:
        return [replace(rest[0], content=f"{system.content}\n\n{rest[0].content}"), *rest[1:]]
    return [Message(Role.USER, system.content), *rest]


def _user_first(turns: list[Message]) -> list[Message]:
    first = 1 if turns and turns[0].role is Role.SYSTEM else 0
    if first < len(turns) and turns[first].role is Role.ASSISTANT:
        turns.insert(first, Message(Role.USER, ""))
    return turns


def _merge(turns: Sequence[Message]) -> list[Message]:
    """Join neighbours of one speaker with a blank line. Tool calls and replies stay apart."""
    merged: list[Message] = []
    for turn in turns:
        last = merged[-1] if merged else None
        plain = (
            last is not None and last.role is turn.role and not (last.tool_calls or turn.tool_calls)
        )
        if last is not None and plain and turn.role is not Role.TOOL:
            merged[-1] = replace(last, content=f"{last.content}\n\n{turn.content}".strip("\n"))
        else:
            merged.append(turn)
    return merged


# ---------------------------------------------------------------------- models without a template

_CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
    "{% endfor %}{{ '<|im_start|>assistant\\n' }}"
)
_GEMMA = (
    "{{ bos_token }}{% for m in messages %}{{ '<start_of_turn>' "
    "+ ('model' if m.role == 'assistant' else 'user') + '\\n' + m.content + '<end_of_turn>\\n' }}"
    "{% endfor %}{{ '<start_of_turn>model\\n' }}"
)
_LLAMA3 = (
    "{{ bos_token }}{% for m in messages %}{{ '<|start_header_id|>' + m.role "
    "+ '<|end_header_id|>\\n\\n' + m.content + '<|eot_id|>' }}{% endfor %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}"
)
_PLAIN = (
    "{% for m in messages %}{{ {'system': '', 'user': 'User: ', 'assistant': 'Assistant: ', "
    "'tool': 'Tool: '}[m.role] + m.content + '\\n' }}{% endfor %}Assistant:"
)
_BY_MARKUP = (
    ("<|im_start|>", _CHATML),
    ("<start_of_turn>", _GEMMA),
    ("<|start_header_id|>", _LLAMA3),
)


def fallback_source(markup: Sequence[str]) -> str:
    """A template for a model that brings none, by the turn markup among its control tokens."""
    return next((source for mark, source in _BY_MARKUP if mark in markup), _PLAIN)
