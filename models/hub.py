"""What is on the hub under a name, and what a download of it would be."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from models import catalog
from models.address import HubAddress
from models.card import Format
from models.choice import HubFile, choose, is_model_file
from models.errors import HubError, HubUnreachable, ModelNotFound, RuntimeUnavailable
from models.fit import Memory, sentence
from models.gguf import NeedMoreBytes, peek_header
from models.header import GgufHeader
from models.names import ModelName, NameKind
from models.wire import install_for_listing, open_client, refusal, unreachable

if TYPE_CHECKING:
    import httpx

_LISTING_TIMEOUT_S = 10.0
_PEEK = 1 << 20
_PEEK_MOST = 32 << 20
_MLX_FILES = (".json", ".safetensors", ".jinja", ".txt", ".model", ".tiktoken", ".py")


@dataclass(frozen=True, slots=True)
class PullPlan:
    """A download before it starts: what is fetched, why, and whether it will run here."""

    id: str
    repo: str
    commit: str
    revision: str
    files: tuple[HubFile, ...]
    format: Format
    quantization: str
    why: str
    licence: str
    gated: bool
    page: str
    fit: str

    @property
    def total_bytes(self) -> int:
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True)
class _Listing:
    repo: str
    commit: str
    files: list[HubFile]
    licence: str
    gated: bool


def plan(name: ModelName, address: HubAddress, memory: Memory, mlx: bool | None = None) -> PullPlan:
    """What pulling `name` would fetch. Raises HubError and its kin, each message one line.

    `mlx` says whether MLX models run here (None: look)."""
    repo = catalog.require(name.text).repo if name.kind is NameKind.SHORT else name.repo
    if not repo:
        raise ModelNotFound(f"{name.text} is on this machine; there is nothing to pull.")
    if address.offline:
        raise HubUnreachable(
            f"{repo} cannot be looked up: HF_HUB_OFFLINE (or TRANSFORMERS_OFFLINE) is set."
        )
    listing = _list(repo, name.revision, address)
    if any(is_model_file(file.path) for file in listing.files):
        return _plan_gguf(name, listing, address, memory)
    return _plan_other(name, listing, address, _has_mlx() if mlx is None else mlx)


def _plan_gguf(name: ModelName, listing: _Listing, address: HubAddress, memory: Memory) -> PullPlan:
    choice = choose(listing.repo, listing.files, name.quant, name.file, memory.available)
    variant = choice.variant
    with open_client() as client:
        _confirm(client, listing.repo, listing.commit, variant.files, address)
        header = _peek(client, listing, variant.files[0], address)
    quantization = variant.quantization or header.quantization or "unknown"
    return PullPlan(
        id=f"{listing.repo}:{quantization}",
        repo=listing.repo,
        commit=listing.commit,
        revision=name.revision or "main",
        files=variant.files,
        format=Format.GGUF,
        quantization=quantization,
        why=choice.why,
        licence=listing.licence or header.licence,
        gated=listing.gated,
        page=address.page(listing.repo),
        fit=sentence(header, memory, variant.size),
    )


def _plan_other(name: ModelName, listing: _Listing, address: HubAddress, mlx: bool) -> PullPlan:
    names = {file.path for file in listing.files}
    if "config.json" not in names or not any(n.endswith(".safetensors") for n in names):
        raise ModelNotFound(f"{listing.repo} holds no model that can be run here (no GGUF file).")
    if not mlx:
        other = catalog.gguf_for(listing.repo)
        bare = listing.repo.removesuffix("-GGUF")
        tip = f"pull {other} instead" if other else f"look for a GGUF of it, such as {bare}-GGUF"
        raise RuntimeUnavailable(
            f"{listing.repo} has safetensors files only, which MLX runs, and MLX is not "
            f"installed here: {tip}."
        )
    files = tuple(
        file for file in listing.files if "/" not in file.path and file.path.endswith(_MLX_FILES)
    )
    with open_client() as client:
        _confirm(client, listing.repo, listing.commit, files, address)
    return PullPlan(
        id=listing.repo,
        repo=listing.repo,
        commit=listing.commit,
        revision=name.revision or "main",
        files=files,
        format=Format.MLX,
        quantization="mlx",
        why="all of the repository's weights",
        licence=listing.licence,
        gated=listing.gated,
        page=address.page(listing.repo),
        fit="not estimated for MLX",
    )


def _has_mlx() -> bool:
    return find_spec("mlx") is not None and find_spec("mlx_lm") is not None


def _list(repo: str, revision: str, address: HubAddress) -> _Listing:
    from huggingface_hub import HfApi

    api = HfApi(endpoint=address.endpoint, token=address.token or False)
    with _hub_errors(repo, address):
        info: Any = api.model_info(
            repo, revision=revision or None, files_metadata=True, timeout=_LISTING_TIMEOUT_S
        )
    siblings: list[Any] = info.siblings or []
    files = [_file(sibling) for sibling in siblings]
    card: Any = info.card_data or {}
    tags: list[str] = info.tags or []
    licence = next((t.partition(":")[2] for t in tags if t.startswith("license:")), "")
    return _Listing(
        repo=str(info.id or repo),
        commit=str(info.sha or revision or "main"),
        files=[file for file in files if _is_plain(file.path)],
        licence=str(card.get("license") or licence),
        gated=bool(info.gated),
    )


def _file(sibling: Any) -> HubFile:
    lfs = sibling.lfs
    sha256 = str(getattr(lfs, "sha256", "") or "") if lfs else ""
    size = (getattr(lfs, "size", None) if lfs else None) or sibling.size or 0
    return HubFile(str(sibling.rfilename), int(size), sha256, str(sibling.blob_id or ""))


def _is_plain(path: str) -> bool:
    """Whether a path stays inside its folder, on every platform; a listing is not to be trusted."""
    parts = PurePosixPath(path).parts
    return bool(parts) and not any(
        part in ("..", "/", ".") or "\\" in part or ":" in part or "\0" in part for part in parts
    )


@contextmanager
def _hub_errors(repo: str, address: HubAddress) -> Generator[None]:
    """Turn whatever huggingface_hub raises into one of our errors."""
    from huggingface_hub import close_session
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled

    http = install_for_listing()
    try:
        yield
    except HfHubHTTPError as error:
        response: Any = error.response
        if response is None:
            raise unreachable(error, address.endpoint) from error
        raise refusal(response.status_code, response.headers, repo, address) from error
    except OfflineModeIsEnabled as error:
        raise HubUnreachable(f"{repo} cannot be looked up: HF_HUB_OFFLINE is set.") from error
    except HFValidationError as error:
        raise ModelNotFound(f"{repo} cannot be a repository's name.") from error
    except (http.HTTPError, http.InvalidURL, OSError) as error:
        raise unreachable(error, address.endpoint) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        # huggingface_hub parses what came; an answer of another shape is no hub's.
        raise HubError(
            f"{address.endpoint} does not answer as a hub would ({type(error).__name__})."
        ) from error
    finally:
        close_session()


def _confirm(
    client: "httpx.Client",
    repo: str,
    commit: str,
    files: tuple[HubFile, ...],
    address: HubAddress,
) -> None:
    """Ask for every file before the first byte is fetched: a listing can name files that are gone,
    and a gated repository shows its listing to everyone."""
    import httpx

    for file in files:
        url = address.file_url(repo, commit, file.path)
        try:
            answer = client.head(url, headers=address.headers, follow_redirects=False)
        except (httpx.HTTPError, OSError) as error:
            raise unreachable(error, url) from error
        if answer.status_code >= 400:
            raise refusal(answer.status_code, answer.headers, repo, address, file.path)


def _peek(
    client: "httpx.Client", listing: _Listing, file: HubFile, address: HubAddress
) -> GgufHeader:
    """The header's beginning, by range requests of growing size."""
    size = _PEEK
    while True:
        data = _first_bytes(client, listing, file, address, size)
        whole = len(data) >= file.size or size >= _PEEK_MOST
        try:
            header = peek_header(data, file.size, file.path)
            if whole or header.block_count:
                return header
        except NeedMoreBytes:
            if whole:
                raise HubError(f"The header of {file.path} is larger than any model's.") from None
        size *= 2


def _first_bytes(
    client: "httpx.Client", listing: _Listing, file: HubFile, address: HubAddress, size: int
) -> bytes:
    import httpx

    url = address.file_url(listing.repo, listing.commit, file.path)
    headers = {
        **address.headers,
        "Range": f"bytes=0-{min(size, file.size) - 1}",
        "Accept-Encoding": "identity",
    }
    data = bytearray()
    try:
        with client.stream("GET", url, headers=headers) as answer:
            if answer.status_code >= 400:
                raise refusal(answer.status_code, answer.headers, listing.repo, address, file.path)
            for piece in answer.iter_raw():
                data += piece
                if len(data) >= size:
                    break  # a server without ranges sends the whole file
    except (httpx.HTTPError, OSError) as error:
        if not data:  # what came before it broke may do
            raise unreachable(error, url) from error
    return bytes(data[:size])
