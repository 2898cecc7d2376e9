"""llama.cpp's C functions about text: what a model's tokens are, and texts as tokens."""

import ctypes
from typing import Any

import llama_cpp.llama_cpp as _module

_c: Any = _module

Model = Any


def vocab_size(model: Model) -> int:
    return int(_c.llama_vocab_n_tokens(_c.llama_model_get_vocab(model)))


def pieces(model: Model) -> list[bytes]:
    """The bytes of every token id, markup included."""
    vocab = _c.llama_model_get_vocab(model)
    size = 256
    buffer = ctypes.create_string_buffer(size)
    out: list[bytes] = []
    for token in range(vocab_size(model)):
        n = _c.llama_token_to_piece(vocab, token, buffer, size, 0, True)
        if n < 0:
            size = -n
            buffer = ctypes.create_string_buffer(size)
            n = _c.llama_token_to_piece(vocab, token, buffer, size, 0, True)
        out.append(buffer.raw[:n])
    return out


def end_ids(model: Model) -> frozenset[int]:
    """The tokens that end a turn."""
    vocab = _c.llama_model_get_vocab(model)
    return frozenset(t for t in range(vocab_size(model)) if _c.llama_vocab_is_eog(vocab, t))


def control_ids(model: Model) -> frozenset[int]:
    """The tokens that are markup."""
    vocab = _c.llama_model_get_vocab(model)
    return frozenset(t for t in range(vocab_size(model)) if _c.llama_vocab_is_control(vocab, t))


def special_texts(model: Model) -> tuple[list[str], list[str]]:
    """What the tokenizer looks for before anything else, as it is written: all of it, and those
    control marks of it that take no white space before them along (`llama_vocab::
    cache_special_tokens`)."""
    vocab = _c.llama_model_get_vocab(model)
    special = (
        _c.LLAMA_TOKEN_ATTR_CONTROL | _c.LLAMA_TOKEN_ATTR_USER_DEFINED | _c.LLAMA_TOKEN_ATTR_UNKNOWN
    )
    every: list[str] = []
    marks: list[str] = []
    for token in range(vocab_size(model)):
        attributes = int(_c.llama_vocab_get_attr(vocab, token))
        if attributes & special:
            text = (_c.llama_vocab_get_text(vocab, token) or b"").decode("utf-8", "replace")
            every.append(text)
            plain = not attributes & _c.LLAMA_TOKEN_ATTR_LSTRIP
            if text and plain and _c.llama_vocab_is_control(vocab, token):
                marks.append(text)
    return every, marks


def fill_marks(model: Model) -> tuple[int, int, int] | None:
    """The tokens before a text, before what follows it, and before what belongs between them."""
    vocab = _c.llama_model_get_vocab(model)
    before = int(_c.llama_vocab_fim_pre(vocab))
    after = int(_c.llama_vocab_fim_suf(vocab))
    middle = int(_c.llama_vocab_fim_mid(vocab))
    return (before, after, middle) if min(before, after, middle) >= 0 else None


def bos_eos(model: Model) -> tuple[int, int, bool]:
    """The first and last token of a text (-1: none), and whether tokenizing adds the first."""
    vocab = _c.llama_model_get_vocab(model)
    bos, eos = int(_c.llama_vocab_bos(vocab)), int(_c.llama_vocab_eos(vocab))
    return bos, eos, bool(_c.llama_vocab_get_add_bos(vocab))


def tokenize(model: Model, text: str, *, add_bos: bool, specials: bool) -> tuple[int, ...]:
    """Text to token ids. Safe to call from another thread than the decoding one."""
    vocab = _c.llama_model_get_vocab(model)
    data = text.encode("utf-8", "replace")
    room = len(data) + 8
    while True:
        buffer = (ctypes.c_int32 * room)()
        n = int(_c.llama_tokenize(vocab, data, len(data), buffer, room, add_bos, specials))
        if n >= 0:
            return tuple(buffer[:n])
        room = -n
