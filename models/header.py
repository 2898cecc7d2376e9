"""What a GGUF header says of a model: the facts that naming, fitting and listing ask for."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath


@dataclass(frozen=True, slots=True)
class Skipped:
    """A long array that was stepped over, not decoded: `count` elements of type `element`."""

    count: int
    element: str


Scalar = int | float | bool | str
Value = Scalar | Skipped | tuple["Value", ...]

# How often a layer sees the whole context, where the file names only the window: llama.cpp fixes
# this by architecture (llama-model.cpp, set_swa_pattern). A pattern in the file goes first.
_FULL_EVERY = {
    "cohere2": 4,
    "exaone4": 4,
    "gemma2": 2,
    "gemma3": 6,
    "gemma3n": 5,
    "gpt-oss": 2,
    "llama4": 4,
    "olmo2": 4,
    "smallthinker": 4,
}


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """One tensor: `offset` counts from the start of the file, both it and `num_bytes` in bytes."""

    name: str
    shape: tuple[int, ...]
    type: str
    offset: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Layer:
    """One block's cache: key and value elements a token, and whether only a window is kept."""

    elements_per_token: int
    windowed: bool


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """A parsed header. `label` names the file in messages; `tensors` is empty where only the
    metadata's beginning was read."""

    label: str
    version: int
    metadata: Mapping[str, Value]
    tensors: tuple[GgufTensor, ...]
    data_offset: int
    alignment: int
    file_size: int

    def text(self, key: str) -> str:
        """The string under `key`, or an empty one."""
        value = self.metadata.get(key)
        return value if isinstance(value, str) else ""

    def number(self, key: str, default: int = 0) -> int:
        """The whole number under `key`; an array counts by its largest element."""
        value = self.metadata.get(key)
        if isinstance(value, tuple):
            numbers = [n for n in value if isinstance(n, int)]
            return max(numbers, default=default)
        return value if isinstance(value, int) and not isinstance(value, bool) else default

    def of_arch(self, key: str, default: int = 0) -> int:
        """The whole number under the architecture's own `key`."""
        return self.number(f"{self.architecture}.{key}", default)

    def per_layer(self, key: str, default: int) -> tuple[int, ...]:
        """The architecture's `key` for each block, whether the file gives one number or many."""
        value = self.metadata.get(f"{self.architecture}.{key}")
        if isinstance(value, tuple):
            numbers = [int(n) for n in value if isinstance(n, (int, bool))]
            numbers += [default] * (self.block_count - len(numbers))
            return tuple(numbers[: self.block_count])
        return (self.of_arch(key, default),) * self.block_count

    @property
    def architecture(self) -> str:
        return self.text("general.architecture")

    @property
    def name(self) -> str:
        return self.text("general.name")

    @property
    def licence(self) -> str:
        return self.text("general.license")

    @property
    def chat_template(self) -> str:
        return self.text("tokenizer.chat_template")

    @property
    def context_length(self) -> int:
        return self.of_arch("context_length")

    @property
    def block_count(self) -> int:
        # A header can claim anything; no model has more blocks than this.
        return min(self.of_arch("block_count"), 10_000)

    @property
    def embedding_length(self) -> int:
        return self.of_arch("embedding_length")

    @property
    def feed_forward_length(self) -> int:
        return self.of_arch("feed_forward_length")

    @property
    def head_count(self) -> int:
        return self.of_arch("attention.head_count")

    @property
    def vocabulary_size(self) -> int:
        tokens = self.metadata.get("tokenizer.ggml.tokens")
        if isinstance(tokens, Skipped):
            return tokens.count
        return len(tokens) if isinstance(tokens, tuple) else self.of_arch("vocab_size")

    @property
    def sliding_window(self) -> int:
        return self.of_arch("attention.sliding_window")

    @property
    def is_moe(self) -> bool:
        return self.of_arch("expert_count") > 0

    @property
    def writes(self) -> bool:
        """Whether it generates text, and is not an encoder alone."""
        causal = self.metadata.get(f"{self.architecture}.attention.causal")
        return causal is not False and self.architecture != "t5encoder"

    @property
    def embeds(self) -> bool:
        """Whether the file says how vectors are made of texts: a model made for that."""
        return self.of_arch("pooling_type") in (1, 2, 3)

    @property
    def is_mmproj(self) -> bool:
        """An image or sound projector, which goes with a model and is none itself."""
        name = PurePath(self.label).name.lower()
        kinds = (self.architecture, self.text("general.type"))
        return "mmproj" in name or "clip" in kinds or "mmproj" in kinds

    @property
    def split_no(self) -> int:
        return self.number("split.no")

    @property
    def split_count(self) -> int:
        return max(1, self.number("split.count", 1))

    @property
    def parameter_count(self) -> int:
        return sum(_product(tensor.shape) for tensor in self.tensors)

    @property
    def quantization(self) -> str:
        """The file's own word for it, else the type that most of its weights have."""
        kind = self.metadata.get("general.file_type")
        if isinstance(kind, int) and (name := _file_type(kind)):
            return name
        weight: Counter[str] = Counter()
        for tensor in self.tensors:
            if len(tensor.shape) > 1:
                weight[tensor.type] += tensor.num_bytes
        return weight.most_common(1)[0][0] if weight else ""

    @property
    def head_sizes(self) -> tuple[int, int, int, int]:
        """Numbers in one head's key and value, and in those of windowed blocks."""
        head = self.embedding_length // self.head_count if self.head_count else 0
        key = self.of_arch("attention.key_length", head)
        value = self.of_arch("attention.value_length", head)
        key_windowed = self.of_arch("attention.key_length_swa", key)
        return key, value, key_windowed, self.of_arch("attention.value_length_swa", value)

    def layers(self) -> Iterator[Layer]:
        """The cache of each block; recurrent blocks have no elements."""
        heads = self.per_layer("attention.head_count_kv", self.head_count)
        key, value, key_windowed, value_windowed = self.head_sizes
        attends = self._attends()
        for index, windowed in enumerate(self._windowed()):
            width = key_windowed + value_windowed if windowed else key + value
            yield Layer(heads[index] * width if attends(index) else 0, windowed)

    @property
    def kv_bytes_per_token(self) -> int:
        """Of every block, at 16 bits an element."""
        return 2 * sum(layer.elements_per_token for layer in self.layers())

    @property
    def recurrent_bytes_per_sequence(self) -> int:
        """State of blocks that do not attend (Mamba, RWKV, short convolution), at 32 bits."""
        attends = self._attends()
        blocks = sum(not attends(index) for index in range(self.block_count))
        if self.of_arch("wkv.head_size"):
            width = self.of_arch("token_shift_count", 2) + self.of_arch("wkv.head_size")
            return 4 * self.block_count * self.embedding_length * width
        if reach := self.of_arch("shortconv.l_cache"):
            return 4 * blocks * self.embedding_length * max(0, reach - 1)
        inner, state = self.of_arch("ssm.inner_size"), self.of_arch("ssm.state_size")
        groups, kernel = self.of_arch("ssm.group_count"), self.of_arch("ssm.conv_kernel")
        width = max(0, kernel - 1) * (inner + 2 * groups * state) + inner * state
        return 4 * (blocks or self.block_count) * width

    def _attends(self) -> "_Attends":
        return _Attends(
            self.per_layer("attention.head_count_kv", self.head_count),
            self.of_arch("full_attention_interval"),
            self.head_count > 0 and not self.of_arch("wkv.head_size"),
        )

    def _windowed(self) -> tuple[bool, ...]:
        if not self.sliding_window:
            return (False,) * self.block_count
        pattern = self.metadata.get(f"{self.architecture}.attention.sliding_window_pattern")
        if isinstance(pattern, tuple):
            flags = self.per_layer("attention.sliding_window_pattern", 0)
            return tuple(flag != 0 for flag in flags)
        period = self.of_arch("attention.sliding_window_pattern")
        period = period or _FULL_EVERY.get(self.architecture, 1)
        return tuple(index % period != period - 1 for index in range(self.block_count))


@dataclass(frozen=True, slots=True)
class _Attends:
    """Whether a block has a key-value cache (a hybrid's recurrent blocks have none)."""

    heads: tuple[int, ...]
    interval: int
    any: bool

    def __call__(self, index: int) -> bool:
        if not self.any or not self.heads[index]:
            return False
        return not self.interval or index % self.interval == self.interval - 1


def _product(shape: tuple[int, ...]) -> int:
    total = 1
    for extent in shape:
        total *= extent
    return total


def _file_type(kind: int) -> str:
    from gguf.constants import LlamaFileType

    try:
        name = LlamaFileType(kind).name
    except ValueError:
        return ""
    name = name.removeprefix("MOSTLY_").removeprefix("ALL_").removesuffix("_MOE")
    return "" if name == "GUESSED" else name
