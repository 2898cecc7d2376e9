"""llama.cpp's C functions (through llama-cpp-python's low-level module); no other file names any,
but `gpus.py` those of ggml.

Typed, narrow, and without policy. Pitfalls of the C API are handled where they are: callbacks stay
referenced, NULL is falsy, logits rows live until the next decode.
"""

import ctypes
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import llama_cpp
import llama_cpp.llama_cpp as _module
import numpy as np
from numpy.typing import NDArray

from models.kv import KvType

_c: Any = _module

Model = Any
Context = Any
Memory = Any

_KV_TYPES = {
    KvType.F16: _c.GGML_TYPE_F16,
    KvType.Q8_0: _c.GGML_TYPE_Q8_0,
    KvType.Q4_0: _c.GGML_TYPE_Q4_0,
}
_NO_DEVICES = (ctypes.c_void_p * 1)(None)
_LOG_WARN, _LOG_ERROR, _LOG_CONT = 3, 4, 5
_FLASH: dict[bool | None, int] = {
    None: _c.LLAMA_FLASH_ATTN_TYPE_AUTO,
    False: _c.LLAMA_FLASH_ATTN_TYPE_DISABLED,
    True: _c.LLAMA_FLASH_ATTN_TYPE_ENABLED,
}


class Log:
    """The library's last lines, for error messages. One for the process."""

    def __init__(self, keep: int = 100) -> None:
        self.lines: deque[tuple[int, str]] = deque(maxlen=keep)
        # What each buffer takes is told once, among hundreds of lines; nothing else tells it.
        self.buffers: list[str] = []

        def take(level: int, text: bytes, _user: Any) -> None:
            line = text.decode("utf-8", "replace")
            if " buffer size = " in line:
                self.buffers.append(line)
            if level == _LOG_CONT and self.lines:
                old_level, old = self.lines[-1]
                self.lines[-1] = (old_level, old + line)
            else:
                self.lines.append((level, line))

        self._callback: Any = _c.llama_log_callback(take)
        _c.llama_log_set(self._callback, None)

    def last_error(self) -> str:
        """The newest line of at least warning level, or "" if there is none."""
        bad = [text for level, text in self.lines if level in (_LOG_WARN, _LOG_ERROR)]
        return bad[-1].strip() if bad else ""

    def tells(self, word: str) -> bool:
        """Whether a line of at least warning level has the word."""
        return any(word in text for level, text in self.lines if level in (_LOG_WARN, _LOG_ERROR))


def start() -> Log:
    """Start the backend; returns the log, which must stay referenced."""
    log = Log()
    _c.llama_backend_init()
    return log


def load_model(
    path: Path,
    *,
    extra_buffers: bool,
    gpu_layers: int,
    progress: Callable[[float], None],
    split: Sequence[int] = (),
) -> Model | None:
    """Load a GGUF (the first shard of a split one), `split` of its layers on each GPU (none: the
    library decides). None where the library refuses."""

    def report(fraction: float, _user: Any) -> bool:
        progress(fraction)
        return True

    params: Any = _c.llama_model_default_params()
    params.use_extra_bufts = extra_buffers
    if gpu_layers >= 0:
        params.n_gpu_layers = gpu_layers
    if not gpu_layers:
        # Without a layer there, the library would still take memory of a GPU for wide products.
        params.devices = ctypes.addressof(_NO_DEVICES)
    if any(split):
        shares = list(split)[: _c.llama_max_devices()]
        # The library copies it while it loads.
        params.tensor_split = (ctypes.c_float * _c.llama_max_devices())(*shares)
    callback: Any = _c.llama_progress_callback(report)
    params.progress_callback = callback
    model = _c.llama_model_load_from_file(str(path).encode(), params)
    return model or None


def new_context(
    model: Model,
    *,
    cells: int,
    sequences: int,
    max_rows: int,
    max_outputs: int,
    threads: int,
    unified: bool,
    swa_full: bool,
    kv_type: KvType,
    flash: bool | None = None,
) -> Context | None:
    """A context with one cache of `cells` for all sequences, or (not `unified`) an own one for each
    of an equal share of them. Flash attention is the library's choice where `flash` is None. None
    where memory does not suffice."""
    params: Any = _c.llama_context_default_params()
    params.n_ctx = cells
    params.n_seq_max = sequences
    params.n_batch = max_rows
    params.n_ubatch = max_rows
    # Unset, the compute buffer holds a row of logits for every token of a batch.
    params.n_outputs_max = max_outputs
    params.n_threads = threads
    params.n_threads_batch = threads
    params.kv_unified = unified
    params.swa_full = swa_full
    params.flash_attn_type = _FLASH[flash]
    params.no_perf = True
    params.type_k = params.type_v = _KV_TYPES[kv_type]
    if kv_type is not KvType.F16:  # only flash attention reads quantized values
        params.flash_attn_type = _c.LLAMA_FLASH_ATTN_TYPE_ENABLED
    return _c.llama_init_from_model(model, params) or None


def free_context(context: Context) -> None:
    _c.llama_free(context)


def free_model(model: Model) -> None:
    """Free a model; its contexts must be gone."""
    _c.llama_model_free(model)


# ---------------------------------------------------------------------- questions


def model_bytes(model: Model) -> int:
    return int(_c.llama_model_size(model))


def window(model: Model) -> int:
    """The sliding window in tokens, 0 where attention is full."""
    return int(_c.llama_model_n_swa(model))


def keeps_state(model: Model) -> bool:
    """Whether the model carries recurrent state, alone or beside attention."""
    return bool(_c.llama_model_is_recurrent(model) or _c.llama_model_is_hybrid(model))


def has_attention(model: Model) -> bool:
    """Whether memory grows with the tokens."""
    return not _c.llama_model_is_recurrent(model) or bool(_c.llama_model_is_hybrid(model))


def heads(model: Model) -> tuple[int, int]:
    """How many attention heads there are, and the elements of each."""
    count = max(1, int(_c.llama_model_n_head(model)))
    return count, int(_c.llama_model_n_embd(model)) // count


def has_decoder(model: Model) -> bool:
    return bool(_c.llama_model_has_decoder(model))


def build() -> str:
    """The library's version and what it was compiled for."""
    info: bytes = _c.llama_print_system_info()
    return f"llama-cpp-python {llama_cpp.__version__}, {info.decode('utf-8', 'replace').strip()}"


def context_cells(context: Context) -> int:
    return int(_c.llama_n_ctx(context))


def context_sequences(context: Context) -> int:
    return int(_c.llama_n_seq_max(context))


# ---------------------------------------------------------------------- vocabulary


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


# ---------------------------------------------------------------------- memory of sequences


def memory(context: Context) -> Memory:
    return _c.llama_get_memory(context)


def seq_copy(mem: Memory, source: int, target: int, start: int, end: int) -> None:
    """Let `target` hold `source`'s cells of positions [start, end) too (metadata only)."""
    _c.llama_memory_seq_cp(mem, source, target, start, end)


def seq_remove(mem: Memory, seq: int, start: int = -1, end: int = -1) -> bool:
    """Drop positions [start, end) of a sequence; False where its state cannot be cut."""
    return bool(_c.llama_memory_seq_rm(mem, seq, start, end))


def seq_range(mem: Memory, seq: int) -> tuple[int, int]:
    """The lowest and highest position a sequence holds in every kind of memory; -1 where empty."""
    low = int(_c.llama_memory_seq_pos_min(mem, seq))
    return low, int(_c.llama_memory_seq_pos_max(mem, seq))


PARTIAL = 1
"""Only what cannot be cut by position: the window part, recurrent state."""
ON_DEVICE = 2
"""Tensors stay in buffers beside the cache, one set a sequence id."""


def state_size(context: Context, seq: int, flags: int = 0) -> int:
    """Bytes of a sequence's state."""
    return int(_c.llama_state_seq_get_size_ext(context, seq, flags))


def state_get(context: Context, seq: int, flags: int = 0) -> memoryview | None:
    """A copy of a sequence's state, None where the library refuses. Positions that a window has
    left behind are not in it."""
    size = state_size(context, seq, flags)
    buffer = np.empty(size, np.uint8)
    pointer = buffer.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
    written = int(_c.llama_state_seq_get_data_ext(context, pointer, size, seq, flags))
    return buffer.data if size and written == size else None


def state_set(context: Context, seq: int, state: memoryview, flags: int = 0) -> bool:
    """Replace a sequence's state. Where it is refused (another format, no room) the sequence has
    lost what it had."""
    buffer = np.frombuffer(state, np.uint8)
    pointer = buffer.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
    read = int(_c.llama_state_seq_set_data_ext(context, pointer, len(buffer), seq, flags))
    return read == len(buffer)


# ---------------------------------------------------------------------- steps


class Batch:
    """A llama_batch over numpy arrays that live as long as it does; nothing is allocated a step."""

    def __init__(self, capacity: int) -> None:
        self.count = 0
        self._token = np.zeros(capacity, np.int32)
        self._pos = np.zeros(capacity, np.int32)
        self._seqs = np.ones(capacity, np.int32)
        self._out = np.zeros(capacity, np.int8)
        self._seq = np.zeros(capacity, np.int32)
        # seq_id is an array of pointers to each token's list of sequences: here into one array.
        base = self._seq.ctypes.data
        self._pointers = (base + np.arange(capacity, dtype=np.uint64) * 4).astype(np.uint64)
        self._batch: Any = _c.llama_batch()
        int32 = ctypes.POINTER(ctypes.c_int32)
        self._batch.token = self._token.ctypes.data_as(int32)
        self._batch.embd = None
        self._batch.pos = self._pos.ctypes.data_as(int32)
        self._batch.n_seq_id = self._seqs.ctypes.data_as(int32)
        self._batch.seq_id = ctypes.cast(
            ctypes.c_void_p(self._pointers.ctypes.data), ctypes.POINTER(int32)
        )
        self._batch.logits = self._out.ctypes.data_as(ctypes.POINTER(ctypes.c_int8))

    def clear(self) -> None:
        self.count = 0

    def add(
        self, tokens: Sequence[int] | NDArray[np.int32], position: int, seq: int, outputs: int
    ) -> range:
        """Append consecutive tokens of one sequence, with logits for the last `outputs` of them;
        returns the batch rows of these."""
        start, end = self.count, self.count + len(tokens)
        self._token[start:end] = tokens
        self._pos[start:end] = np.arange(position, position + len(tokens), dtype=np.int32)
        self._seq[start:end] = seq
        self._out[start : end - outputs] = 0
        self._out[end - outputs : end] = 1
        self.count = end
        return range(end - outputs, end)

    def decode(self, context: Context) -> int:
        """llama_decode's code: 0 done, 1 no room and nothing applied, 2 aborted, <0 an error."""
        self._batch.n_tokens = self.count
        return int(_c.llama_decode(context, self._batch))


def logits_row(context: Context, row: int, size: int) -> NDArray[np.float32]:
    """The live logits of a batch row, writable, valid until the next decode."""
    pointer = _c.llama_get_logits_ith(context, row)
    return np.ctypeslib.as_array(pointer, shape=(size,))


def logits_rows(context: Context, count: int, size: int) -> NDArray[np.float32]:
    """The live logits of all `count` rows that asked for them, in the batch's order; as above."""
    pointer = _c.llama_get_logits(context)
    return np.ctypeslib.as_array(pointer, shape=(count, size))
