"""A variant that cannot fit is refused with its figures before anything is loaded."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from harness.backends.base import EngineSpec, Speculate
from harness.errors import InputError
from harness.run import fit
from harness.run import prepare as preparing
from harness.suite_plans import FidelityPlan, SpeedPlan, SuitePlan

from .conftest import Project

SCORED = SuitePlan("quick", fidelity=FidelityPlan(1000, 64, 4, 32, 0))
TIMED = SuitePlan("quick", speed=SpeedPlan((100,), 10, 1, 0))
# 2 layers x 1 key-value head x (16 + 16) values; a vocabulary of 1000 tokens of 32 values in F16.
SHAPE = {"block_count": 2, "embedding_length": 32, "attention.head_count": 2, "attention.head_count_kv": 1}
WEIGHTS = 1000 * 32 * 2
MB = 10**6


def gguf(path: Path, **changes: Any) -> str:
    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    facts = {"general.architecture": "llama", **{f"llama.{k}": v for k, v in {**SHAPE, **changes}.items()}}
    out = b"GGUF" + struct.pack("<IQQ", 3, 1, len(facts))
    for key, value in facts.items():
        out += text(key)
        out += struct.pack("<I", 8) + text(value) if isinstance(value, str) else struct.pack("<II", 4, value)
    out += text("token_embd.weight") + struct.pack("<IQQIQ", 2, 32, 1000, 1, 0)
    path.write_bytes(out + b"\0" * (-len(out) % 32) + b"\0" * WEIGHTS)
    return str(path)


def spec(path: str, **settings: Any) -> EngineSpec:
    return EngineSpec("llama_cpp", path, "0", "f16", **{"ctx": 10_000, **settings})


def test_the_figures_come_from_the_headers(tmp_path: Path) -> None:
    path = gguf(tmp_path / "m.gguf")
    found = fit.footprint(spec(path), SCORED)
    assert (found.weight_bytes, found.kv_bytes, found.heads, found.n_vocab) == (WEIGHTS, 2 * 32 * 2, 2, 1000)
    assert (found.ctx, found.scoring_cells, found.draft_bytes) == (10_000, 1024 + 512, 0)
    assert fit.footprint(spec(path), TIMED).scoring_cells == 0
    draft = Speculate("draft_model", draft_path=gguf(tmp_path / "d.gguf", block_count=1))
    drafting = fit.footprint(spec(path, speculate=draft, kv="q8_0", flash_attention=True, batch=64), TIMED)
    assert (drafting.draft_bytes, drafting.kv_bytes, drafting.draft_kv_bytes) == (WEIGHTS, 64 * 34 // 32, 32 * 34 // 32)
    assert (drafting.ubatch, drafting.flash_attention) == (64, True)


def test_each_variant_that_does_not_fit_is_named_with_what_it_needs(tmp_path: Path) -> None:
    """At 10,000,000 cells of 128 bytes the cache alone takes 1.28 GB; at 10,000 everything takes 165 MB."""
    path = gguf(tmp_path / "m.gguf")
    specs = {
        "small": spec(path),
        "long": spec(path, ctx=10_000_000, batch=1),
        "long-q8": spec(path, ctx=20_000_000, batch=1, kv="q8_0", flash_attention=True),
    }
    with pytest.raises(InputError) as caught:
        fit.check_memory(specs, SCORED, 1000 * MB)
    lines = str(caught.value).splitlines()
    assert [line.partition(":")[0] for line in lines] == ["long", "long-q8"]
    assert lines[0] == (
        "long: needs about 1.5 GB of memory (model 64 kB, key-value cache 1.28 GB, cache for scoring 131 kB, "
        "buffers 121 MB, process 100 MB); 1 GB are available; "
        "lower settings.ctx, take kv: q8_0, take fewer bits for the weights, or use a machine with more memory"
    )
    assert "take kv" not in lines[1] and lines[1].endswith("or use a machine with more memory")
    fit.check_memory(specs, SCORED, 3000 * MB)


@pytest.mark.parametrize(
    ("settings", "available"), [({"gpu_layers": 1}, MB), ({"backend": "fake"}, MB), ({}, None), ({}, 1000 * MB)]
)
def test_what_cannot_be_judged_is_let_through(tmp_path: Path, settings: dict[str, Any], available: int | None) -> None:
    path = gguf(tmp_path / "m.gguf")
    plain = {**{"backend": "llama_cpp", "model_path": path, "model_digest": "0", "weights": "f16"}, **settings}
    fit.check_memory({"a": EngineSpec(**plain)}, SCORED, available)


def test_a_header_of_nonsense_is_an_error_in_one_line(tmp_path: Path) -> None:
    path = gguf(tmp_path / "m.gguf", **{"attention.key_length": "x"})
    with pytest.raises(InputError, match=r"m.gguf: its header's counts are no numbers"):
        fit.check_memory({"a": spec(path)}, SCORED, MB)


def test_a_sweep_is_refused_before_anything_is_loaded_or_written(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparing, "available_bytes", lambda: MB)
    monkeypatch.setattr(preparing, "_gpu_layers", lambda: 0)
    options = project.options(rest="matrix: {weights: [f16]}")
    options.config_path.write_text(
        options.config_path.read_text(encoding="utf-8").replace("backend: fake", "backend: llama_cpp"), encoding="utf-8"
    )
    with pytest.raises(InputError, match=r"^f16: needs about .* 1 MB are available"):
        preparing.prepare(options, lambda what: None)
    assert not list(project.folder.glob("reports/*"))
