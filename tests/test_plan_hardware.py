"""``harness plan --hardware``: ceilings on paper, from real headers, from estimates, and from parameters alone."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from harness.cli import app
from harness.costs import DEMO
from harness.metrics.roofline import Traffic
from harness.paper import Need, rows

GIB = 1 << 30


def run(*args: str) -> Any:
    return CliRunner().invoke(app, ["plan", *args], catch_exceptions=False)


def answer(*args: str) -> dict[str, Any]:
    done = run(*args, "--json")
    assert done.exit_code == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))


def model(path: Path, heads_kv: int | str = 2) -> None:
    """An F16 model of one layer: 4 heads of 8 values, 2 of them with keys; tied embedding of 64 rows of 32 values."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    def entry(key: str, value: int | str) -> bytes:
        kind = struct.pack("<I", 8) + text(value) if isinstance(value, str) else struct.pack("<II", 4, value)
        return text(key) + kind

    metadata = {
        "general.architecture": "llama", "general.file_type": 1, "llama.block_count": 1,
        "llama.attention.head_count": 4, "llama.attention.head_count_kv": heads_kv, "llama.embedding_length": 32,
    }  # fmt: skip
    tensors = (("token_embd.weight", (32, 64), 4096), ("blk.0.attn_q.weight", (32, 32), 2048))
    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    out += b"".join(entry(key, value) for key, value in metadata.items())
    offset = 0
    for name, dims, size in tensors:
        out += text(name) + struct.pack("<IQQ", 2, *dims) + struct.pack("<IQ", 1, offset)
        offset += size
    path.write_bytes(out + b"\0" * (-len(out) % 32) + b"\0" * offset)


def write(text: str) -> str:
    Path("variants.yaml").write_text(f"version: 1\nreference: f16\n{text}\n", encoding="utf-8")
    return "variants.yaml"


def test_70b_fp16_on_an_h100_prints_24_tokens_a_second() -> None:
    done = run("--hardware", "h100-sxm", "--model-params", "70e9", "--weights", "f16")
    assert "24 tokens/s" in done.stdout and "140.0 GB" in done.stdout
    [on] = answer("--hardware", "h100-sxm", "--model-params", "70B")["variants"][0]["on"]
    assert on["ceiling_tps"] == pytest.approx(3.35e12 / 140e9) and on["fits"] is False


def test_several_devices_add_up_and_the_cache_is_held() -> None:
    found = answer(
        "--hardware", "2xh100-sxm,rtx4090", "--model-params", "70b", "--weights", "f16,q4_0", "--ctx", "1000"
    )
    two, one = found["hardware"]
    assert two["bandwidth_bytes_per_s"] == 6.7e12 and two["memory_bytes"] == 160 * GIB and "ideal" in two["basis"]
    assert one["url"].startswith("https://images.nvidia.com/") and one["method"] == "stated by the vendor"
    f16, q4 = found["variants"]
    assert q4["bytes_per_token"] == 70e9 * 4.5 / 8
    kv = f16["needs_bytes"] - 140e9
    assert kv == pytest.approx(1000 * DEMO.kv_bytes_per_token * (70e9 / DEMO.n_params) ** 0.42, rel=1e-6)
    assert f16["bytes_per_token_at_ctx"] == f16["needs_bytes"]
    assert [on["fits"] for on in f16["on"]] == [True, False]
    assert any("tensor parallel, ideal" in note for note in found["notes"])


def test_a_models_own_header_is_what_counts() -> None:
    model(Path("m.gguf"))
    config = write("model: m.gguf\nmatrix: {weights: [f16], kv: [f16, q8_0]}\nsettings: {ctx: 100}")
    plain, quantised = answer(config, "--hardware", "ddr4-3200")["variants"]
    assert plain["bytes_per_token"] == 4096 + 2048 and plain["estimated"] is None
    assert plain["bytes_per_token_at_ctx"] == 6144 + 100 * 2 * (8 + 8) * 2
    assert quantised["bytes_per_token_at_ctx"] == 6144 + 100 * 34
    assert plain["on"][0]["ceiling_tps"] == pytest.approx(51.2e9 / 6144)
    assert plain["on"][0]["ceiling_tps_at_ctx"] == pytest.approx(51.2e9 / (6144 + 6400))


def test_a_precision_that_is_not_made_yet_is_estimated_from_the_shapes() -> None:
    model(Path("m.gguf"))
    config = write(
        "model: m.gguf\nmatrix: {weights: [f16, q8_0], speculate: [none, d]}\nsettings: {ctx: 100}\n"
        "speculate: {d: {kind: draft_model, weights: q4_0}}"
    )
    f16, q8, drafting, _ = answer(config, "--hardware", "l4")["variants"]
    assert q8["bytes_per_token"] == 3072 * 8.5 / 8 and "8.5 bits" in q8["estimated"]
    assert drafting["on"][0] == {"hardware": "l4", "fits": True, "ceiling_tps": None, "ceiling_tps_at_ctx": None}
    # The draft's weights, and a cache of its own.
    assert drafting["needs_bytes"] == f16["needs_bytes"] + 3072 * 4.5 / 8 + 100 * 64
    shown = run(config, "--hardware", "l4").stdout
    assert "~0 MB" in shown
    assert "how much is accepted" in shown and "~ estimated: weights, from 8.5 bits each" in shown


def test_the_default_model_is_known_before_it_is_fetched() -> None:
    config = write("model: demo\nmatrix: {weights: [f16]}\nsettings: {ctx: 1000}")
    [row] = answer(config, "--hardware", "m3-max")["variants"]
    assert row["bytes_per_token"] == DEMO.n_params * 2 and row["estimated"]
    assert row["bytes_per_token_at_ctx"] == DEMO.n_params * 2 + 1000 * 23040


def test_only_the_variants_asked_for() -> None:
    config = write("model: demo\nmatrix: {weights: [f16, q8_0, q4_0]}")
    found = answer(config, "--hardware", "l4", "--variant", "q4_0")
    assert [row["variant"] for row in found["variants"]] == ["f16", "q4_0"]


def test_the_table_can_be_listed() -> None:
    done = run("--hardware", "list")
    assert done.exit_code == 0 and "h100-sxm" in done.stdout and "raspberry-pi-5" in done.stdout
    listed = answer("--hardware", "list")["hardware"]
    assert len(listed) >= 25 and listed[0]["memory_bytes"] > 0


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--hardware", "h100x"), "--hardware: unknown 'h100x'"),
        (("--hardware", "h100-sxm", "--model-params", "many"), "--model-params: found 'many'; expected a number"),
        (("--hardware", "h100-sxm", "--model-params", "b"), "--model-params: found 'b'"),
        (("--hardware", "h100-sxm", "--model-params", "nan"), "--model-params: found 'nan'"),
        (("--hardware", "h100-sxm", "--model-params", ""), "--model-params: found ''"),
        (("--hardware", "h100-sxm", "--model-params", "7b", "--weights", "f61"), "Did you mean 'f16'"),
        (("--model-params", "7b"), "--model-params without --hardware"),
        (("--weights", "f16"), "--weights without --model-params"),
        (("--hardware", "h100-sxm", "--ctx", "100"), "--ctx without --model-params"),
        (("--hardware", "h100-sxm"), "variants.yaml: no such file"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(args: tuple[str, ...], message: str) -> None:
    done = run(*args)
    assert done.exit_code == 2 and message in done.stderr and done.stderr.count("\n") == 1 and not done.stdout


def test_a_model_that_is_not_here_is_refused() -> None:
    config = write("model: hf:owner/model\nmatrix: {weights: [f16]}")
    done = run(config, "--hardware", "l4")
    assert done.exit_code == 2 and "is not here and its size is not known" in done.stderr


def test_a_strange_header_is_refused_in_a_line() -> None:
    model(Path("m.gguf"), heads_kv="many")
    done = run(write("model: m.gguf\nmatrix: {weights: [f16]}"), "--hardware", "l4")
    assert done.exit_code == 2 and "its header's counts are no numbers" in done.stderr


def test_a_full_memory_fits_and_a_byte_more_does_not() -> None:
    from harness.hardware import choose

    [l4] = choose(["l4"])
    full = Need("x", Traffic(1.0), 24 * GIB - 100, 1.0, 100)
    assert [row["on"][0]["fits"] for row in rows([full, Need("y", Traffic(1.0), 24 * GIB - 99, 1.0, 100)], [l4])] == [
        True,
        False,
    ]
