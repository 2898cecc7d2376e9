"""What a loaded model takes, from the library's own lines about its buffers: it has no call for it.

load_tensors:      CUDA0 model buffer size =  4403.49 MiB
llama_kv_cache:    CUDA0 KV buffer size =   512.00 MiB
"""

import re
from collections import Counter
from collections.abc import Sequence

_LINE = re.compile(r"(\S+)\s+(model|KV|RS|compute|output) buffer size =\s+([\d.]+) MiB")
_KINDS = {
    "model": "weights",
    "KV": "kv",
    "RS": "state",
    "compute": "compute",
    "output": "outputs",
}


def memory_of(lines: Sequence[str], devices: Sequence[str]) -> dict[str, int]:
    """Bytes by kind, and of all kinds on each of the named devices."""
    found: Counter[str] = Counter()
    for line in lines:
        if (match := _LINE.search(line)) is None:
            continue
        size = int(float(match[3]) * (1 << 20))
        found[_KINDS[match[2]]] += size
        # CUDA0 and MTL0_Mapped are on the device; CUDA_Host is the host's.
        if (device := match[1].partition("_")[0]) in devices:
            found[device] += size
    return dict(found)
