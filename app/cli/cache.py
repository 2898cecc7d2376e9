"""`runner cache`: the KV memory of past prompts that is kept on disk."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from runtimes.kvfiles import FolderUse

cache_app = typer.Typer(help="Show or purge what is kept of past prompts.")

_HEADINGS = ("MODEL", "ID", "PIECES", "SIZE", "LAST USED")


@cache_app.callback(invoke_without_command=True)
def cache(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what is kept on disk of past prompts, so that they need not be read again."""
    if context.invoked_subcommand is None:
        status(as_json=as_json)


@cache_app.command()
def status(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what is kept, by model."""
    import time

    from app.build import kv_folder
    from app.cli.ps import size_text, table, time_text
    from app.settings import load_settings
    from runtimes.kvfiles import usage

    settings = load_settings()
    folder = kv_folder(settings)
    uses = usage(folder)
    total = sum(use.size for use in uses)
    if as_json:
        import json

        about = {
            "folder": str(folder),
            "enabled": settings.disk_cache,
            "bytes": total,
            "budget_bytes": settings.disk_cache_bytes,
            "retention_h": settings.cache_retention_h,
            "models": [_as_json(use) for use in uses],
        }
        print(json.dumps(about, indent=2))
        return
    state = "on" if settings.disk_cache else "off (--no-disk-cache)"
    budget = size_text(settings.disk_cache_bytes)
    print(
        f"{folder}: {size_text(total)} of {budget}, kept {settings.cache_retention_h:g} h; {state}"
    )
    now = time.time()
    rows = [
        (_name(use), use.folder.name[:12], str(use.files), size_text(use.size),
         time_text(max(0.0, now - use.last_used)) + " ago" if use.files else "-")
        for use in uses
    ]  # fmt: skip
    for line in table([_HEADINGS, *rows]) if rows else ():
        print(line)


@cache_app.command()
def purge(
    model: Annotated[
        str | None, typer.Argument(help="A model, or its ID from the list; all if not given.")
    ] = None,
) -> None:
    """Remove what is kept on disk. A running server keeps what it holds in memory."""
    from app.build import kv_folder
    from app.cli.ps import size_text
    from app.settings import load_settings
    from models.errors import ModelNotFound, SettingsError
    from runtimes import kvfiles

    folder = kv_folder(load_settings())
    uses = [use for use in kvfiles.usage(folder) if model is None or _is(use, model)]
    if model is not None and not uses:
        raise ModelNotFound(f"Nothing is kept of {model}; `runner cache` lists what is.")
    for use in uses:
        try:
            kvfiles.purge(use.folder)
        except OSError as error:
            raise SettingsError(
                f"{use.folder} cannot be removed: {error.strerror or error}."
            ) from error
    models = "1 model" if len(uses) == 1 else f"{len(uses)} models"
    print(f"removed {size_text(sum(use.size for use in uses))} of {models}")


def _name(use: "FolderUse") -> str:
    return use.about.get("model", "?")


def _is(use: "FolderUse", model: str) -> bool:
    name = _name(use).lower()
    wanted = model.lower()
    return wanted in (name, name.removesuffix(".gguf")) or (
        len(wanted) >= 6 and use.folder.name.startswith(wanted)
    )


def _as_json(use: "FolderUse") -> dict[str, object]:
    return {
        "id": use.folder.name,
        "about": use.about,
        "pieces": use.files,
        "bytes": use.size,
        "last_used": use.last_used or None,
    }
