"""A grammar for a family's calls, in llguidance's Lark: what a model is held to.

It spells a call to the letter as the family's chat template does, so that the call a client sends
back next turn is the same tokens again. Arguments are JSON with the separators templates use.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from models.chat import Tool
from models.dialects.base import Channels, Dialect, Layout, Schema, Tags, Thinking
from models.dialects.values import as_mapping, is_string, listed, may_be_string, property_schema

_SEPARATORS = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
_HEADER = "%llguidance {}"
_TEXT = r"TEXT: /(.|\n)*/"


def call_grammar(
    dialect: Dialect,
    tools: Sequence[Tool],
    *,
    required: bool,
    parallel: bool,
    named: str | None = None,
    opened: Thinking | None = None,
    may_think: bool = False,
    special: Mapping[str, int] | None = None,
) -> str | None:
    """The grammar of an answer that calls tools; None where the family's calls cannot be expressed,
    or there is no tool to call.

    `required`: calls and nothing else; otherwise any text, and where it comes to a call, that one
    in order and nothing after it. `parallel`: several calls, where the family can write them.
    `named`: the one tool to call. `opened`: the reasoning that the prompt has opened, to be closed
    first. `may_think`: the model may open reasoning of its own. `special`: the ids of marks that
    are control tokens of the vocabulary; all others are spelled as text.
    """
    chosen = [tool for tool in tools if named is None or tool.name == named]
    if dialect.layout is None or not chosen:
        return None
    writer = _Writer(dialect.layout, dict(special or {}))
    calls = writer.calls(chosen, parallel=parallel)
    if dialect.channels is not None:
        writer.in_channels(dialect.channels, calls, required=required)
    else:
        own = next(iter(dialect.thinking), None) if may_think else None
        writer.start(calls, opened or own, opened=opened is not None, required=required)
    return "\n".join([_HEADER, *writer.rules, _TEXT])


@dataclass(slots=True)
class _Writer:
    layout: Layout
    special: dict[str, int]
    rules: list[str] = field(default_factory=list[str])

    # ---------------------------------------------------------------------------- the whole answer

    def start(self, calls: str, thinking: Thinking | None, *, opened: bool, required: bool) -> None:
        """Reasoning where there may be some, then calls, or text that may come to them."""
        lead = ""
        if thinking is not None:
            opening = "" if opened else self._spelled(thinking.start)
            inner = self._until("thought_text", thinking.end)
            self._rule("thought", f"{opening} {inner} SPACE")
            self._rule("SPACE", r"/[ \n]*/")
            lead = "thought " if opened else "thought? "
        begin = self.layout.begin
        mark = self._mark_in(begin)
        if required:
            body = f"{self._spelled(begin)} {calls}"
        elif not begin:  # a call is all that may begin as it does
            self._rule("PLAIN", rf"/([^{re.escape(self.layout.head[0])}](.|\n)*)?/")
            body = f"({calls} | PLAIN)"
        elif mark in self.special:
            body = f"(TEXT {self._spelled(begin)} {calls} | TEXT)"
        else:
            self.rules.append(f"trigger[lazy]: TEXT {_quoted(mark)}")
            body = f"(trigger {self._spelled(begin[len(mark) :])} {calls} | TEXT)"
        self._rule("start", lead + body)

    def _mark_in(self, begin: str) -> str:
        """The mark with which calls begin; all of it where it is no tag or token."""
        found = [m for m in self.special if begin.startswith(m)]
        tag = re.match(r"<[^\s>]+>|\[\w+\]", begin)
        return max(found, key=len) if found else tag[0] if tag else begin

    def in_channels(self, channels: Channels, calls: str, *, required: bool) -> None:
        """An answer in messages: reasoning if it likes, then a call, or the final message."""
        opening = f"{channels.channel}{channels.thinking[0]}{channels.message}"
        close, again = channels.ends[0], f"{channels.start}assistant"
        inner = self._until("analysis_text", close)
        self._rule("analysis", f"{self._spelled(opening)} {inner} {self._spelled(again)}")
        final = f"{self._spelled(f'{channels.channel}final{channels.message}')} TEXT"
        self._rule("start", f"analysis? ({calls}{'' if required else f' | {final}'})")

    # ----------------------------------------------------------------------------------- the calls

    def calls(self, tools: Sequence[Tool], *, parallel: bool) -> str:
        """The rules of calls; returns what stands for all of them, after what begins them."""
        layout = self.layout
        for n, tool in enumerate(tools):
            self._call(n, tool)
        self._rule("call", " | ".join(f"call_{n}" for n in range(len(tools))))
        more = ""
        if parallel and layout.between is not None:
            more = f"({self._spelled(layout.between)} call)*"
        return f"call {more} {self._spelled(layout.end)}"

    def _call(self, n: int, tool: Tool) -> None:
        layout = self.layout
        name = json.dumps(tool.name, ensure_ascii=False)[1:-1] if '"' in layout.head else tool.name
        if layout.counted:
            head = f"{self._spelled(f'{layout.head}{name}:')} /[0-9]{{1,4}}/"
            head += f" {self._spelled(layout.named)}"
        else:
            head = self._spelled(f"{layout.head}{name}{layout.named}")
        if layout.arguments is not None:
            arguments = self._tagged(n, tool.parameters, layout.arguments)
        else:
            arguments = f"arguments_{n}"
            self._rule(arguments, _json(_closed(tool.parameters)))
        tail = self._spelled(layout.tail)
        self._rule(f"call_{n}", " ".join(filter(None, [head, arguments, tail])))

    def _tagged(self, n: int, parameters: Schema, tags: Tags) -> str:
        """Parameters in the schema's order, those that are not required perhaps left out."""
        required = set(listed(parameters.get("required")))
        parts: list[str] = []
        for k, key in enumerate(as_mapping(parameters.get("properties"))):
            schema = property_schema(parameters, key) or {}
            rule = f"parameter_{n}_{k}"
            text = bool(tags.keyed_text) and may_be_string(schema)
            keyed = tags.keyed_text[0] if text else tags.keyed[0]
            value = self._value(rule, schema, parameters, tags.close)
            self._rule(rule, f"{self._spelled(f'{tags.open}{key}{keyed}')} {value}")
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
        self._rule(f"{rule}_json", _json(inner))
        return f"{rule}_json {self._spelled(close)}"

    # --------------------------------------------------------------------------------- small steps

    def _rule(self, name: str, body: str) -> None:
        self.rules.append(f"{name}: {body}")

    def _until(self, rule: str, close: str) -> str:
        """Any text, up to and with the first `close`."""
        if any(mark in close for mark in self.special):
            return f"TEXT {self._spelled(close)}"
        self.rules.append(f"{rule}[lazy]: TEXT {_quoted(close)}")
        return rule

    def _spelled(self, text: str) -> str:
        """Text as a sequence of strings and control tokens."""
        if not text:
            return ""
        marks = sorted(filter(None, self.special), key=len, reverse=True)
        if not marks:
            return _quoted(text)
        pieces = re.split("(" + "|".join(map(re.escape, marks)) + ")", text)
        return " ".join(
            f"<[{self.special[p]}]>" if p in self.special else _quoted(p) for p in pieces if p
        )


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
