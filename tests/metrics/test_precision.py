"""Half widths, and when a comparison is precise enough."""

from __future__ import annotations

import math

import pytest

from harness.metrics.precision import half_width, needed, reached
from harness.metrics.request import Trial
from harness.record import Event, Figure, RequestRecord


def trial(block: int, ttft_s: float, gap_s: float, extra: bool = False) -> Trial:
    """Five tokens of one prompt length."""
    times = [ttft_s + gap_s * i for i in range(5)]
    events = tuple(Event(round(1e9 * t), 1, 1) for t in times)
    return Trial(block, block, 16, RequestRecord(0, events, 16, 5, finish_reason="length"), extra)


def test_half_width_is_that_of_the_logarithm() -> None:
    assert half_width(Figure(1.0, 1 / 1.1, 1.1, 5)) == pytest.approx(math.log(1.1))
    assert half_width(Figure(1.0, n=1)) is None
    assert half_width(Figure(1.0, 0.0, 2.0, 5)) is None


def test_a_comparison_is_precise_where_both_sides_share_the_machines_mood() -> None:
    """The machine's speed swings by a half; the ratio does not, and only the ratio counts."""
    swing = [1.0, 1.5, 1.1, 1.4, 1.2]
    base = [trial(b, 0.2 * s, 0.02 * s) for b, s in enumerate(swing)]
    twice = [trial(b, 0.1 * s, 0.01 * s) for b, s in enumerate(swing)]
    paired = reached(twice, base)
    assert paired["decode_tps"] == pytest.approx(0.0, abs=1e-6) and paired["ttft_s"] == pytest.approx(0.0, abs=1e-6)
    alone = reached(twice, None)
    assert alone["decode_tps"] is not None and alone["decode_tps"] > 0.1
    assert needed(paired, {"decode_tps": 0.03}) == ""
    assert needed(alone, {"decode_tps": 0.03, "ttft_s": 0.5}).startswith("decode_tps ±")


def test_nothing_measured_is_not_precise() -> None:
    assert needed({}, {"ttft_s": 0.05}) == "ttft_s no interval, asked ±5%"
