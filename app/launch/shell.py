"""A setup as shell commands, for whoever sets it by hand."""

import shlex
from collections.abc import Iterator, Sequence

from app.launch.base import Recipe, Setup

FOLDER = "@FOLDER@"
"""Stands for the folder of a setup that is only shown."""
_END = "END_OF_FILE"


def script(
    recipe: Recipe, setup: Setup, arguments: Sequence[str], placeholder: str, proxies: str
) -> str:
    """What a POSIX shell can run as it is. The key is taken from RUNNER_API_KEY, and is
    `placeholder` where that is not set; `proxies` is for NO_PROXY."""
    return "\n".join([*_lines(recipe, setup, arguments, placeholder, proxies), ""])


def _lines(
    recipe: Recipe, setup: Setup, arguments: Sequence[str], placeholder: str, proxies: str
) -> Iterator[str]:
    if setup.files:
        yield 'folder="$(umask 077 && mktemp -d)"'
        for name, content in setup.files.items():
            yield f"cat > \"$folder\"/{name} <<'{_END}'"
            yield content.rstrip("\n")
            yield _END
    if setup.unset:
        yield f"unset {' '.join(setup.unset)}"
    for name, value in setup.env.items():
        yield f"export {name}={_word(value)}"
    for name in setup.key_in:
        yield f'export {name}="${{RUNNER_API_KEY:-{placeholder}}}"'
    for name in ("NO_PROXY", "no_proxy"):
        yield f"export {name}={_word(proxies)}"
    yield " ".join(map(_word, (recipe.executable, *setup.args, *arguments)))


def _word(text: str) -> str:
    """One word of the shell; the folder is put in by the shell itself."""
    parts = [shlex.quote(part) if part else "" for part in text.split(FOLDER)]
    return '"$folder"'.join(parts) or "''"
