"""The models on this machine: listed, found by name, and removed."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from models import catalog
from models.card import Format, ModelCard, Origin
from models.choice import quality_rank
from models.discover import Candidate, Places, gguf_candidates, in_path, usual_places
from models.errors import ModelInvalid, ModelNotFound, RequestInvalid
from models.facts import Facts, FactsBook
from models.mlxfolder import mlx_cards
from models.names import ModelName, NameKind, parse
from models.removal import remove_from_hub, remove_own

_FACTS = ".headers.json"
_NAMED_AT_MOST = 12


class Store:
    """Looks at the disk anew on each call; only headers are remembered."""

    def __init__(
        self,
        models_dir: Path,
        places: Places | None = None,
        has_mlx: Callable[[], bool] = lambda: find_spec("mlx_lm") is not None,
    ) -> None:
        self.models_dir = models_dir
        self._places = places or usual_places()
        self._has_mlx = has_mlx
        self._book = FactsBook(models_dir / _FACTS)

    def list(self) -> "list[ModelCard]":
        """Every model that can be run, by id."""
        return self._scan()[0]

    def problems(self) -> "list[tuple[Path, str]]":
        """Files that look like models and cannot be run, with the reason."""
        return self._scan()[1]

    def find(self, name: str) -> ModelCard:
        """The model meant by an id, a short name, org/repo[:quant] or a path.

        Raises ModelNotFound, and ModelInvalid for a path to a bad file."""
        cards = self.list()
        for card in cards:
            if card.id.lower() == name.strip().lower():
                return card
        try:
            meant = parse(name)
        except RequestInvalid as error:
            raise ModelNotFound(error.message) from error
        if meant.path is not None:
            return self._from_path(meant.path)
        matching = [card for card in cards if _matches(card, meant)]
        if not matching:
            raise ModelNotFound(_not_here(name, meant, cards))
        return min(matching, key=lambda card: quality_rank(card.quantization))

    def where(self, name: str) -> Path:
        """The path that a runtime opens for `name`."""
        return self.find(name).path

    def remove(self, card: ModelCard) -> int:
        """Delete a model's files; return the bytes that became free. Raises RequestInvalid where
        the files belong to another program."""
        if card.origin is Origin.HUB:
            return remove_from_hub(self._places.hub, card)
        if card.origin is Origin.RUNNER:
            return remove_own(self.models_dir, card)
        owner = {
            Origin.OLLAMA: f"Ollama: `ollama rm {card.id.removeprefix('ollama/')}` removes it",
            Origin.LM_STUDIO: "LM Studio: remove it there",
            Origin.LLAMA_CPP: "llama.cpp's cache: delete the file there",
            Origin.PATH: "you: delete the file yourself",
        }[card.origin]
        raise RequestInvalid(f"{card.id} belongs to {owner}. ({card.path})", "model")

    def _scan(self) -> "tuple[list[ModelCard], list[tuple[Path, str]]]":
        cards: dict[str, ModelCard] = {}
        problems: dict[Path, str] = {}
        seen: set[Path] = set()
        for candidate in gguf_candidates(self.models_dir, self._places):
            real = candidate.files[0].resolve()
            if real in seen:
                continue
            seen.add(real)
            try:
                card = self._card(candidate)
            except ModelInvalid as error:
                problems[candidate.files[0]] = error.message
                continue
            if card is not None:
                free = card.id if card.id not in cards else f"{card.id}:{card.path.stem}"
                cards.setdefault(free, _renamed(card, free))
        for card in mlx_cards(self._places.hub):
            if self._has_mlx():
                cards.setdefault(card.id, card)
            else:
                problems[card.path] = f"{card.id} is for MLX, which is not installed here"
        self._book.save()
        return sorted(cards.values(), key=lambda card: card.id.lower()), list(problems.items())

    def _card(self, candidate: Candidate) -> ModelCard | None:
        """The card of files that are a whole model; None for files that only go with one."""
        if candidate.problem:
            raise ModelInvalid(candidate.problem)
        facts = [self._book.of(path) for path in candidate.files]
        first = facts[0]
        if first.is_mmproj:
            return None
        _check_whole(candidate, facts)
        stats = [path.stat() for path in candidate.files]
        quantization = candidate.hint or first.quantization
        tag = f":{quantization or candidate.files[0].stem}" if candidate.is_tagged else ""
        return ModelCard(
            id=f"{candidate.name}{tag}",
            path=candidate.files[0],
            files=candidate.files,
            format=Format.GGUF,
            origin=candidate.origin,
            size_bytes=sum(stat.st_size for stat in stats),
            architecture=first.architecture,
            quantization=quantization,
            context_length=first.context_length,
            thinks=first.thinks,
            writes=first.writes,
            embeds=first.embeds,
            modified=max(stat.st_mtime for stat in stats),
        )

    def _from_path(self, path: Path) -> ModelCard:
        cards = [card for c in in_path(path) if (card := self._card(c)) is not None]
        if not cards:
            raise ModelNotFound(f"There is no GGUF model at {path}.")
        return min(cards, key=lambda card: quality_rank(card.quantization))


def _check_whole(candidate: Candidate, facts: list[Facts]) -> None:
    path = candidate.files[0]
    if not facts[0].architecture:
        raise ModelInvalid(f"{path}: the header names no architecture")
    if candidate.missing:
        raise ModelInvalid(f"{path}: incomplete, {', '.join(candidate.missing[:5])} missing")
    if facts[0].split_count != len(candidate.files):
        raise ModelInvalid(
            f"{path}: one of {facts[0].split_count} parts, and {len(candidate.files)} are here"
        )
    if not any(fact.num_tensors for fact in facts):
        raise ModelInvalid(f"{path}: holds no weights")


def _renamed(card: ModelCard, new_id: str) -> ModelCard:
    from dataclasses import replace

    return card if card.id == new_id else replace(card, id=new_id)


def _matches(card: ModelCard, meant: ModelName) -> bool:
    if meant.kind is NameKind.SHORT:
        entry = catalog.find(meant.text)
        wanted = {meant.text, f"ollama/{meant.text}", f"ollama/{meant.text}:latest"}
        if entry is not None:
            wanted |= {entry.name, f"ollama/{entry.name}"}
            if _repo(card).lower() == entry.repo.lower():
                return True
        return card.id.lower() in wanted
    quant = meant.quant or ""
    return _repo(card).lower() == meant.repo.lower() and (
        not quant or card.quantization.upper() in (quant, f"UD-{quant}")
    )


def _repo(card: ModelCard) -> str:
    """The repository that a card's files came from, as far as its id tells."""
    if card.origin not in (Origin.HUB, Origin.LM_STUDIO):
        return ""
    return card.id.removeprefix("lm-studio/").partition(":")[0]


def _not_here(name: str, meant: ModelName, cards: list[ModelCard]) -> str:
    here = ", ".join(card.id for card in cards[:_NAMED_AT_MOST])
    if len(cards) > _NAMED_AT_MOST:
        here += f" and {len(cards) - _NAMED_AT_MOST} more"
    listed = f"Here are: {here}." if here else "No model is here yet."
    unknown = meant.kind is NameKind.SHORT and catalog.find(meant.text) is None
    close = catalog.suggest(meant.text) if unknown else []
    if unknown and not close:
        return f"There is no model {name}. {listed}"
    pull = " or ".join(f"`runner pull {other}`" for other in close or [name])
    return f"There is no model {name} here; {pull} fetches it. {listed}"
