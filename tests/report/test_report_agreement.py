"""The report's part on greedy texts."""

from __future__ import annotations

from typing import Any

from harness.report.model import build
from harness.report.page import render
from harness.suites import agreement


def greedy(variant: int, floor: float | None) -> dict[str, Any]:
    theirs = [{"prompt": p, "tokens": [1] * 64, "margins": [0.2] * 64} for p in "abcd"]
    ours = [{"prompt": p, "tokens": [1] * at + [2] * (64 - at)} for p, at in zip("abcd", (64, 40, 20, variant))]  # noqa: B905
    return {"points": agreement.by_length(ours, theirs), "partings": agreement.partings(ours, theirs, floor)}


def test_chart_and_table(results: dict[str, Any], series: dict[str, Any]):
    series["greedy_by_length"] = {"q2_k": greedy(3, 0.2), "not in the run": greedy(3, 0.2)}
    model = build(results, series)
    found = model.quality.greedy
    assert found is not None and found.chart is not None and found.chart in model.figures
    assert found.chart.head == ("variant", "16 tokens", "32 tokens", "64 tokens")
    (row,) = found.table.rows
    assert (row.name, *(cell.text for cell in row.cells)) == ("q2_k", "1/4", "3", "0.20", "3/3")
    page = render(results, series)
    assert 'id="fig-greedy"' in page and "Where greedy texts leave" in page


def test_an_unknown_floor_is_said(results: dict[str, Any], series: dict[str, Any]):
    series["greedy_by_length"] = {"q2_k": greedy(3, None)}
    found = build(results, series).quality.greedy
    assert found is not None
    cell = found.table.rows[0].cells[-1]
    assert cell.missing and "noise floor was not measured" in cell.title


def test_without_rows_there_is_no_part(results: dict[str, Any], series: dict[str, Any]):
    assert build(results, series).quality.greedy is None
