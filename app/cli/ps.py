"""`runner ps`: what a running server has loaded."""

from typing import Annotated, Any, cast

import typer

_HEADINGS = ("NAME", "STATE", "CONTEXT", "MEMORY", "ON", "RUNNING", "WAITING", "UNLOADS IN")


def ps(
    base_url: Annotated[str | None, typer.Option(help="Address of the server.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the loaded models of a running server."""
    from app.address import local_url
    from app.client import LocalServer
    from app.settings import load_settings

    settings = load_settings()
    server = LocalServer(base_url or local_url(settings.host, settings.port), settings.api_key)
    status = server.status()
    if as_json:
        import json

        print(json.dumps(status, indent=2))
        return
    models = cast(list[dict[str, Any]], status.get("models", []))
    if not models:
        print(f"A server runs at {server.base_url}; no model is loaded.")
        return
    for line in table([_HEADINGS, *(_row(model) for model in models)]):
        print(line)


def _row(model: dict[str, Any]) -> tuple[str, ...]:
    expires = model.get("expires_in_s")
    return (
        str(model.get("id")),
        str(model.get("state")),
        _context(model.get("context"), model.get("trained_context")),
        size_text(model.get("memory_bytes") or 0),
        str(model.get("placement") or "-"),
        str(model.get("running", 0)),
        str(model.get("waiting", 0)),
        "-" if expires is None else time_text(expires),
    )


def _context(context: int | None, trained: int | None) -> str:
    """What a request may use, beside what the model could: where they differ, somebody asks why."""
    if context is None:
        return "-"
    return f"{context} of {trained}" if trained and context < trained else str(context)


def table(rows: list[tuple[str, ...]]) -> list[str]:
    """Columns as wide as they need to be."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def size_text(size: float) -> str:
    """Bytes in the largest unit that fits."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def time_text(seconds: float) -> str:
    """Seconds as minutes or hours where that reads better."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.0f} h"
