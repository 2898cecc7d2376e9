"""What a parser makes of a text, in a form to compare: neighbours joined, a call in one piece."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count

from models.chat import Event, Reasoning, Text, Tool, ToolCallDelta, ToolCallEnd, ToolCallStart
from models.dialects.base import Dialect, Ids
from models.dialects.stream import Parser

STRING = {"type": "string"}
WEATHER = Tool(
    "get_weather",
    "The weather in a city",
    {
        "type": "object",
        "properties": {
            "city": STRING,
            "days": {"type": "integer"},
            "metric": {"type": "boolean"},
            "tags": {"type": "array", "items": STRING},
        },
        "required": ["city"],
    },
)
WRITE = Tool(
    "write_file",
    "Write a file",
    {
        "type": "object",
        "properties": {"path": STRING, "content": STRING, "mode": {"type": ["integer", "null"]}},
        "required": ["path", "content"],
    },
)
NOW = Tool("now", "The time", {"type": "object", "properties": {}})
TOOLS = (WEATHER, WRITE, NOW)


@dataclass
class Said:
    """Text for the user."""

    text: str


@dataclass
class Thought:
    """Reasoning."""

    text: str


@dataclass
class Called:
    """A call; `ended` is False where it broke off."""

    name: str
    arguments: str
    id: str = "id-0"
    ended: bool = True


Spoken = Said | Thought | Called


def joined(events: Iterable[Event]) -> list[Spoken]:
    """Events without regard to where they were cut. Calls must come one after another."""
    out: list[Spoken] = []
    calls: list[Called] = []
    for event in events:
        last = out[-1] if out else None
        match event:
            case Text(text):
                if isinstance(last, Said):
                    last.text += text
                else:
                    out.append(Said(text))
            case Reasoning(text):
                if isinstance(last, Thought):
                    last.text += text
                else:
                    out.append(Thought(text))
            case ToolCallStart(index, call_id, name):
                assert index == len(calls)
                calls.append(Called(name, "", call_id, ended=False))
                out.append(calls[-1])
            case ToolCallDelta(index, arguments):
                assert last is calls[index]
                assert arguments
                calls[index].arguments += arguments
            case ToolCallEnd(index):
                assert last is calls[index]
                assert not calls[index].ended
                calls[index].ended = True
            case _:
                raise AssertionError(event)
    assert len({call.id for call in calls}) == len(calls)
    return out


def read(
    dialect: Dialect,
    pieces: Sequence[str],
    tools: Sequence[Tool] = TOOLS,
    prompt_end: str = "",
) -> list[Spoken]:
    """What comes of a text in these pieces. Ids that the parser makes up are counted."""
    numbers = count()

    def counted(rule: Ids) -> str:
        return f"id-{next(numbers)}"

    parser = Parser(dialect, tools, prompt_end=prompt_end, new_id=counted)
    events: list[Event] = []
    for piece in pieces:
        events += parser.push(piece)
    return joined(events + parser.finish())
