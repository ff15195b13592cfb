"""Engines. Each is one module here and one line in ``BACKENDS``, imported on first use."""

from __future__ import annotations

BACKENDS: dict[str, str] = {
    "llama_cpp": "harness.backends.llama_cpp.engine:LlamaCppBackend",
    "fake": "harness.backends.fake:FakeBackend",
}
