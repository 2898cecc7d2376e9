"""`runner bench` as a process: interrupted, and with a server of its own on real weights."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from app.cli.main import main
from tests.app.oddserver import OddServer, plain

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.usefixtures("own_home")


def start(home: Path, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, str(ROOT / "runner.py"), "bench", *arguments],
        env={"PATH": "", "HOME": str(home), "RUNNER_HOME": str(home), "RUNNER_PORT": "9"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # a shell starts background jobs with SIGINT ignored, and children inherit it
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def test_an_interrupt_ends_it_cleanly(tmp_path: Path) -> None:
    asked, over = threading.Event(), threading.Event()

    def endless(body: dict[str, Any]) -> Iterable[bytes]:
        if "Say hello." in json.dumps(body):
            return plain(body)
        asked.set()
        over.wait(20)
        return plain(body)

    with OddServer(endless) as server:
        with start(tmp_path, "--base-url", server.url, "--json") as process:
            assert asked.wait(20)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=20)
        over.set()
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in err


def test_a_server_is_started_for_it_and_ends_with_it(tmp_path: Path, smollm2_path: Path) -> None:
    assert smollm2_path.exists()
    options = ["--workload", "streams", "--streams", "2", "--rounds", "1", "--max-tokens", "4"]
    with start(tmp_path, "smollm2:135m", "--json", *options) as process:
        out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    done = json.loads(out)
    found = done["workloads"][0]["servers"]["ours"]["median"]
    assert (found["requests"], found["failed"], found["output_tokens"]) == (2, 0, 8)
    assert found["prompt_tokens"] > 50
    assert found["cached_share"] < 0.25  # a cold round: what the template puts first, no more
    assert done["servers"]["ours"]["weight_bytes"] == smollm2_path.stat().st_size
    assert done["host_memory"]["threads"] >= 1
    url = done["servers"]["ours"]["base_url"]
    assert main(["ps", "--base-url", url]) == 1  # nobody is there any more
