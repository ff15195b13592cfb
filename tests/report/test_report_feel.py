"""What a reader feels, as the page says it."""

from __future__ import annotations

from typing import Any

from harness.report.feel import section
from harness.report.page import render


def figure(value: float | None, low: float | None = None, high: float | None = None, *reasons: str) -> dict[str, Any]:
    conditions = {"prompt_tokens": [32, 256], "output_tokens": [33]}
    return {
        "value": value, "low": low, "high": high, "n": 24, "unit": "s", "better": "lower", "reasons": list(reasons),
        "conditions": conditions,
    }  # fmt: skip


def variant(name: str, tps: float, **metrics: Any) -> dict[str, Any]:
    found = {
        "decode_tps": figure(tps, tps - 5, tps + 5),
        "completion_s": figure(0.15, 0.14, 0.16),
        "completion_share": figure(0.5, 0.3, 0.7),
        "agent5_s": figure(2.0, 1.9, 2.1),
        "agent10_s": figure(4.0, 3.8, 4.2),
        "reading_wait_s": figure(0.0, 0.0, 0.0),
    }
    return {"name": name, "reference": name == "f16", "settings": {}, "metrics": found | metrics}


def felt(*bands: str, skims: float = 0.0, shares: tuple[float, float] = (1.0, 0.0)) -> dict[str, Any]:
    details = {
        "agent5_p95_s": figure(2.4, 2.2, 2.6, "small_n"), "agent10_p95_s": figure(4.9, 4.5, 5.1),
        "reading_wait_p95_s": figure(0.2, 0.1, 0.3), "skimming_wait_s": figure(skims),
    }  # fmt: skip
    by_prompt = [{"prompt_tokens": n, "completion_share": figure(s)} for n, s in zip((32, 256), shares, strict=True)]
    return {"bands": list(bands), "band": " or ".join(bands), "figures": details, "by_prompt": by_prompt}


def made(*variants: dict[str, Any], **by_name: dict[str, Any]) -> dict[str, Any]:
    feel = {
        "completion_tokens": 16, "budget_s": 0.2, "calls": [5, 10],
        "readers_tps": {"reading": 5.5, "skimming": 15.0}, "variants": by_name,
    }  # fmt: skip
    return {"variants": list(variants), "feel": feel}


def test_one_row_a_variant_with_bands_waits_and_their_p95() -> None:
    variants = [variant("q4_0", 148), variant("f16", 90)]
    found = section(made(*variants, q4_0=felt("fluent", "brisk"), f16=felt("passable")), variants)
    assert found is not None
    assert [c.label for c in found.grid.columns] == [
        "it feels", "first 16 tokens", "there within 200 ms", "5 calls in a row", "10 calls in a row", "reader's wait",
    ]  # fmt: skip
    row = found.grid.rows[0]
    assert [c.text for c in row.cells] == ["fluent or brisk", "150", "50", "2.00", "4.0", "0"]
    assert row.cells[0].spread == "148 ± 5"
    assert [c.below for c in row.cells] == [
        (), (), ("after 32: 100%", "after 256: 0%"), ("p95 2.40 s (few)",), ("p95 4.90 s",), ("p95 200 ms",),
    ]  # fmt: skip
    assert found.conditions.startswith("Prompts of 32 · 256 tokens; answers of 33; a call is one of these requests")
    assert found.conditions.endswith("few: less than 20 agents or requests stand behind that p95.")
    assert found.skimming == "One who skims, at 15 tokens/s, is never kept waiting."


def test_lengths_alike_are_not_listed_and_slow_ones_are_named() -> None:
    variants = [variant("f16", 12)]
    found = section(made(*variants, f16=felt("sluggish", skims=0.8, shares=(0.0, 0.0))), variants)
    assert found is not None
    assert found.grid.rows[0].cells[2].below == ()
    assert found.skimming == "One who skims, at 15 tokens/s, waits: f16 800 ms."


def test_a_disturbed_or_missing_figure_says_so() -> None:
    gone = figure(None, None, None, "not_streamed")
    variants = [variant("f16", 90, decode_tps=figure(90, 85, 95, "contended"), completion_s=gone)]
    found = section(made(*variants, f16=felt("passable")), variants)
    assert found is not None
    cells = found.grid.rows[0].cells
    assert cells[0].muted and cells[0].text == "passable"
    assert cells[1].missing and cells[1].chips[0].label == "not streamed"


def test_runs_of_before_and_untimed_ones_have_no_section(results: dict[str, Any], series: dict[str, Any]) -> None:
    assert section({"variants": []}, []) is None
    assert section({"feel": {"variants": {}}}, [variant("f16", 90)]) is None
    assert 'id="feel"' not in render(results, series)
    names = [v["name"] for v in results["variants"]]
    felt_too = {**results, "feel": made(**{n: felt("fluent") for n in names})["feel"]}
    page = render(felt_too, series)
    assert 'id="feel"' in page and 'href="#feel"' in page
