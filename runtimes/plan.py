"""What the pool is told about this machine and its user, and how a model is loaded by that."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from models.card import Format, ModelCard
from models.errors import RuntimeUnavailable
from models.header import GgufHeader
from models.kv import KvType
from runtimes.messages import DiskSpec, LoadSpec
from runtimes.sizing import CacheSize, Wish, size_partner


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """`memory` tells how many bytes of the host all loaded models may take together, given how many
    they take already; it is asked anew at each load. `device_memory` tells how many more they may
    take of GPUs; it may block, and is asked once. `gpu_layers` is how many of a model's layers go
    on GPUs (None: as many as fit). With `drafts` tokens are guessed from the text so far, and by
    the model `draft_model`. See `models/canonical.py` for `canonical_prompts`, and `Wish` for `ctx`
    to `cache_ram`."""

    memory: Callable[[int], int]
    executors: Mapping[Format, str]
    ctx: int | None = None
    parallel: int = 8
    kv_type: KvType = KvType.F16
    cache_ram: int | None = None
    device_memory: Callable[[], int] = lambda: 0
    gpu_layers: int | None = None
    threads: int = 2
    keep_alive_s: float = 300.0
    max_queue: int = 256
    disk: DiskSpec | None = None
    canonical_prompts: bool = True
    drafts: bool = True
    draft_model: ModelCard | None = None

    @property
    def wish(self) -> Wish:
        """What the user wants of each model's memory."""
        return Wish(self.ctx, self.parallel, self.kv_type, self.cache_ram)

    def executor(self, card: ModelCard) -> str:
        """Who runs the model. Raises RuntimeUnavailable."""
        executor = self.executors.get(card.format)
        if executor is None:
            raise RuntimeUnavailable(
                f"{card.id} is in {card.format.upper()} format, which cannot run on this machine. "
                "Pull a GGUF build of it instead."
            )
        return executor

    def load_spec(self, card: ModelCard, size: CacheSize, *, extra_buffers: bool) -> LoadSpec:
        """How a model of this size is loaded."""
        return LoadSpec(
            executor=self.executor(card),
            path=card.path,
            context=size.context,
            cells=size.cells,
            parallel=self.parallel,
            threads=self.threads,
            quiet=size.quiet,
            swa_full=size.full_window,
            extra_buffers=extra_buffers,
            gpu_layers=-1 if self.gpu_layers is None else self.gpu_layers,
            kv_type=self.kv_type,
            least_context=size.least_context,
            host_cache_bytes=size.host_cache,
            disk=self.disk,
            drafts=self.drafts,
            files=card.files,
        )


@dataclass(frozen=True, slots=True)
class Partner:
    """A small model that guesses for others, loaded beside each of them."""

    card: ModelCard
    size: CacheSize

    @staticmethod
    def of(card: ModelCard, header: GgufHeader, wish: Wish) -> "Partner":
        """The model of `card` as a partner."""
        return Partner(card, size_partner(card, header, wish))

    def joined(self, spec: LoadSpec, settings: PoolSettings) -> LoadSpec:
        """The same load, with the partner beside the model."""
        own = settings.load_spec(self.card, self.size, extra_buffers=spec.extra_buffers)
        return replace(spec, draft=replace(own, disk=None, drafts=False))
