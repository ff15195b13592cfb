"""Which bandwidths a run measures, and that a run that goes on measures none again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.run import sweep as sweeping
from harness.store import Store

from .conftest import Project

VARIANTS = "matrix: {weights: [f16]}\nvariants:\n  - {name: more, weights: f16, threads: 3}\nsuites: {speed: {}}"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    found: list[Any] = []

    def probe(threads: int, cache_bytes: int | None, size: int | None = None) -> Any:
        found.append((threads, cache_bytes) if size is None else (threads, size))
        rate = threads * (1e9 if size is None else 3e9)
        plain = {"best": rate, "threads": threads, "array_bytes": 64, "n": 1, "rates": [rate]}
        return SimpleNamespace(as_dict=lambda: plain)

    def gpu() -> dict[str, Any]:
        found.append("gpu")
        return {"best": None, "why": "no CUDA driver here"}

    monkeypatch.setattr(sweeping, "bandwidth", probe)
    monkeypatch.setattr(sweeping.cuda, "bandwidth", gpu)
    monkeypatch.setattr(sweeping, "effective_cpus", lambda: 2)
    return found


def session(project: Project, folder: Path, **spec: Any) -> Any:
    _, prepared = project.prepare(rest=VARIANTS)
    specs = {name: replace(one, **spec) for name, one in prepared.specs.items()}
    prepared = replace(prepared, specs=specs, machine={**prepared.machine, "caches": {"L2": 10, "L3": 99}})
    folder.mkdir(exist_ok=True)
    return SimpleNamespace(
        store=Store.create(folder / "run.sqlite"), prepared=prepared, meter=SimpleNamespace(now=lambda what: None)
    )


def test_each_count_of_threads_is_measured_once(project: Project, asked: list[Any], tmp_path: Path) -> None:
    made = session(project, tmp_path / "run")
    sweeping._machine(made)
    assert asked == [(1, 99), (2, 99), (3, 99)]  # of f16, of every CPU, of "more"; no GPU is used
    assert (
        made.store.get("bandwidth") == made.store.get("bandwidths")["2"] and made.store.get("bandwidth")["best"] == 2e9
    )
    assert sorted(made.store.get("bandwidths")) == ["1", "2", "3"]
    sweeping._machine(made)
    assert len(asked) == 3


def test_at_the_end_it_is_measured_again_and_all_passes_count(
    project: Project, asked: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = session(project, tmp_path / "run")
    sweeping._machine(made)
    asked.clear()
    monkeypatch.setattr(sweeping, "PASSES", 1)
    monkeypatch.setattr(sweeping, "available_bytes", lambda: 4 * 64 - 1)
    sweeping._machine_again(made)
    assert not asked  # too little memory
    monkeypatch.setattr(sweeping, "available_bytes", lambda: 4 * 64)
    sweeping._machine_again(made)
    assert asked == [(1, 64), (2, 64), (3, 64)]  # arrays of the same size
    found = made.store.get("bandwidth")
    assert (found["best"], found["median"], found["n"]) == (6e9, 4e9, 2)
    sweeping._machine_again(made)
    assert len(asked) == 3


def test_a_gpu_is_measured_where_a_variant_uses_one(project: Project, asked: list[Any], tmp_path: Path) -> None:
    made = session(project, tmp_path / "run", gpu_layers=99)
    sweeping._machine(made)
    sweeping._machine(made)
    assert asked.count("gpu") == 1
    assert made.store.get("bandwidths")["gpu"]["why"] == "no CUDA driver here"
