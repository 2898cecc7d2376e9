"""Compare `runner serve` with llama-server on one agent-like workload, in alternating rounds.

    python bench/engine/vs_llama_server.py --replayer bench_vs_server.py \\
        --llama-server path/to/llama-server --scenarios fanout,turns

The replayer is any script that takes --ours/--anchor (URLs), --ours-cmd/--anchor-cmd (how to start
them), --ours-model, --scenarios and --rounds, and prints ratios of ours to the anchor's. Both
servers run the same file with as many slots, the same context in all, and the same number of
threads.
"""

import argparse
import os
import shlex
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> int:
    from app.settings import load_settings
    from models.store import Store

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--replayer", type=Path, required=True)
    parser.add_argument("--llama-server", type=Path, required=True)
    parser.add_argument("--model", default="smollm2:135m")
    parser.add_argument("--scenarios", default="fanout,turns,fork")
    parser.add_argument("--rounds", default="2")
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--ctx", type=int, default=4096, help="tokens of one request")
    parser.add_argument(
        "--anchor-flags", default="--kv-unified", help="more flags for llama-server"
    )
    args, more = parser.parse_known_args()

    card = Store(load_settings().models_dir).find(args.model)
    ours, anchor = free_port(), free_port()
    threads = len(os.sched_getaffinity(0))
    ours_cmd = [sys.executable, ROOT / "runner.py", "serve", card.id, "--port", ours]
    ours_cmd += ["--ctx", args.ctx, "--parallel", args.slots]
    anchor_cmd = [args.llama_server, "-m", card.path, "--port", anchor, "-np", args.slots]
    anchor_cmd += ["-c", args.ctx * args.slots, "-t", threads, *shlex.split(args.anchor_flags)]
    command = [
        sys.executable,
        args.replayer,
        "--scenarios",
        args.scenarios,
        "--rounds",
        args.rounds,
    ]
    for name, port, start in (("ours", ours, ours_cmd), ("anchor", anchor, anchor_cmd)):
        command += [f"--{name}", f"http://127.0.0.1:{port}"]
        command += [f"--{name}-cmd", shlex.join(map(str, start))]
    command += ["--ours-model", card.id, *more]
    print(shlex.join(map(str, command)), flush=True)
    return subprocess.run([str(part) for part in command], check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main())
