"""Answers in messages with headers (harmony), read by the same tables and tools as the rest.

OpenAI's own parser, the package openai-harmony, works on token ids and fetches its vocabulary from
the network when it is first used. It also refuses malformed headers, which these models do write:
here a header is whatever stands before its end, and reading goes on with the next message.
"""

import re

from models.dialects.base import Channels
from models.dialects.desk import Desk
from models.dialects.jsoncalls import JsonReader
from models.dialects.reader import Marks, Waiting
from models.dialects.showing import show_until

_RECIPIENT = re.compile(r"\bto=([^\s<]+)")
_LONGEST_HEADER = 400
# What a header that is cut off looks like: a few words, and perhaps marks between them.
_HEADER = re.compile(r"(?:\s*(?:<\|?\w*\|?>?|[\w.=:\-]{1,64})){0,12}\s*")


class ChannelReader:
    """The states of an answer in channels: a header, and the text of its message."""

    def __init__(self, desk: Desk, channels: Channels, ends: tuple[str, ...]) -> None:
        self._desk, self._text, self._events = desk, desk.reader, desk.emitter
        self._json = JsonReader(desk)
        self._channels = channels
        openings = (channels.start, channels.channel, channels.message, channels.constrain)
        self._marks = Marks([*openings, *channels.ends, *ends])
        self._header_ends = Marks([channels.message, *channels.ends])
        self._channel_names = re.compile("|".join(map(re.escape, channels.names)))
        self.thinking = False

    def run(self, prompt_end: str) -> Waiting[None]:
        """Read the answer to its end."""
        yield from self._prompted(prompt_end)
        while True:
            show = self._events.reasoning if self.thinking else self._events.text
            mark, space = yield from show_until(self._text, self._marks, show)
            show(space)
            if mark is None:
                return
            if mark in (self._channels.start, self._channels.channel):
                yield from self._header(mark)
            elif mark in self._channels.ends:
                self.thinking = False

    def _prompted(self, prompt_end: str) -> Waiting[None]:
        """Go on with the header that the prompt's end has begun."""
        channels, at = self._channels, prompt_end.rfind(self._channels.start)
        header, message, _ = prompt_end[max(at, 0) :].partition(channels.message)
        if at < 0 or any(end in prompt_end[at:] for end in channels.ends):
            return
        if message:
            yield from self._message(header)
        elif (yield from self._text.ahead((channels.channel, channels.message, " to=", "to="))):
            yield from self._header(header, shown=header)

    def _header(self, header: str, shown: str = "") -> Waiting[None]:
        """The rest of a header, which is anything up to its end; `shown` of it is the prompt's."""
        text = self._text
        while True:
            found = self._header_ends.first(text.text, text.at)
            end = found.start() if found else len(text.text)
            if end - text.at > _LONGEST_HEADER:  # this is no header
                self._events.text(header[len(shown) :])
                return
            if found or text.ended:
                break
            yield
        header += text.text[text.at : end]
        text.at = found.end() if found else end
        text.forget()
        if found and found[0] == self._channels.message:
            yield from self._message(header)
        elif not _HEADER.fullmatch(header):
            self._events.text(header[len(shown) :])

    def _message(self, header: str) -> Waiting[None]:
        """What kind of message the header announces; a call is read here."""
        names = self._channel_names.findall(header)
        recipients = _RECIPIENT.findall(header)
        name = self._tool(recipients[-1]) if recipients else None
        self.thinking = name is None and bool(names) and names[-1] in self._channels.thinking
        if name is not None:
            yield from self._call(name)

    def _tool(self, recipient: str) -> str | None:
        if not self._desk.offered:
            return None
        prefix = self._channels.functions
        known = self._desk.offered.name(recipient, known_only=True)
        return known or (recipient.removeprefix(prefix) if recipient.startswith(prefix) else None)

    def _call(self, name: str) -> Waiting[None]:
        text, start = self._text, self._text.at
        yield from text.skip_space()
        if (yield from text.peek()) == "{":
            index = self._desk.begin(name)
            if (yield from self._json.stream(index)):
                self._events.end(index)
        elif (yield from text.ahead(self._channels.ends)):
            self._desk.whole(name, "{}")
        else:
            text.at = start
