from __future__ import annotations

import json
from pathlib import Path

import pytest


@pytest.fixture
def peers(tmp_path, monkeypatch):
    from benchmarks import peers

    monkeypatch.setattr(peers, "folder", lambda: tmp_path)
    return peers


LDD = """\
\tlinux-vdso.so.1 (0x00007ffd)
\tlibllama-bench-impl.so => /build/bin/libllama-bench-impl.so (0x00007f01)
\tlibllama.so.0 => /site/llama_cpp/lib/libllama.so.0 (0x00007f02)
\tlibggml-cpu.so.0 => not found
\tlibc.so.6 => /lib/libc.so.6 (0x00007f03)
"""


def test_the_engines_libraries_are_found_in_what_ldd_says(peers):
    assert peers.parse_ldd(LDD) == {
        "libllama-bench-impl.so": "/build/bin/libllama-bench-impl.so",
        "libllama.so.0": "/site/llama_cpp/lib/libllama.so.0",
        "libggml-cpu.so.0": "not found",
    }
    assert peers.ours_among(peers.parse_ldd(LDD), Path("/site/llama_cpp/lib")) == ["libllama.so.0"]


def test_rates_are_tokens_over_seconds_of_each_repetition(peers):
    printed = [
        {"n_prompt": 512, "n_gen": 0, "samples_ns": [1_000_000_000, 2_000_000_000]},
        {"n_prompt": 0, "n_gen": 128, "samples_ns": [4_000_000_000]},
    ]
    assert peers.rates(json.dumps(printed)) == {"prompt": [512.0, 256.0], "decode": [32.0]}


def test_llama_bench_is_asked_for_one_test_at_a_time(peers):
    for n_prompt, n_gen in ((0, 0), (1, 1)):
        with pytest.raises(ValueError, match="expected one of them to be 0"):
            peers.llama_bench("m.gguf", threads=1, n_prompt=n_prompt, n_gen=n_gen)


def test_a_failed_step_shows_the_end_of_its_log(peers, tmp_path):
    with pytest.raises(RuntimeError, match=r"peers: build failed \(exit 3\):\nno such header"):
        peers.step("build", ["sh", "-c", "echo no such header; exit 3"])
    assert (tmp_path / "build.log").read_text() == "no such header\n"
    with pytest.raises(RuntimeError, match="no-such-tool not found"):
        peers.step("configure", ["no-such-tool"])


def test_other_programs_find_our_libraries_first_and_are_kept_off_broken_amx(peers, monkeypatch, tmp_path):
    monkeypatch.setattr(peers, "libraries", lambda: Path("/site/lib"))
    monkeypatch.setattr(peers, "no_tiles", lambda: tmp_path / "no_tiles.so")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/other")
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    monkeypatch.setattr(peers.amx, "installed_fault", lambda: None)
    assert peers.environment()["LD_LIBRARY_PATH"] == "/site/lib:/other"
    assert "LD_PRELOAD" not in peers.environment()
    monkeypatch.setattr(peers.amx, "installed_fault", lambda: "miscompiled")
    assert peers.environment()["LD_PRELOAD"] == str(tmp_path / "no_tiles.so")
