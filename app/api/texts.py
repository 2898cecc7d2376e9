"""Texts, or the tokens of texts, in every form in which OpenAI's dialects take several at once."""

from typing import Any, cast

from models.errors import RequestInvalid

TextOrTokens = str | tuple[int, ...]
_MAX_TOKEN_ID = 2**31 - 1


def texts_of(value: Any, field: str, most: int) -> list[TextOrTokens]:
    """All of them, in order: `value` is a text, its token ids, or a list of either, of `most` at
    most. Raises RequestInvalid."""
    match value:
        case str():
            return [value]
        case [int(), *_]:
            return [_token_ids(value, field)]
        case [_, *_]:
            listed = cast(list[Any], value)
            if len(listed) > most:
                raise RequestInvalid(f"{field} may hold at most {most} texts.", field)
            return [_one(item, f"{field}.{index}") for index, item in enumerate(listed)]
        case _:
            text = f"{field} must be a string, a list of strings, or token ids, and not empty."
            raise RequestInvalid(text, field)


def _one(item: Any, path: str) -> TextOrTokens:
    return item if isinstance(item, str) else _token_ids(item, path)


def _token_ids(value: Any, path: str) -> tuple[int, ...]:
    ids = cast(list[Any], value) if isinstance(value, list) else []
    for item in ids:
        if type(item) is not int or not 0 <= item <= _MAX_TOKEN_ID:  # a bool is an int, too
            raise RequestInvalid(f"{path} must hold token ids (whole numbers) only.", path)
    if not ids:
        raise RequestInvalid(f"{path} must be a string or a list of token ids.", path)
    return tuple(ids)
