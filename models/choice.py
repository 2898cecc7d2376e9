"""Which files of a repository are the model: pure rules over names and sizes."""

import re
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from models.errors import FilesMissing, ModelNotFound
from models.fit import human_bytes

PREFERRED = "Q4_K_M"
# Best stand-ins for it first: near in size and quality, then better, then worse.
_ORDER = (
    *("Q4_K_M", "Q4_K_S", "UD-Q4_K_XL", "Q4_K_L", "Q5_K_M", "Q5_K_S", "Q4_1", "Q4_0", "IQ4_NL"),
    *("IQ4_XS", "MXFP4", "NVFP4", "Q5_1", "Q5_0", "UD-Q5_K_XL", "Q5_K_L", "Q6_K", "UD-Q6_K_XL"),
    *("Q6_K_L", "Q8_0", "UD-Q8_K_XL", "Q3_K_L", "Q3_K_XL", "UD-Q3_K_XL", "Q3_K_M", "IQ3_M"),
    *("Q3_K_S", "IQ3_S", "IQ3_XS", "IQ3_XXS", "UD-Q2_K_XL", "Q2_K", "IQ2_M", "BF16", "F16", "F32"),
)
_RANK = {quant: rank for rank, quant in enumerate(_ORDER)}
# Never chosen for their small size: too little is left of the model.
_TOO_SMALL = re.compile(r"(?:UD-)?(?:I?Q1|IQ2_XX?S|IQ2_S|TQ)")
_QUANT = re.compile(
    r"(?<![A-Z0-9])((?:UD-)?I?Q\d(?:_[A-Z0-9]+)*|MXFP4|NVFP4|TQ\d_\d|BF16|FP?16|FP?32)(?![A-Z0-9])"
)
_SHARD = re.compile(r"-(\d{5})-of-(\d{5})(?=\.gguf$)", re.IGNORECASE)
_BESIDE = re.compile(r"mmproj|imatrix|(?:^|[-_.])draft(?:[-_.]|$)", re.IGNORECASE)
_ROOM = 1.1  # weights, and a little context, must fit


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file on the hub. `sha256` is that of large files; small ones have git's `blob_id` only."""

    path: str
    size: int
    sha256: str = ""
    blob_id: str = ""

    @property
    def key(self) -> str:
        """The name of its bytes in the cache."""
        return self.sha256 or self.blob_id


@dataclass(frozen=True, slots=True)
class Variant:
    """One quantization: all its files, in order."""

    quantization: str
    files: tuple[HubFile, ...]
    missing: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True)
class Choice:
    """A variant, and why it was taken."""

    variant: Variant
    why: str


@dataclass(slots=True)
class _Shards:
    count: int
    files: dict[int, HubFile] = field(default_factory=dict[int, HubFile])


def quantization_of(path: str) -> str:
    """The quantization a file's name (or its folder's) tells, or an empty text."""
    found: list[str] = _QUANT.findall(path.upper().removesuffix(".GGUF"))
    quant = found[-1] if found else ""
    return {"FP16": "F16", "FP32": "F32"}.get(quant, quant)


def is_model_file(path: str) -> bool:
    """Whether a file's name is that of a model's weights: not a projector, importance matrix,
    draft or vocabulary."""
    name = PurePosixPath(path).name
    return (
        name.lower().endswith(".gguf")
        and not _BESIDE.search(name)
        and not name.startswith("ggml-vocab")
    )


def split_of(path: str) -> tuple[str, int, int]:
    """(name without the shard's number, number from 1, count); 1 of 1 for a whole file."""
    match = _SHARD.search(path)
    if not match:
        return path, 1, 1
    return path[: match.start()] + path[match.end() :], int(match[1]), int(match[2])


def variants(files: list[HubFile]) -> list[Variant]:
    """Every complete or incomplete model among `files`, in the order of their names."""
    groups: dict[tuple[str, int], _Shards] = {}
    for file in sorted(files, key=lambda file: (file.path.count("/"), file.path)):
        if is_model_file(file.path):
            stem, number, count = split_of(file.path)
            groups.setdefault((stem, count), _Shards(count)).files[number] = file
    found: list[Variant] = []
    for (stem, count), shards in groups.items():
        numbers = range(1, count + 1)
        missing = tuple(
            f"{stem.removesuffix('.gguf')}-{number:05d}-of-{count:05d}.gguf"
            for number in numbers[:1000]
            if number not in shards.files
        )
        ordered = tuple(shards.files[number] for number in sorted(shards.files))
        found.append(Variant(quantization_of(stem), ordered, missing))
    return found


def choose(
    repo: str, files: list[HubFile], wanted: str = "", file: str = "", budget_bytes: int = 0
) -> Choice:
    """The variant to fetch. `wanted` is the quantization asked for, `file` a file asked for by its
    path; a `budget_bytes` of memory may lead to a smaller one.

    Raises ModelNotFound, FilesMissing."""
    found = variants(files)
    if file:
        found = [v for v in found if any(f.path == file for f in v.files)]
        if not found:
            raise ModelNotFound(f"{repo} has no model file {file}.")
    if not found:
        raise ModelNotFound(f"{repo} holds no GGUF model, only files that go with one.")
    if wanted:
        return Choice(_complete(repo, _asked(repo, found, wanted)), "asked for")
    if file:
        return Choice(_complete(repo, found[0]), "the file asked for")
    return _preferred(repo, found, budget_bytes)


def _asked(repo: str, found: list[Variant], wanted: str) -> Variant:
    names = (wanted.upper(), f"UD-{wanted.upper()}")
    for name in names:
        for variant in found:
            if variant.quantization == name:
                return variant
    there = ", ".join(sorted({v.quantization or "an unnamed one" for v in found}))
    raise ModelNotFound(f"{repo} has no quantization {wanted}; it has {there}.")


def _preferred(repo: str, found: list[Variant], budget_bytes: int) -> Choice:
    ranked = sorted(found, key=lambda v: quality_rank(v.quantization))
    whole = [v for v in ranked if not v.missing]
    if not whole:
        _complete(repo, ranked[0])
    best = whole[0]
    if budget_bytes and best.size * _ROOM > budget_bytes:
        smaller = [
            v
            for v in whole
            if v.size * _ROOM <= budget_bytes and not _TOO_SMALL.match(v.quantization)
        ]
        if smaller:
            taken = max(smaller, key=lambda v: v.size)
            return Choice(
                taken,
                f"{best.quantization} with {human_bytes(best.size)} does not fit into "
                f"{human_bytes(budget_bytes)} of free memory",
            )
    return Choice(best, _why(best, found))


def _why(best: Variant, found: list[Variant]) -> str:
    if len(found) == 1:
        return "the only quantization there"
    if best.quantization == PREFERRED:
        return "the usual balance of size and quality"
    broken = next((v for v in found if v.quantization == PREFERRED), None)
    if broken is not None:
        return f"{PREFERRED} is not complete there, and this comes nearest"
    return f"there is no {PREFERRED}, and this comes nearest"


def _complete(repo: str, variant: Variant) -> Variant:
    if variant.missing:
        raise FilesMissing(
            f"{repo} is not complete on the hub: {', '.join(variant.missing[:5])} "
            f"{'is' if len(variant.missing) == 1 else 'are'} missing."
        )
    return variant


def quality_rank(quantization: str) -> int:
    """Where a quantization stands among those one may prefer; lower is better."""
    return _RANK.get(quantization.upper(), len(_RANK))
