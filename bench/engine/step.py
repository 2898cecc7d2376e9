"""Milliseconds a decode step and a prompt token take, through the executor alone.

[GOMP_SPINCOUNT=N | OMP_WAIT_POLICY=passive] python bench/engine/step.py MODEL.gguf [THREADS]
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from runtimes.base import Row
from runtimes.llamacpp.model import load_writer
from runtimes.messages import LoadSpec

PROMPT, STEPS = 256, 40


def main() -> None:
    threads = int(sys.argv[2]) if len(sys.argv) > 2 else 2
    model = load_writer(LoadSpec("", Path(sys.argv[1]), 2048, 2048, 4, threads), lambda _: None)
    executor = model.executor
    handle = executor.open()
    executor.step([Row(handle, [5] * PROMPT, 0, True)], lambda _: None)
    wall, cpu = time.perf_counter(), time.process_time()
    for done in range(STEPS):
        executor.step([Row(handle, [7], PROMPT + done, True)], lambda _: None)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(f"decode {wall / STEPS * 1e3:.2f} ms a step, {cpu / STEPS * 1e3:.2f} ms of CPU")
    began = time.perf_counter()
    executor.step([Row(executor.open(), [5] * PROMPT, 0, True)], lambda _: None)
    print(f"prefill {(time.perf_counter() - began) / PROMPT * 1e3:.2f} ms a token")
    model.release()


if __name__ == "__main__":
    main()
