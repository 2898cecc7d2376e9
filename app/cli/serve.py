"""`runner serve`: the server on a local port."""

from typing import Annotated

import typer

from app.settings import Settings

DraftOption = Annotated[
    str | None,
    typer.Option(
        help="What guesses tokens ahead: auto (the text so far), also a small model of the "
        "same family by its name, or off."
    ),
]
CanonicalOption = Annotated[
    bool | None,
    typer.Option(
        "--canonical-prompts/--as-sent",
        help="Order tools and drop session hashes, so that prompts can be reused; or not.",
    ),
]
DiskOption = Annotated[
    bool | None,
    typer.Option("--disk-cache/--no-disk-cache", help="Keep past prompts' memory on disk, or not."),
]


def serve(
    model: Annotated[str | None, typer.Argument(help="A model to load at once.")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 takes a free one.")] = None,
    ctx: Annotated[int | None, typer.Option(help="Tokens that one request may use.")] = None,
    parallel: Annotated[int | None, typer.Option(help="Requests that run at once.")] = None,
    kv_type: Annotated[
        str | None, typer.Option(help="How the cache is written: f16, q8_0 or q4_0.")
    ] = None,
    cache_ram: Annotated[
        str | None,
        typer.Option(help="Host memory for what no longer fits the cache, such as 4GiB; 0: none."),
    ] = None,
    gpu_layers: Annotated[
        str | None, typer.Option(help="Layers on the GPU, or auto: as many as fit.")
    ] = None,
    api_key: Annotated[str | None, typer.Option(help="Key that clients must send.")] = None,
    local_only: Annotated[
        bool | None, typer.Option("--local-only", help="Never send anything elsewhere.")
    ] = None,
    draft: DraftOption = None,
    no_draft: Annotated[bool, typer.Option("--no-draft", help="The same as --draft off.")] = False,
    canonical_prompts: CanonicalOption = None,
    disk_cache: DiskOption = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.")] = None,
) -> None:
    """Serve the models on this machine to any OpenAI-compatible client."""
    from app.settings import create_folders, load_settings

    settings = load_settings(
        {
            "host": host,
            "port": port,
            "ctx": ctx,
            "parallel": parallel,
            "kv_type": kv_type,
            "cache_ram": cache_ram,
            "gpu_layers": gpu_layers,
            "api_key": api_key,
            "local_only": local_only,
            "draft": "off" if no_draft else draft,
            "canonical_prompts": canonical_prompts,
            "disk_cache": disk_cache,
            "log_level": log_level,
        }
    )
    create_folders(settings)
    raise typer.Exit(_run(settings, model))


def _run(settings: Settings, model: str | None) -> int:
    from app.build import build_host
    from app.server import serve as serve_app

    return serve_app(
        settings,
        lambda settings: build_host(settings, named=model),
        preload=model,
        ready=lambda url: _greet(url, settings, model),
    )


def _greet(url: str, settings: Settings, model: str | None) -> None:
    key = "the key" if settings.api_key else "any"
    print(f"runner serves at {url}")
    print(f"  OpenAI clients: OPENAI_BASE_URL={url}/v1 OPENAI_API_KEY={key}")
    elsewhere = f"--base-url {url} " if settings.origin.get("port", "").startswith("--") else ""
    question = f"{elsewhere}{model or 'MODEL'} 'Why is the sky blue?'"
    print(f"  try it:         runner run {question}", flush=True)
