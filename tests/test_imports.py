"""The command line starts fast: what a verb needs is imported only when it runs."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HEAVY = ["fastapi", "uvicorn", "starlette", "pydantic", "httpx", "huggingface_hub", "numpy"]
HEAVY += ["llama_cpp", "llguidance", "textual", "rich", "jinja2", "gguf", "mlx", "asyncio"]
HEAVY += ["prometheus_client", "psutil"]
CPU_S = 0.3

PROBE = f"""
import resource, sys
import runner
sys.argv = ["runner", *ARGUMENTS]
code = runner.main()
loaded = sorted(set({HEAVY!r}) & set(sys.modules))
used = resource.getrusage(resource.RUSAGE_SELF)
print(code, loaded, used.ru_utime + used.ru_stime, file=sys.stderr)
"""


def probe(*arguments: str) -> tuple[str, list[str], float]:
    code = PROBE.replace("ARGUMENTS", repr(list(arguments)))
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    exit_code, _, rest = done.stderr.strip().splitlines()[-1].partition(" ")
    loaded, _, cpu = rest.rpartition(" ")
    assert exit_code == "0", done.stderr
    return done.stdout, loaded.strip("[]").replace("'", "").split(", "), float(cpu)


def test_help_imports_nothing_heavy_and_is_fast() -> None:
    verbs = (["serve", "--help"], ["run", "--help"], ["bench", "--help"])
    for arguments in (["--help"], *verbs, ["--version"]):
        out, loaded, cpu = probe(*arguments)
        assert out
        # typer itself reads a verb's types with pydantic
        assert set(loaded) <= ({"", "pydantic"} if len(arguments) > 1 else {""}), arguments
        assert cpu <= CPU_S, arguments
