"""A GGUF loaded by llama.cpp: its vocabulary, and the contexts that run it."""

import time
from collections.abc import Callable

from models.errors import DoesNotFit, EngineFailed, ModelInvalid
from models.fingerprint import fingerprint
from models.fit import IDLE_SEQUENCES, IDLE_STATES
from models.kv import KvType
from runtimes.base import Cut, Row
from runtimes.llamacpp import binding as c
from runtimes.llamacpp import vocabulary as v
from runtimes.llamacpp.buffers import memory_of
from runtimes.llamacpp.devices import list_devices
from runtimes.llamacpp.embedder import LlamaEmbedder, Pooling, pooling_of, writes
from runtimes.llamacpp.executor import MAX_ROWS, Layout, LlamaExecutor
from runtimes.llamacpp.offload import HOST, Placement, placements
from runtimes.messages import LoadSpec, Vocab
from runtimes.segments import SegmentedTokenizer, cutting

# Sequence ids for finished requests where these can be parked on a GPU.
PARKED_SEQUENCES = 48
# Parked sequences take at most this share of a GPU's memory that is free after the load.
PARK_SHARE = 0.5
# Where a prompt's own logprobs are asked for, so many of its tokens are read at once.
SCORED_ROWS, SCORED_BYTES = 64, 64 << 20
# Tokens of the step that a load measures.
PROBE_ROWS = 32

# Attention without flash attention: heads of so many elements, and so many bytes of scores.
SMALL_HEAD = 64
MAX_SCORES = 512 << 20


class LlamaText:
    """What every loaded GGUF has: a vocabulary, and vectors for texts."""

    def __init__(self, model: c.Model, spec: LoadSpec, log: c.Log, placement: Placement) -> None:
        self._model, self._spec, self._log = model, spec, log
        self._placement = placement
        self._tokenizer = self._new_tokenizer()
        limit = min(spec.context, c.trained_context(model) or spec.context)
        ranks = pooling_of(model) is Pooling.RANK
        self.embedder = None if ranks else LlamaEmbedder(model, spec.threads, limit, log)

    def vocab(self) -> Vocab:
        """The vocabulary, read once at load."""
        pieces = v.pieces(self._model)
        bos, eos, adds_bos = v.bos_eos(self._model)
        text = [p.decode("utf-8", "replace") for p in (pieces[bos], pieces[eos])]
        return Vocab(
            pieces=tuple(pieces),
            end_ids=v.end_ids(self._model),
            control_ids=v.control_ids(self._model),
            bos_id=bos,
            eos_id=eos,
            bos_text=text[0] if bos >= 0 else "",
            eos_text=text[1] if eos >= 0 else "",
            adds_bos=adds_bos,
            fill=v.fill_marks(self._model),
        )

    def encode(self, text: str, add_bos: bool, specials: bool) -> tuple[int, ...]:
        """Tokenize; the one call that may come from another thread."""
        return self._tokenizer(text, add_bos, specials)

    def _tokenized(self, text: str, add_bos: bool, specials: bool) -> tuple[int, ...]:
        return v.tokenize(self._model, text, add_bos=add_bos, specials=specials)

    def _new_tokenizer(self) -> SegmentedTokenizer:
        """Text is cut only where the library adds nothing but the first token."""
        added = self._tokenized("", True, True)
        every, marks = v.special_texts(self._model)
        cuts = cutting(marks, every) if len(added) <= 1 else ()
        return SegmentedTokenizer(self._tokenized, cuts, added)

    def memory(self) -> dict[str, int]:
        """Bytes by kind, and by GPU."""
        found = memory_of(self._log.buffers, self._placement.names)
        return {**found, "weights": c.model_bytes(self._model)}

    def placement(self) -> str:
        """Where the layers are, for a person."""
        return str(self._placement)

    def release(self) -> None:
        """Free everything; no call may follow."""
        if self.embedder is not None:
            self.embedder.release()
        c.free_model(self._model)


class LlamaEncoder(LlamaText):
    """Made by `load` of a model that writes nothing."""

    def writing(self) -> None:
        """See `LoadedModel`."""

    def probe(self) -> float:
        """A small text as a vector: see `LlamaModel.probe`."""
        if self.embedder is None:
            return 0.0
        started = time.monotonic()
        for _ in self.embedder.run([[0] * min(PROBE_ROWS, self.embedder.limit)]):
            pass
        return (time.monotonic() - started) / PROBE_ROWS


class LlamaModel(LlamaText):
    """Made by `load`. `executor` is the cache that all requests share."""

    def __init__(self, model: c.Model, spec: LoadSpec, log: c.Log, placement: Placement) -> None:
        super().__init__(model, spec, log, placement)
        self._quiet: LlamaExecutor | None = None
        layout = self._shared_layout()
        self.executor = self._new_executor(layout, spec.cells, layout.ids)

    def writing(self) -> "LlamaModel":
        """See `LoadedModel`."""
        return self

    def quiet(self) -> LlamaExecutor | None:
        """Caches of their own for a few sequences, one each, so that nothing else moves a rounding;
        None where the spec allows none or memory does not suffice. Made when first asked for."""
        handles = self._spec.quiet
        if self._quiet is None and handles:
            plain = not c.window(self._model) and not c.keeps_state(self._model)
            layout = Layout(handles, Cut.ANY if plain else Cut.NONE, forks=False)
            try:
                rows = min(SCORED_ROWS, SCORED_BYTES // (4 * v.vocab_size(self._model)))
                outputs = max(rows, layout.ids)
                self._quiet = self._new_executor(layout, self._spec.context * handles, outputs)
            except DoesNotFit:
                return None
        return self._quiet

    def _shared_layout(self) -> Layout:
        window, stateful = c.window(self._model), c.keeps_state(self._model)
        idle = IDLE_STATES if stateful else IDLE_SEQUENCES
        if self._placement.layers:
            idle = PARKED_SEQUENCES
        handles = self._spec.parallel + idle
        pins = bool(window and self._spec.swa_full and not stateful)
        cut = Cut.NONE if stateful else Cut.WINDOW if window and not pins else Cut.ANY
        attention = c.has_attention(self._model)
        parks = bool(self._placement.layers) and cut is Cut.ANY and not pins
        # Without flash attention a step computes with every used cell, its own or not.
        dense = self._flash(self._spec.cells) is False
        return Layout(
            handles,
            cut,
            pins,
            window=window,
            attention=attention,
            parks=parks,
            idle_cells=256 if dense else 2048,
            dense=dense,
        )

    def _new_executor(self, layout: Layout, cells: int, outputs: int) -> LlamaExecutor:
        assert outputs >= layout.ids, "the library wants room for one of each"
        context = c.new_context(
            self._model,
            cells=cells,
            sequences=layout.ids,
            max_rows=MAX_ROWS,
            max_outputs=outputs,
            threads=self._spec.threads,
            unified=layout.forks,
            swa_full=self._spec.swa_full,
            kv_type=self._spec.kv_type,
            flash=self._flash(cells),
        )
        if context is None:
            raise DoesNotFit(
                f"no memory for a context of {cells} tokens: {self._log.last_error()}. "
                "Try a smaller --ctx or --parallel."
            )
        park = self._park_cells(cells) if layout.parks else 0
        return LlamaExecutor(context, layout, v.vocab_size(self._model), outputs, park, self._log)

    def _flash(self, cells: int) -> bool | None:
        """Off where it was measured to be slower (docs/BENCHMARKS.md, "Flash attention"): on a CPU
        with small heads, as long as the scores it saves are small. Else the library's choice."""
        heads, size = c.heads(self._model)
        plain = self._spec.kv_type is KvType.F16 and not c.window(self._model)
        scores = heads * MAX_ROWS * cells * 4
        small = size <= SMALL_HEAD and scores <= MAX_SCORES
        return False if plain and small and not self._placement.layers else None

    def _park_cells(self, cells: int) -> int:
        """Tokens of idle sequences that the GPUs' free memory can hold beside the cache."""
        kv = self.memory().get("kv", 0)
        free = sum(device.usable for device in list_devices() if not device.shares_host)
        return int(free * PARK_SHARE * cells / kv) if kv else 0

    # ------------------------------------------------------------------ life

    def probe(self) -> float:
        """One small step, narrow and wide: a build whose instructions this processor traps dies
        here and not under somebody's request. Returns the seconds that a token of the wide one
        took; the weights are in memory then."""
        seconds = 0.0
        for width in (1, PROBE_ROWS):
            handle = self.executor.open()
            started = time.monotonic()
            try:
                self.executor.step([Row(handle, [0] * width, 0, True)], lambda _: None)
            except EngineFailed as error:
                raise EngineFailed(f"the model's first step failed: {error.message}") from error
            seconds = (time.monotonic() - started) / width
            self.executor.close(handle)
        return seconds

    def identity(self) -> dict[str, str]:
        """What saved KV memory depends on besides the tokens: the weights, the engine, and how the
        cache is laid out."""
        return {
            "weights": fingerprint(self._spec.files or (self._spec.path,)),
            "engine": c.build(),
            "cache": f"{self._spec.kv_type} window={'whole' if self._spec.swa_full else 'own'} "
            f"flash={self._flash(self._spec.cells)}",
        }

    def release(self) -> None:
        """Free everything; no call may follow."""
        self.executor.release()
        if self._quiet is not None:
            self._quiet.release()
        super().release()


def load(spec: LoadSpec, progress: Callable[[float], None]) -> LlamaModel | LlamaEncoder:
    """Load a GGUF. Raises ModelInvalid where llama.cpp refuses it, DoesNotFit for want of
    memory.

    Where there are GPUs, what fits them is computed, and may be wrong: others take memory, too. So
    each failure for want of it is followed by a smaller try, the last one without a GPU."""
    log = c.start()
    devices = list_devices() if spec.gpu_layers else ()
    if not devices:
        return _load_as(spec, HOST, log, progress)
    failure = DoesNotFit(f"no memory for {spec.path.name}")
    for placement in placements(spec, list_devices):
        log.lines.clear()
        log.buffers.clear()
        try:
            return _load_as(placement.applied(spec), placement, log, progress)
        except DoesNotFit as error:
            failure = error
    if spec.gpu_layers > 0:
        raise DoesNotFit(f"{failure.message} Or let what fits be found: --gpu-layers auto.")
    raise failure


def load_writer(spec: LoadSpec, progress: Callable[[float], None]) -> LlamaModel:
    """The same for a model that must write. Raises ModelInvalid where it does not, too."""
    model = load(spec, progress)
    if not isinstance(model, LlamaModel):
        model.release()
        raise ModelInvalid(f"{spec.path.name} generates no text")
    return model


def _load_as(
    spec: LoadSpec, placement: Placement, log: c.Log, progress: Callable[[float], None]
) -> LlamaModel | LlamaEncoder:
    model = c.load_model(
        spec.path,
        extra_buffers=spec.extra_buffers,
        gpu_layers=spec.gpu_layers,
        split=placement.split if len(placement.split) > 1 else (),
        progress=progress,
    )
    if model is None:
        if log.tells("allocate"):
            raise DoesNotFit(f"no memory for the weights of {spec.path.name} ({placement}).")
        raise ModelInvalid(f"llama.cpp cannot load {spec.path.name}: {log.last_error()}")
    if not writes(model):
        return LlamaEncoder(model, spec, log, placement)
    try:
        return LlamaModel(model, spec, log, placement)
    except DoesNotFit:
        c.free_model(model)
        raise
