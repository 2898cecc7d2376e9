"""A grammar for what a model may answer: calls of tools, and perhaps instead text of a given shape,
in llguidance's Lark.

It spells a call to the letter as the family's chat template does, so that the call a client sends
back next turn is the same tokens again. Arguments are JSON with the separators templates use.
Reasoning before an answer is not part of it, but where a family writes all it says in channels.
"""

import json
import re
from dataclasses import dataclass, field

from models.chat import Tool
from models.dialects.base import Channels, Dialect, Layout, Schema, Tags
from models.dialects.spelling import Special, spelled, split
from models.dialects.values import as_mapping, is_string, listed, may_be_string, property_schema

_SEPARATORS = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
_HEADER = "%llguidance {}"
_TEXT = r"TEXT: /(.|\n)*/"
JSON_LAYOUT = {"whitespace_flexible": True, "whitespace_pattern": r"(\n[ ]{0,40}|[ ]?)"}
"""How text in JSON may be laid out. Pretty-printed passes; endless white space, where weak models
get lost, does not."""
_ANY: Schema = {"type": "object", "additionalProperties": True}


@dataclass(frozen=True, slots=True)
class Calls:
    """What may be called: the `tools`, with `parallel` several at once where the family can write
    that. With `loose`, the arguments of tools that are not strict may be any JSON object."""

    tools: tuple[Tool, ...]
    parallel: bool = True
    loose: bool = False


def call_grammar(dialect: Dialect, calls: Calls, special: Special) -> str | None:
    """The grammar of calls; None where the family's cannot be expressed, or there is no tool to
    call. `special`: the ids of marks that are control tokens; others are spelled as text."""
    if dialect.layout is None or not calls.tools:
        return None
    writer = _Writer(dialect.layout, special)
    writer.rule("start", writer.calls(calls))
    return writer.grammar()


def answer_grammar(
    dialect: Dialect, calls: Calls, body: str | None, special: Special
) -> str | None:
    """The grammar of all that is answered: calls, or what the Lark expression `body` stands for.
    None where that cannot be expressed, or would be nothing."""
    layout, channels = dialect.layout, dialect.channels
    if layout is None or not (calls.tools or body):
        return None
    writer = _Writer(layout, special)
    choices = [writer.calls(calls, beside=body)] if calls.tools else []
    if body is not None:
        writer.rule("body", body)
        choices.append("body" if channels is None else writer.final(channels, "body"))
    lead = "" if channels is None else writer.analysis(channels)
    writer.rule("start", f"{lead}({' | '.join(choices)})")
    return writer.grammar()


def call_triggers(dialect: Dialect, calls: Calls, special: Special) -> tuple[bytes, ...]:
    """With what a call begins, as `spelled` writes it. Where that is no mark, a call can only be
    where an answer begins, and is none before an offered tool's name."""
    layout = dialect.layout
    if layout is None:
        return ()
    if dialect.channels is not None:
        return (spelled(layout.head, special),)
    if layout.begin:
        return (spelled(_mark_in(layout.begin, special), special),)
    return tuple(
        spelled(layout.head + _name(tool, layout) + layout.named[:1], special)
        for tool in calls.tools
    )


def _mark_in(begin: str, special: Special) -> str:
    """The mark with which calls begin; all of it where it is no tag or token."""
    first = next(split(begin, special))
    if first in special:
        return first
    tag = re.match(r"<[^\s>]+>|\[\w+\]", begin)
    return tag[0] if tag else begin


def _name(tool: Tool, layout: Layout) -> str:
    return json.dumps(tool.name, ensure_ascii=False)[1:-1] if '"' in layout.head else tool.name


@dataclass(slots=True)
class _Writer:
    layout: Layout
    special: Special
    rules: list[str] = field(default_factory=list[str])

    def grammar(self) -> str:
        return "\n".join([_HEADER, *self.rules, _TEXT])

    # ------------------------------------------------------------------------------------ channels

    def analysis(self, channels: Channels) -> str:
        """Reasoning in a channel of its own, if there is any."""
        opening = f"{channels.channel}{channels.thinking[0]}{channels.message}"
        close, again = channels.ends[0], f"{channels.start}assistant"
        inner = self._until("analysis_text", close)
        self.rule("analysis", f"{self._spelled(opening)} {inner} {self._spelled(again)}")
        return "analysis? "

    def final(self, channels: Channels, body: str) -> str:
        """The message for the user."""
        return f"{self._spelled(f'{channels.channel}final{channels.message}')} {body}"

    # ----------------------------------------------------------------------------------- the calls

    def calls(self, calls: Calls, beside: str | None = None) -> str:
        """What stands for all calls. `beside` them an answer may be something else."""
        layout = self.layout
        # Two texts in JSON are told apart only if they are read in the same pieces.
        alike = beside is not None and not layout.begin and layout.head.startswith("{")
        for n, tool in enumerate(calls.tools):
            loose = calls.loose and not tool.strict
            if alike:
                self.rule(f"call_{n}", _call_as_json(layout, tool, loose=loose))
            else:
                self._call(n, tool, loose=loose)
        self.rule("call", " | ".join(f"call_{n}" for n in range(len(calls.tools))))
        more = ""
        if calls.parallel and layout.between is not None:
            more = f"({self._spelled(layout.between)} call)*"
        return f"{self._spelled(layout.begin)} call {more} {self._spelled(layout.end)}"

    def _call(self, n: int, tool: Tool, *, loose: bool) -> None:
        layout, name = self.layout, _name(tool, self.layout)
        if layout.counted:
            head = f"{self._spelled(f'{layout.head}{name}:')} /[0-9]{{1,4}}/"
            head += f" {self._spelled(layout.named)}"
        else:
            head = self._spelled(f"{layout.head}{name}{layout.named}")
        if layout.arguments is not None:
            arguments = self._tagged(n, tool.parameters, layout.arguments, loose=loose)
        else:
            arguments = f"arguments_{n}"
            self.rule(arguments, _json(_ANY if loose else _closed(tool.parameters)))
        tail = self._spelled(layout.tail)
        self.rule(f"call_{n}", " ".join(filter(None, [head, arguments, tail])))

    def _tagged(self, n: int, parameters: Schema, tags: Tags, *, loose: bool) -> str:
        """Parameters in the schema's order, those that are not required perhaps left out."""
        required = set(listed(parameters.get("required")))
        parts: list[str] = []
        for k, key in enumerate(as_mapping(parameters.get("properties"))):
            schema = {} if loose else property_schema(parameters, key) or {}
            rule = f"parameter_{n}_{k}"
            text = bool(tags.keyed_text) and may_be_string(schema)
            keyed = tags.keyed_text[0] if text else tags.keyed[0]
            value = self._value(rule, schema, parameters, tags.close)
            self.rule(rule, f"{self._spelled(f'{tags.open}{key}{keyed}')} {value}")
            parts.append(rule if key in required else f"{rule}?")
        return " ".join(parts)

    def _value(self, rule: str, schema: Schema, root: Schema, close: str) -> str:
        options = [schema["const"]] if "const" in schema else listed(schema.get("enum"))
        if options and is_string(schema):
            either = " | ".join(_quoted(str(option)) for option in options)
            return f"({either}) {self._spelled(close)}"
        if may_be_string(schema):
            return self._until(f"{rule}_text", close)
        inner = {**schema, **{k: root[k] for k in ("$defs", "definitions") if k in root}}
        self.rule(f"{rule}_json", _json(inner))
        return f"{rule}_json {self._spelled(close)}"

    # --------------------------------------------------------------------------------- small steps

    def rule(self, name: str, body: str) -> None:
        self.rules.append(f"{name}: {body}")

    def _until(self, rule: str, close: str) -> str:
        """Any text, up to and with the first `close`."""
        if any(mark in close for mark in self.special):
            return f"TEXT {self._spelled(close)}"
        self.rules.append(f"{rule}[lazy]: TEXT {_quoted(close)}")
        return rule

    def _spelled(self, text: str) -> str:
        """Text as a sequence of strings and control tokens."""
        special = self.special
        return " ".join(
            f"<[{special[p]}]>" if p in special else _quoted(p) for p in split(text, special)
        )


def _call_as_json(layout: Layout, tool: Tool, *, loose: bool) -> str:
    """A whole call as one JSON text, for families that write calls as objects and nothing else."""
    parameters = dict(_ANY if loose else _closed(tool.parameters))
    shared = {key: parameters.pop(key) for key in ("$defs", "definitions") if key in parameters}
    example = json.loads(f"{layout.head}{_name(tool, layout)}{layout.named}{{}}{layout.tail}")
    properties = {k: parameters if v == {} else {"const": v} for k, v in example.items()}
    call: Schema = {"type": "object", "properties": properties, "required": list(properties)}
    return as_json({**shared, **call, "additionalProperties": False})


def as_json(schema: Schema) -> str:
    """Text in JSON as an expression in Lark."""
    return "%json " + json.dumps({**schema, "x-guidance": JSON_LAYOUT}, ensure_ascii=False)


def _closed(parameters: Schema) -> Schema:
    """A function takes the parameters it declares, unless it says otherwise."""
    schema: dict[str, object] = {"type": "object", **parameters}
    schema.setdefault("properties", {})
    schema.setdefault("additionalProperties", False)
    return schema


def _json(schema: Schema) -> str:
    return "%json " + json.dumps({**schema, "x-guidance": _SEPARATORS}, ensure_ascii=False)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
