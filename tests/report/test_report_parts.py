"""Cells, the scatter's geometry and the plotly figures."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.record import CODES
from harness.report.front import Dot, Mark, layout, nice_ticks
from harness.report.look import looks
from harness.report.model import build
from harness.report.text import Shown, cell, common_codes, quantity, shown


def mark(name: str, x: float, y: float, **more: Any) -> Mark:
    given_ = {"front": False, "chosen": False, "reference": False, **more}
    return Mark(name, x, y, None, None, None, None, shape="circle", title=name, **given_)


def box(dot: Dot) -> tuple[float, float, float, float]:
    width = 6.9 * len(dot.label)
    left = {"start": dot.label_x, "end": dot.label_x - width, "middle": dot.label_x - width / 2}[dot.anchor]
    return left, dot.label_y - 11, left + width, dot.label_y + 4


def test_a_column_takes_the_unit_of_its_smallest_value() -> None:
    assert shown("ttft_s", (0.164, 2.5, None)) == Shown(1000.0, "ms")
    assert shown("ttft_s", (1.5, 2.5)) == Shown(1.0, "s")
    assert shown("peak_rss_bytes", (204e6, 3e9)) == Shown(1e-6, "MB")
    assert shown("top1_agreement", (0.9,)) == Shown(100.0, "%")
    assert shown("jitter_pct", (4.0,)) == Shown(1.0, "±%")


@pytest.mark.parametrize(
    ("key", "metric", "text", "spread"),
    [
        ("decode_tps", {"value": 170.4, "low": 167.3, "high": 173.5}, "170", "± 3"),
        ("decode_tps", {"value": 10.0, "low": 9.0, "high": 14.0}, "10", "9 – 14"),
        ("ttft_s", {"value": 0.181, "low": 0.176, "high": 0.186}, "181", "± 5"),
        ("jitter_pct", {"value": 4.0, "low": 3.0, "high": 5.0}, "4.0", "3.0 – 5.0"),
        ("mmlu_delta", {"value": -0.057, "low": -0.069, "high": -0.045}, "−5.7", "± 1.2"),
        ("peak_rss_bytes", {"value": 305e6, "low": None, "high": None}, "305", ""),
        ("kl_mean", {"value": 0.0, "low": 0.0, "high": 0.0}, "0", ""),
    ],
)
def test_a_cell_shows_value_and_interval(key: str, metric: dict[str, Any], text: str, spread: str) -> None:
    made = cell(key, {**metric, "reasons": [], "n": 4}, shown(key, (metric["value"],)))
    assert (made.text, made.spread, made.muted, made.missing) == (text, spread, False, False)


def test_a_cell_tells_its_story_on_hover() -> None:
    metric = {"value": 0.181, "low": 0.176, "high": 0.186, "n": 24, "reasons": ["small_n"],
              "conditions": {"prompt_tokens": 512}}  # fmt: skip
    made = cell("ttft_s", metric, Shown(1000.0, "ms"))
    assert made.title == (
        "TTFT: 181 ms; 95% interval 176 ms to 186 ms; n = 24; prompt tokens 512; too few values for this statistic"
    )
    assert [(chip.label, chip.quiet) for chip in made.chips] == [("small n", True)]
    assert not made.muted


def test_a_voiding_code_mutes_and_an_unknown_one_is_shown_as_it_is() -> None:
    made = cell("decode_tps", {"value": 3.0, "reasons": ["contended", "new_code"]}, Shown(1.0, "tokens/s"))
    assert made.muted
    assert [(chip.label, chip.title) for chip in made.chips] == [
        ("contended", CODES["contended"]),
        ("new code", "new_code"),
    ]


def test_an_absent_metric_was_not_measured() -> None:
    made = cell("mmlu_acc", None, Shown(100.0, "%"), hoisted=("not_measured",))
    assert (made.text, made.missing) == ("—", True)
    assert [chip.label for chip in made.chips] == ["not run"]
    assert quantity("mmlu_acc", None) == "—"


def test_only_what_every_value_carries_is_common() -> None:
    a, b = {"value": 1.0, "reasons": ["small_n", "contended"]}, {"value": 2.0, "reasons": ["contended"]}
    assert common_codes([a, b, {"value": None, "reasons": ["error"]}, None]) == ("contended",)
    assert common_codes([a]) == ()


def test_the_plane_runs_right_and_up() -> None:
    plot = layout([mark("a", 10, 1), mark("b", 20, 2)], "x", "y", 400, 300)
    assert plot is not None
    a, b = plot.dots
    assert a.x < b.x and a.y > b.y
    assert plot.left <= a.x and b.x <= plot.right and plot.top <= b.y and a.y <= plot.bottom


def test_the_line_joins_front_members_from_left_to_right() -> None:
    marks = [mark("c", 30, 1, front=True), mark("a", 10, 3, front=True), mark("x", 15, 1), mark("b", 20, 2, front=True)]
    plot = layout(marks, "x", "y", 400, 300)
    assert plot is not None
    c, a, _, b = plot.dots
    assert plot.line == f"M{a.x} {a.y} L{b.x} {b.y} L{c.x} {c.y}"


def test_no_marks_no_plot_and_equal_marks_no_division_by_zero() -> None:
    assert layout([], "x", "y", 400, 300) is None
    plot = layout([mark("a", 5, 5), mark("b", 5, 5)], "x", "y", 400, 300)
    assert plot is not None
    assert plot.dots[0].x == plot.dots[1].x


def test_labels_keep_apart_and_inside() -> None:
    names = ["f16", "q8_0", "q4_0", "f16+lookup", "f16+draft", "q8_0+lookup", "q8_0+draft", "q4_k_m"]
    marks = [mark(name, 94 + i * 3.0, 100 - (i % 3) * 0.5, reference=i == 0) for i, name in enumerate(names)]
    plot = layout(marks, "x", "y", 900, 460)
    assert plot is not None
    boxes = [box(dot) for dot in plot.dots if dot.label]
    assert len(boxes) == 8
    for i, (left, top, right, bottom) in enumerate(boxes):
        assert left >= 0 and right <= 900
        for other in boxes[i + 1 :]:
            wide = min(right, other[2]) - max(left, other[0])
            tall = min(bottom, other[3]) - max(top, other[1])
            assert wide <= 2 or tall <= 2
    assert plot.dots[0].label == "f16 (reference)"


def test_the_chosen_one_keeps_its_label_in_a_crowd() -> None:
    marks = [mark(f"variant-number-{i}", 10 + i * 0.001, 10, chosen=i == 17) for i in range(30)]
    plot = layout(marks, "x", "y", 344, 300)
    assert plot is not None
    assert plot.dots[17].label == "variant-number-17"
    assert any(not dot.label for dot in plot.dots)


@settings(max_examples=60, deadline=None)
@given(low=st.floats(-1e6, 1e6), width=st.floats(1e-3, 1e6), count=st.integers(2, 9))
def test_ticks_are_evenly_spaced_and_inside(low: float, width: float, count: int) -> None:
    ticks = nice_ticks(low, low + width, count)
    assert 1 <= len(ticks) <= 2 * count + 2
    assert all(low - width * 1e-6 <= tick <= low + width * (1 + 1e-6) for tick in ticks)
    steps = [b - a for a, b in pairwise(ticks)]
    assert all(step == pytest.approx(steps[0], rel=1e-3, abs=1e-9) for step in steps)


def test_a_look_is_colour_by_weights_and_shape_by_speculation(results: Any) -> None:
    found = looks(results["variants"])
    assert (found["f16"].color, found["f16"].shape) == ("@ink", "circle")
    assert found["f16+draft"].color == "@ink" and found["f16+draft"].symbol == "square"
    assert found["q8_0"].color == found["q8_0+lookup"].color != found["q4_0"].color
    assert found["q8_0+lookup"].dash == "dash"
    weird = {"name": "w", "settings": {"weights": "f16", "speculate": "eagle"}}
    assert looks([weird])["w"].symbol == "triangle-up"


def test_lines_carry_intervals_and_skip_what_is_missing(results: Any, series: Any) -> None:
    series["ttft_by_prompt"] = {
        "f16": [
            {"prompt_tokens": 512, "value": 0.2, "low": 0.19, "high": 0.22, "n": 3},
            {"prompt_tokens": 128, "value": 0.05, "low": None, "high": None, "n": 1},
            {"prompt_tokens": 2048, "value": None, "low": None, "high": None, "n": 0},
        ],
        "q2_k": [{"prompt_tokens": 512, "value": None, "low": None, "high": None, "n": 0}],
    }
    figure = build(results, series).latency[0]
    (trace,) = figure.spec["data"]
    assert trace["x"] == [128, 512]
    assert trace["y"] == [50.0, 200.0]
    assert trace["error_y"]["array"] == [None, pytest.approx(20.0)]
    assert trace["error_y"]["arrayminus"] == [None, pytest.approx(10.0)]
    assert figure.head == ("variant", "128 tokens", "512 tokens")
    assert figure.rows[0][:2] == ("f16", "50.0 ms")


def test_chance_and_the_reference_are_drawn_behind_a_suite(results: Any, series: Any) -> None:
    results["variants"][4]["metrics"]["mmlu_acc"] |= {"value": None, "reasons": ["nonfinite"]}
    figure = build(results, series).quality.suites[0]
    band, chance = figure.spec["layout"]["shapes"]
    assert (band["x0"], band["x1"]) == (pytest.approx(40.9), pytest.approx(49.5))
    assert chance["x0"] == 25.0
    assert {note["text"] for note in figure.spec["layout"]["annotations"]} == {"guessing", "— nonfinite"}
    assert figure.summary.endswith("Guessing scores 25.0%.")
    assert ("q2_k", "—", "228") in figure.rows


def test_chance_is_not_drawn_on_a_scale_it_does_not_belong_to(results: Any, series: Any) -> None:
    _, coherence, code = build(results, series).quality.suites
    for figure in (coherence, code):
        assert [shape["type"] for shape in figure.spec["layout"]["shapes"]] == ["rect"]


def test_too_many_lines_show_the_leading_ones_first(thirty: Any) -> None:
    figure = build(*thirty).latency[0]
    shown_at_once = {trace["name"] for trace in figure.spec["data"] if trace["visible"] is True}
    assert shown_at_once == {"f16", "q8_0", "q4_0", "q2_k"}
    assert len(figure.spec["data"]) == len(figure.rows) == 30
    assert figure.note.endswith("Pick more variants in the legend.")


def test_every_figure_is_strict_json(results: Any, series: Any) -> None:
    for figure in build(results, series).figures:
        json.dumps(figure.spec, allow_nan=False)
