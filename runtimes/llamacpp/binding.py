"""llama.cpp's C functions (through llama-cpp-python's low-level module); no other file names any,
but `vocabulary.py` those of text, and `gpus.py` those of ggml.

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
    """Start the backend; returns the log."""
    log = Log()
    _listening.append(log)
    _c.llama_backend_init()
    return log


# The library calls the last one it was given for as long as the process lives.
_listening: deque[Log] = deque(maxlen=1)


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


def new_pooling_context(
    model: Model,
    *,
    pooling: int,
    tokens: int,
    rows: int,
    outputs: int,
    sequences: int,
    threads: int,
) -> Context | None:
    """A context for `tokens` of texts that are read to become vectors, `rows` at a time, of which
    `outputs` give one. `pooling` is the library's number. None where memory does not suffice."""
    params: Any = _c.llama_context_default_params()
    params.n_ctx = tokens
    params.n_seq_max = sequences
    params.n_batch = params.n_ubatch = rows
    params.n_outputs_max = outputs
    params.n_threads = params.n_threads_batch = threads
    params.kv_unified = True
    params.embeddings = True
    params.pooling_type = pooling
    params.no_perf = True
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


def trained_context(model: Model) -> int:
    return int(_c.llama_model_n_ctx_train(model))


def vector_size(model: Model) -> int:
    """How many numbers an embedding has."""
    return int(_c.llama_model_n_embd_out(model))


def said(model: Model, key: str) -> str:
    """What the file says under its architecture's `key`, "" where nothing."""
    buffer = ctypes.create_string_buffer(128)
    arch = b"general.architecture"
    if _c.llama_model_meta_val_str(model, arch, buffer, len(buffer)) < 0:
        return ""
    name = buffer.value + b"." + key.encode()
    if _c.llama_model_meta_val_str(model, name, buffer, len(buffer)) < 0:
        return ""
    return buffer.value.decode("utf-8", "replace")


def build() -> str:
    """The library's version and what it was compiled for."""
    info: bytes = _c.llama_print_system_info()
    return f"llama-cpp-python {llama_cpp.__version__}, {info.decode('utf-8', 'replace').strip()}"


def context_cells(context: Context) -> int:
    return int(_c.llama_n_ctx(context))


def context_sequences(context: Context) -> int:
    return int(_c.llama_n_seq_max(context))


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

    def encode(self, context: Context) -> int:
        """The same for a model that is an encoder alone."""
        self._batch.n_tokens = self.count
        return int(_c.llama_encode(context, self._batch))


def ask_for_vectors(context: Context, wanted: bool) -> None:
    """Whether the rows of the next steps give embeddings, or logits."""
    _c.llama_set_embeddings(context, wanted)


def vector_of_row(context: Context, row: int, size: int) -> NDArray[np.float32]:
    """A copy of what a row of the last step gave."""
    pointer = _c.llama_get_embeddings_ith(context, row)
    return np.ctypeslib.as_array(pointer, shape=(size,)).copy()


def vector_of_sequence(context: Context, seq: int, size: int) -> NDArray[np.float32]:
    """A copy of what a sequence's rows gave together, as the context pools them."""
    pointer = _c.llama_get_embeddings_seq(context, seq)
    return np.ctypeslib.as_array(pointer, shape=(size,)).copy()


def logits_row(context: Context, row: int, size: int) -> NDArray[np.float32]:
    """The live logits of a batch row, writable, valid until the next decode."""
    pointer = _c.llama_get_logits_ith(context, row)
    return np.ctypeslib.as_array(pointer, shape=(size,))


def logits_rows(context: Context, count: int, size: int) -> NDArray[np.float32]:
    """The live logits of all `count` rows that asked for them, in the batch's order; as above."""
    pointer = _c.llama_get_logits(context)
    return np.ctypeslib.as_array(pointer, shape=(count, size))
