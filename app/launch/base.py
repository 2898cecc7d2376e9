"""What a launch is made of: the server and the model, an agent's recipe, and what comes of both."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

ROOM_TO_WORK = 8192
"""Tokens beyond the first prompt: a few files, tool results and answers, before an agent has to
summarize what it did."""
_STEP = 4096

KEY_VARIABLE = "RUNNER_AGENT_KEY"
"""Where an agent finds the key that lets its configuration name a variable."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where an agent is pointed to. `context` is in tokens, None where nobody knows it; `folder`
    is where the files of a setup will lie."""

    url: str
    model: str
    context: int | None
    folder: str

    @property
    def openai_url(self) -> str:
        """Where OpenAI's routes begin."""
        return f"{self.url}/v1"

    @property
    def answer(self) -> int | None:
        """The longest answer to plan with, in tokens: a quarter of the context."""
        return None if self.context is None else min(8192, self.context // 4)


@dataclass(frozen=True, slots=True)
class Setup:
    """What one agent is given. It never holds the key: `key_in` names the variables for it."""

    env: Mapping[str, str]
    key_in: tuple[str, ...]
    unset: tuple[str, ...] = ()
    """Variables of the user's that would lead the agent elsewhere."""
    args: tuple[str, ...] = ()
    """What comes before the user's own arguments."""
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    """Contents by name, in the target's folder."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """One agent: how it is found, what it needs and how it is pointed at a server."""

    name: str
    title: str
    executable: str
    install: str
    """The command that installs it."""
    first_prompt: int
    """Tokens of the first request in an empty folder, as measured."""
    prepare: Callable[[Target], Setup]

    @property
    def least_context(self) -> int:
        """Tokens of context below which the agent cannot work: the first prompt and room."""
        return -(-(self.first_prompt + ROOM_TO_WORK) // _STEP) * _STEP
