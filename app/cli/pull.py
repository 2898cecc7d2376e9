"""`runner pull`: say what will be fetched, then fetch it."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from pathlib import Path

    from models.download import Progress
    from models.hub import PullPlan
    from models.names import ModelName

_PLAIN_STEP = 0.1  # without a terminal, one line a tenth


def pull(
    name: Annotated[
        str, typer.Argument(help="qwen3:8b, org/repo, org/repo:Q4_K_M or an address on hf.co.")
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask anything.")] = False,
) -> None:
    """Fetch a model from Hugging Face. A broken download goes on where it stopped."""
    try:
        _pull(name, yes)
    except KeyboardInterrupt:
        typer.echo("Stopped. What has come is kept; the same command goes on from there.", err=True)
        raise typer.Exit(130) from None


def _pull(text: str, yes: bool) -> None:
    from app.settings import load_settings
    from models import starter
    from models.names import NameKind, parse

    name = parse(text)
    if name.kind is NameKind.SHORT and starter.is_starter(name.text):
        _pull_starter(load_settings().models_dir)
        return
    _pull_from_hub(name, yes)


def _pull_starter(models_dir: "Path") -> None:
    from models import starter
    from models.fit import human_bytes

    typer.echo(f"{starter.NAME}: {human_bytes(starter.SIZE)}, {starter.LICENCE}")
    path = starter.fetch(models_dir)
    typer.echo(f"Ready: runner run {starter.NAME} 'Hello'   ({path})")


def _pull_from_hub(name: "ModelName", yes: bool) -> None:
    from models.address import from_environment
    from models.download import download
    from models.fit import machine_memory
    from models.hub import plan

    address = from_environment()
    pull_plan = plan(name, address, machine_memory())
    _show(pull_plan)
    if "does not fit" in pull_plan.fit and sys.stdin.isatty() and not yes:
        typer.confirm("Fetch it all the same?", abort=True)
    bar = _Bar(pull_plan.total_bytes) if sys.stdout.isatty() else _Lines(pull_plan.total_bytes)
    with bar:
        path = download(pull_plan, address, bar.report)
    typer.echo(f"Ready: runner run {pull_plan.id} 'Hello'   ({path})")


def _show(plan: "PullPlan") -> None:
    from models.fit import human_bytes

    gated = ", gated" if plan.gated else ""
    typer.echo(f"{plan.id}   {plan.page}")
    typer.echo(f"  size      {human_bytes(plan.total_bytes)} in {_count(len(plan.files), 'file')}")
    for file in plan.files[:10]:
        typer.echo(f"            {file.path} ({human_bytes(file.size)})")
    if len(plan.files) > 10:
        typer.echo(f"            and {len(plan.files) - 10} more")
    typer.echo(f"  weights   {plan.quantization}: {plan.why}")
    typer.echo(f"  memory    {plan.fit}")
    typer.echo(f"  licence   {plan.licence or 'not stated'}{gated}")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


class _Bar:
    """A progress bar with speed and time left, for a terminal."""

    def __init__(self, total: int) -> None:
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        self._total = total
        self._done: dict[str, int] = {}
        self._progress = Progress(
            BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()
        )
        self._task: Any = self._progress.add_task("", total=total)

    def __enter__(self) -> "_Bar":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def report(self, progress: "Progress") -> None:
        self._done[progress.file] = progress.done
        self._progress.update(self._task, completed=sum(self._done.values()))


class _Lines:
    """Progress as a few plain lines, for a log."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done: dict[str, int] = {}
        self._next = 0.0

    def __enter__(self) -> "_Lines":
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def report(self, progress: "Progress") -> None:
        from models.fit import human_bytes

        self._done[progress.file] = progress.done
        done = sum(self._done.values())
        if done >= self._next * self._total:
            self._next = done / self._total + _PLAIN_STEP
            share = 100 * done // self._total
            typer.echo(f"{share:3} %  {human_bytes(done)}  {human_bytes(progress.bytes_per_s)}/s")
