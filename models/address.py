"""Where the hub is, who asks, and where its files are kept, by huggingface_hub's variables."""

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote


@dataclass(frozen=True, slots=True)
class HubAddress:
    """A hub and the local cache of its files."""

    endpoint: str
    cache_dir: Path
    token: str | None = field(default=None, repr=False)
    offline: bool = False

    @property
    def headers(self) -> dict[str, str]:
        """Who asks. A redirect to another host must not carry it along; httpx sees to that."""
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    def page(self, repo: str) -> str:
        """The repository's page, for a person."""
        return f"{self.endpoint}/{repo}"

    def file_url(self, repo: str, commit: str, path: str) -> str:
        """One file of one commit."""
        return f"{self.endpoint}/{repo}/resolve/{quote(commit, safe='')}/{quote(path)}"


def from_environment() -> HubAddress:
    """HF_ENDPOINT, HF_HOME, HF_HUB_CACHE, HF_TOKEN, HF_HUB_OFFLINE and the token that
    `hf auth login` stored."""
    from huggingface_hub import constants, get_token

    return HubAddress(
        endpoint=constants.ENDPOINT.rstrip("/"),
        cache_dir=Path(constants.HF_HUB_CACHE).expanduser(),
        token=get_token() or None,
        offline=bool(constants.HF_HUB_OFFLINE),
    )
