"""`runner models`: what is on this machine, whoever fetched it."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from models.card import ModelCard
    from models.store import Store

models_app = typer.Typer(
    help="List, show, locate and remove the models on this machine.",
    invoke_without_command=True,
    rich_markup_mode=None,
)
_Name = Annotated[
    str, typer.Argument(help="An id from the list, a short name, org/repo or a path.")
]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@models_app.callback()
def models(context: typer.Context, as_json: _Json = False) -> None:
    """List the models on this machine."""
    if context.invoked_subcommand is None:
        _list(as_json)


@models_app.command("list")
def list_models(as_json: _Json = False) -> None:
    """List the models on this machine."""
    _list(as_json)


@models_app.command("ls", hidden=True)
def list_models_short(as_json: _Json = False) -> None:
    """List the models on this machine."""
    _list(as_json)


@models_app.command("show")
def show(name: _Name, as_json: _Json = False) -> None:
    """Show one model: its files, architecture, licence, and the context that fits here."""
    card = _store().find(name)
    facts = {**_fields(card), **_details(card)}
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
        return
    for key, value in facts.items():
        text = "\n".join(value) if key == "files" else str(value)
        for line in text.splitlines():
            typer.echo(f"{key.replace('_', ' '):<15} {line}")
            key = ""


@models_app.command("rm")
def remove(
    name: _Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove a model's files from this machine."""
    import sys

    from models.fit import human_bytes

    store = _store()
    card = store.find(name)
    if sys.stdin.isatty() and not yes:
        typer.confirm(f"Remove {card.id} ({human_bytes(card.size_bytes)})?", abort=True)
    freed = store.remove(card)
    typer.echo(f"Removed {card.id}; {human_bytes(freed)} are free again.")


models_app.command("remove", hidden=True)(remove)


@models_app.command("where")
def where(name: _Name) -> None:
    """Print the path of a model."""
    typer.echo(str(_store().where(name)))


def _store() -> "Store":
    from app.settings import load_settings
    from models.store import Store

    return Store(load_settings().models_dir)


def _list(as_json: bool) -> None:
    store = _store()
    cards, problems = store.list(), store.problems()
    if as_json:
        typer.echo(json.dumps([_fields(card) for card in cards], indent=2))
        return
    if cards:
        _print_table(cards)
    else:
        typer.echo("No model is here yet: `runner pull smollm2:135m` fetches a small one.")
    for _, message in problems:
        typer.echo(f"not usable: {message}", err=True)


def _print_table(cards: "list[ModelCard]") -> None:
    """Columns as wide as their contents: ids are to be copied, so none is ever cut."""
    from models.fit import human_bytes

    rows = [("NAME", "SIZE", "QUANT", "CONTEXT", "ORIGIN")]
    rows += [
        (
            card.id,
            human_bytes(card.size_bytes),
            card.quantization or "-",
            f"{card.context_length:,}" if card.context_length else "-",
            card.origin.value,
        )
        for card in cards
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        typer.echo("  ".join(cells).rstrip())


def _fields(card: "ModelCard") -> dict[str, Any]:
    fields = asdict(card)
    fields["path"] = str(card.path)
    fields["files"] = [str(path) for path in card.files]
    return fields


def _details(card: "ModelCard") -> dict[str, Any]:
    """What only the file itself tells."""
    from app.settings import load_settings
    from models.card import Format
    from models.fit import machine_memory, sentence
    from models.gguf import read_file

    if card.format is not Format.GGUF:
        return {}
    header = read_file(card.path)
    return {
        "name": header.name,
        "licence": header.licence or "not stated",
        "parameters": header.parameter_count,
        "vocabulary": header.vocabulary_size,
        "chat_template": "yes" if header.chat_template else "no",
        "memory": sentence(header, machine_memory(), card.size_bytes, load_settings().kv_type),
    }
