"""`runner launch`: a coding agent on a model of this machine."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

if TYPE_CHECKING:
    from app.launch.base import Recipe
    from app.launch.finding import Found
    from app.settings import Settings

NOT_INSTALLED = 127
"""What a shell says of a command that it cannot find."""
_REST = "app.cli.launch.arguments"


class LaunchCommand(TyperCommand):
    """Keeps what follows `--` apart: it is the agent's, and no model's name.

    The contexts are Click's, or those of the copy that newer versions of typer bring along."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take the agent's arguments away before the others are read."""
        ours = args[: args.index("--")] if "--" in args else args
        ctx.meta[_REST] = args[len(ours) + 1 :]
        return super().parse_args(ctx, ours)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """What the usage line shows."""
        return [*super().collect_usage_pieces(ctx), "[-- ARGUMENTS OF THE AGENT...]"]


def launch(
    context: typer.Context,
    agent: Annotated[
        str,
        typer.Argument(
            help="codex, claude, opencode, qwen, aider, cline, goose, pi or copilot.",
        ),
    ],
    model: Annotated[
        str | None, typer.Argument(help="A model's name; the loaded or only one without it.")
    ] = None,
    show: Annotated[
        bool, typer.Option("--print", help="Show the settings as shell commands; run nothing.")
    ] = False,
    base_url: Annotated[str | None, typer.Option(help="Use this server.")] = None,
    api_key: Annotated[str | None, typer.Option(help="Key of the server.")] = None,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Also where the model's context is too small.")
    ] = False,
) -> None:
    """Run a coding agent on a model here; its own settings stay as they are."""
    from app.launch.recipes import recipe
    from app.settings import load_settings

    chosen = recipe(agent)
    settings = load_settings({"api_key": api_key})
    arguments: list[str] = context.meta[_REST]
    if show:
        _show(chosen, settings, base_url, model, arguments)
        return
    raise typer.Exit(_launch(chosen, settings, base_url, model, arguments, anyway=anyway))


def _launch(
    chosen: "Recipe",
    settings: "Settings",
    base_url: str | None,
    model: str | None,
    arguments: list[str],
    *,
    anyway: bool,
) -> int:
    from app.cli.errors import report
    from app.launch.base import Target
    from app.launch.context import check_context
    from app.launch.finding import loaded, serving
    from app.launch.running import executable_of, run_agent
    from models.errors import AgentMissing

    def check(found: "Found") -> None:
        if not anyway:
            check_context(chosen, found)

    try:
        executable_of(chosen)  # before a model is loaded for nothing
        with serving(settings, base_url, model, _note) as server:
            found = loaded(server, model, check, _note)
            target = Target(found.url, found.model, found.context, folder="")
            return run_agent(chosen, target, settings.api_key, arguments)
    except AgentMissing as error:
        report(error.message)
        return NOT_INSTALLED


def _show(
    chosen: "Recipe",
    settings: "Settings",
    base_url: str | None,
    model: str | None,
    arguments: list[str],
) -> None:
    import os

    from app.launch.base import Target
    from app.launch.context import check_context
    from app.launch.finding import shown
    from app.launch.running import NO_KEY, without_proxy
    from app.launch.shell import FOLDER, script
    from models.errors import ContextTooSmall

    found = shown(settings, base_url, model)
    try:
        check_context(chosen, found)
    except ContextTooSmall as error:
        _note(error.message)
    setup = chosen.prepare(Target(found.url, found.model, found.context, FOLDER))
    proxies = without_proxy(os.environ, found.url)
    print(script(chosen, setup, arguments, NO_KEY, proxies), end="")


def _note(text: str) -> None:
    """What takes long, or may go wrong; no part of the answer."""
    print(f"launch: {text}", file=sys.stderr, flush=True)
