"""Whole sweeps without an engine: a model of 32 weights, a quantiser that copies, the fake backend in its workers."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.run import sweep as sweeping
from harness.run.prepare import Prepared, SweepOptions, prepare
from harness.run.sentinel import Sentinel


def tiny_gguf(path: Path, data: bytes = b"\0" * 64) -> Path:
    """A GGUF that says it is F16; ``data`` are its 32 weights."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    out = b"GGUF" + struct.pack("<IQQ", 3, 1, 2)
    out += text("general.architecture") + struct.pack("<I", 8) + text("llama")
    out += text("general.file_type") + struct.pack("<II", 4, 1)
    out += text("token_embd.weight") + struct.pack("<IQQ", 2, 32, 1) + struct.pack("<IQ", 1, 0)
    path.write_bytes(out + b"\0" * (-len(out) % 32) + data)
    return path


def steady(self: Sentinel, name: str) -> Mapping[str, Any]:
    """A machine that never changes its speed; the fake engine's microseconds would show nothing but noise."""
    return {"t_ns": 0, "bandwidth": 1e9, "gap_s": 0.01, "by": name}


class Project:
    """A folder with a model, from which runs are prepared and swept."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.model = tiny_gguf(folder / "model.gguf")

    def options(self, settings: str = "", rest: str = "", **options: Any) -> SweepOptions:
        path = self.folder / "variants.yaml"
        path.write_text(
            "version: 1\nmodel: model.gguf\nreference: f16\n"
            f"settings: {{backend: fake, threads: 1, ctx: 4096{settings}}}\n{rest}\n",
            encoding="utf-8",
        )
        return SweepOptions(path, reports_dir=self.folder / "reports", **options)

    def prepare(self, settings: str = "", rest: str = "", **options: Any) -> tuple[SweepOptions, Prepared]:
        made = self.options(settings, rest, **options)
        return made, prepare(made, lambda what: None)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    def quantise(source: Path, target: Path, type_name: str, threads: int) -> None:
        Path(target).write_bytes(Path(source).read_bytes() + type_name.encode())

    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("harness.backends.llama_cpp.quantize.quantise", quantise)
    monkeypatch.setattr("harness.backends.llama_cpp.library.engine_version", lambda: "1")
    probe: Callable[..., Any] = lambda **_: SimpleNamespace(as_dict=lambda: {"best": 1e9, "median": 1e9, "n": 7})  # noqa: E731
    monkeypatch.setattr(sweeping, "bandwidth", probe)
    monkeypatch.setattr(Sentinel, "read", steady)
    return Project(tmp_path)
