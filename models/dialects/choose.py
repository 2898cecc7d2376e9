"""Which dialect a model speaks: its chat template tells, whatever the model is called."""

from collections.abc import Sequence
from dataclasses import replace

from models.dialects import (
    command,
    deepseek,
    gemma,
    glm,
    granite,
    harmony,
    hermes,
    kimi,
    lists,
    llama,
    minimax,
    mistral,
    phi,
    qwen,
    seed,
)
from models.dialects.base import Dialect, Family
from models.dialects.generic import GENERIC

# The first whose signs are there. Those with marks of their own come before those that share them:
# many use <tool_call>, and some of them say more.
FAMILIES: tuple[Family, ...] = (
    harmony.FAMILY,
    *deepseek.FAMILIES,
    kimi.FAMILY,
    glm.FAMILY,
    minimax.FAMILY,
    seed.FAMILY,
    command.FAMILY,
    mistral.NAMED_FAMILY,
    mistral.FAMILY,
    *gemma.FAMILIES,
    *lists.FAMILIES,
    *granite.FAMILIES,
    qwen.FAMILY,
    hermes.FAMILY,
    phi.FAMILY,
    llama.PYTHON_FAMILY,
    llama.FAMILY,
    hermes.PLAIN_FAMILY,
)

DIALECTS: tuple[Dialect, ...] = (*dict.fromkeys(f.dialect for f in FAMILIES), GENERIC)

_ALL_THINKING = tuple(dict.fromkeys(t for d in DIALECTS for t in d.thinking))


def dialect_for(template_source: str, markup: Sequence[str] = ()) -> Dialect:
    """The dialect of the model whose chat template this is. Where there is no template, `markup`,
    the control tokens of the vocabulary, has to tell."""
    source = _plain(template_source) or "\n".join(markup)
    dialect = next((f.dialect for f in FAMILIES if _shows(source, f)), GENERIC)
    # A family's models may think in another's way, as those trained on its answers do.
    more = tuple(t for t in _ALL_THINKING if t not in dialect.thinking and t.end in source)
    if not more or dialect.channels is not None:
        return dialect
    return replace(dialect, thinking=(*dialect.thinking, *more))


def thinks(template_source: str) -> bool:
    """Whether the model of this chat template can think before it answers."""
    dialect = dialect_for(template_source)
    return dialect.channels is not None or any(t.end in template_source for t in dialect.thinking)


def _shows(source: str, family: Family) -> bool:
    return any(all(sign in source for sign in group) for group in family.signs)


def _plain(source: str) -> str:
    """The template's text as it will be in a prompt: it stands between quotes, with escapes."""
    return source.replace("\\n", "\n").replace('\\"', '"').replace("\\'", "'")
