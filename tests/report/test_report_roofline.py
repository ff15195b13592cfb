"""The report's ceilings: numbers beside each other, and how the bandwidth was measured."""

from __future__ import annotations

from typing import Any

from harness.report.look import looks
from harness.report.page import render
from harness.report.roofline import probe_text, section

MIB = 1 << 20
PROBE = {
    "best": 20e9, "median": 18e9, "n": 9, "threads": 2, "array_bytes": 128 * MIB, "cache_bytes": 32 * MIB,
    "enough": True, "device": "cpu",
}  # fmt: skip


def figure(value: float | None, low: float | None = None, high: float | None = None, *reasons: str, **conditions: Any):
    return {"value": value, "low": low, "high": high, "n": 9, "reasons": list(reasons), "conditions": conditions}


def run() -> tuple[dict[str, Any], dict[str, Any]]:
    def variant(name: str, speculate: str, ceiling: dict[str, Any], mbu: dict[str, Any]) -> dict[str, Any]:
        metrics = {"decode_tps": figure(50.0), "ceiling_tps": ceiling, "mbu": mbu}
        settings = {"weights": name.partition("+")[0], "speculate": speculate}
        return {"name": name, "reference": name == "f16", "settings": settings, "metrics": metrics}

    made = [
        variant(
            "f16", "none", figure(80.0, bandwidth_bytes_per_s=20e9, bytes_per_token=250e6), figure(0.625, 0.6, 0.65)
        ),
        variant("q8_0", "none", figure(160.0, bandwidth_bytes_per_s=20e9), figure(0.3125, None, None)),
        variant(
            "f16+draft", "draft", figure(120.0, bandwidth_bytes_per_s=20e9, tokens_per_pass=3.1), figure(0.4, 0.3, 0.5)
        ),
        variant("q2_k", "none", figure(None, None, None, "not_measured"), figure(None, None, None, "not_measured")),
    ]
    series = {"depth_ceiling": {"f16": [{"depth": 512, "ceiling_tps": 76.04, "mbu": figure(0.6)}]}}
    other = PROBE | {"best": 12e9, "threads": 1}
    return {"machine": {"bandwidth_by_threads": {"1": other, "2": PROBE}}, "variants": made}, series


def built() -> Any:
    results, series = run()
    found = section(results, series, results["variants"], looks(results["variants"]))
    assert found is not None
    return found


def test_measured_ceiling_and_share_stand_beside_each_other() -> None:
    f16, q8, draft, q2 = built().rows
    assert (f16.reads, f16.measured, f16.ceiling, f16.note, f16.why) == ("250 MB", "50.0", "80.0", "", "")
    assert f16.reached is not None and (f16.reached.text, f16.reached.width) == ("62%", 62.5)
    assert f16.reached.spread == "60 – 65%" and q8.reached is not None and q8.reached.spread == ""
    assert draft.note == "at 3.10 tokens a pass"
    assert q2.reached is None and q2.why == "the suite that gives this figure was not run"
    assert built().depths == (512,)
    assert f16.depths[0] is not None and (f16.depths[0].text, f16.depths[0].beside) == ("60%", "of 76.0")
    assert q8.depths == (None,)


def test_the_sentence_leaves_speculation_and_spoilt_figures_out() -> None:
    assert built().words.startswith("f16 reaches 62% of what memory bandwidth allows, q8_0 31%.")
    results, series = run()
    results["variants"][0]["metrics"]["mbu"]["reasons"] = ["contended"]
    found = section(results, series, results["variants"], looks(results["variants"]))
    assert found is not None and found.words.startswith("q8_0 reaches 31% of what memory bandwidth allows.")
    assert [chip.label for chip in found.rows[0].chips] == ["contended"]
    results["variants"][1]["metrics"]["mbu"]["value"] = 1.2
    found = section(results, series, results["variants"], looks(results["variants"]))
    assert found is not None and "Above 100%" in found.words
    assert found.rows[1].reached is not None and found.rows[1].reached.width == 100


def test_only_probes_that_a_ceiling_rests_on_are_told() -> None:
    assert built().probes == (
        "2 threads: best 20.0 GB/s, median 18.0, of 9 passes over 128 MiB, at least 4x the 32 MiB cache",
    )
    results, series = run()
    results["machine"]["bandwidth_by_threads"]["gpu"] = {"best": None, "why": "no CUDA driver here"}
    found = section(results, series, results["variants"], looks(results["variants"]))
    assert found is not None and found.probes[1] == "GPU: not measured: no CUDA driver here"


def test_how_large_the_array_was() -> None:
    assert "under 4x the 32 MiB cache: hits" in probe_text(PROBE | {"enough": False})
    assert probe_text(PROBE | {"enough": None}).endswith("; the cache size is unknown")
    gpu = {"best": 4e12, "median": 3.9e12, "n": 9, "threads": None, "device": "NVIDIA H200", "enough": True}
    assert probe_text(gpu | {"cache_bytes": 50 * MIB}).startswith("NVIDIA H200: best 4000.0 GB/s")
    assert probe_text({"best": 1e9, "n": 7}) == "best 1.0 GB/s, of 7 passes"


def test_the_section_is_there_only_with_a_ceiling(results: dict[str, Any], series: dict[str, Any]) -> None:
    assert 'id="roofline"' not in render(results, series)
    first = results["variants"][0]
    about = {"unit": "", "better": "none"}
    first["metrics"]["ceiling_tps"] = figure(120.0, bandwidth_bytes_per_s=27.9e9, bytes_per_token=272e6) | about
    first["metrics"]["mbu"] = figure(0.785) | about
    page = render(results, series)
    assert 'id="roofline"' in page and "best 27.9 GB/s, median 19.2, of 9 passes" in page and "272 MB" in page
