"""Charts by context depth: one axis for all, and none without data."""

from __future__ import annotations

from typing import Any

import pytest

from harness.report.frame import between, lengths
from harness.report.model import build


def span(value: float | None) -> dict[str, Any]:
    return {"value": value, "low": None, "high": None, "n": 3}


def test_speed_recall_and_ttft_share_one_axis(results: Any, series: Any) -> None:
    found = build(results, series).depth
    assert [figure.id for figure in found] == ["fig-depth-tps", "fig-depth", "fig-depth-ttft"]
    speed, recall, ttft = (figure.spec["layout"]["xaxis"] for figure in found)
    assert speed == recall == ttft
    assert speed["tickvals"] == [512, 1024, 2048, 8192]
    assert found[1].head == ("variant", "512 tokens", "1,024 tokens", "2,048 tokens")  # its own table, its own depths


def test_variants_look_the_same_on_each_chart(results: Any, series: Any) -> None:
    speed, recall, _ = build(results, series).depth
    looks = [{t["name"]: (t["line"], t["marker"]) for t in figure.spec["data"]} for figure in (speed, recall)]
    assert looks[0] == looks[1]


def test_what_is_left_of_the_speed_is_said(results: Any, series: Any) -> None:
    series["depth_speed"] = {
        "f16": [{"depth": 512, "decode_tps": span(80.0)}, {"depth": 8192, "decode_tps": span(40.0)}],
        "q8_0": [{"depth": 512, "decode_tps": span(100.0)}, {"depth": 8192, "decode_tps": span(75.0)}],
        "q4_0": [{"depth": 512, "decode_tps": span(100.0)}, {"depth": 8192, "decode_tps": span(None)}],
    }
    speed = build(results, series).depth[0]
    assert speed.note.endswith("At 8,192 tokens 50% (f16) to 75% (q8_0) of the speed at 512 is left.")
    del series["depth_speed"]["f16"]
    assert build(results, series).depth[0].note.endswith("At 8,192 tokens 75% of the speed at 512 is left.")


def test_a_chart_without_data_is_not_drawn(results: Any, series: Any) -> None:
    series["depth_speed"] = {"f16": [{"depth": 512, "decode_tps": span(80.0), "ttft_s": None}]}
    del series["depth"]
    assert [figure.id for figure in build(results, series).depth] == ["fig-depth-tps"]
    series["depth_speed"] = {"f16": [{"depth": 512, "decode_tps": None}], "q8_0": []}
    assert build(results, series).depth == ()
    series["depth_speed"] = None
    assert build(results, series).depth == ()


@pytest.mark.parametrize(
    ("ticks", "kind", "ends"),
    [([100, 10_000], "log", [1.88, 4.12]), ([0, 1000], "linear", [-60.0, 1060.0]), ([100], "log", [1.9, 2.1])],
)
def test_an_axis_of_lengths_has_room_at_both_ends(ticks: list[int], kind: str, ends: list[float]) -> None:
    axis = lengths("depth", ticks)
    assert (axis["type"], axis["range"]) == (kind, pytest.approx(ends))


def test_tick_labels_that_would_cover_each_other_are_left_out() -> None:
    assert lengths("depth", [1000, 1024, 1100, 1200, 2048])["ticktext"] == ["1,000", "", "", "1,200", "2,048"]


def test_a_label_stands_half_way_between_the_first_two_ticks() -> None:
    assert between([100, 10_000, 20_000])["x"] == pytest.approx(3.0)  # of a logarithmic axis
    assert between([0, 1000])["x"] == 500
    assert between([512]) == {"xref": "paper", "x": 0, "xanchor": "left"}
