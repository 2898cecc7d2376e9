"""The command line: which verbs there are. What a verb needs is imported when it runs."""

from typing import Annotated

import typer

from app.cli.bench import bench
from app.cli.cache import cache_app
from app.cli.demo import demo
from app.cli.errors import guarded
from app.cli.launch import LaunchCommand, launch
from app.cli.models import models_app
from app.cli.ps import ps
from app.cli.pull import pull
from app.cli.run import run
from app.cli.serve import serve

app = typer.Typer(
    name="runner",
    help="Run open models on this machine, and serve them to any OpenAI-compatible client.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(serve)
app.command()(run)
app.command()(ps)
app.command()(demo)
app.command()(bench)
app.command()(pull)
app.command(cls=LaunchCommand)(launch)
app.add_typer(models_app, name="models")
app.add_typer(cache_app, name="cache")


def _version(wanted: bool) -> None:
    if wanted:
        from app.version import version

        print(f"runner {version()}")
        raise typer.Exit


@app.callback()
def runner(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Run open models on this machine, and serve them to any OpenAI-compatible client."""


def main(arguments: list[str] | None = None) -> int:
    """Run one command; return its exit code."""
    return guarded(lambda: _run(arguments))


def _run(arguments: list[str] | None) -> int:
    try:
        app(arguments, prog_name="runner")
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    return 0
