"""The noise floor on hand-worked rows."""

from __future__ import annotations

import json
from math import log
from typing import Any

import numpy as np
import pytest

from harness.metrics.catalog import METRICS
from harness.record import Figure, missing
from harness.suites.floor import beside, figures, floor_payload, floor_rows


def row(start: int, kl: list[float], largest: list[float] | None = None, top1: list[int] | None = None) -> Any:
    return {
        "start": start, "kl": kl, "largest": largest or kl, "top1": top1 or [1] * len(kl), "finite": True,
    }  # fmt: skip


def test_the_largest_change_by_hand():
    """(1/2, 1/4, 1/4) becomes (1/4, 1/4, 1/2): both ends move by ln 2; KL = 1/2 ln 2 - 1/4 ln 2."""
    rows = floor_rows(np.log([[0.5, 0.25, 0.25]] * 2), np.log([[0.25, 0.25, 0.5], [0.5, 0.25, 0.25]]))
    assert rows.largest == pytest.approx([log(2), 0.0])
    assert rows.kl == pytest.approx([0.25 * log(2), 0.0])
    assert rows.top1.tolist() == [False, True]


def test_only_the_fifty_likeliest_tokens_are_looked_at():
    """Token 50 is the 51st: it may move as it likes. Token 49 is the 50th."""
    prompt = np.linspace(20.0, 0.0, 60)[None]
    for moved, seen in ((50, False), (49, True)):
        single = prompt.copy()
        single[0, moved] -= 1.0
        assert bool(floor_rows(prompt, single).largest[0] > 0.9) is seen


def test_a_nonfinite_position_is_flagged_and_the_others_kept():
    single = np.zeros((3, 4))
    single[1, 2] = np.nan
    rows = floor_rows(np.zeros((3, 4)), single)
    assert rows.finite.tolist() == [True, False, True] and rows.largest.tolist() == [0.0, 0.0, 0.0]
    assert floor_payload(7, rows) == {"start": 7, "kl": [], "top1": [], "largest": [], "finite": False}
    good = floor_payload(0, floor_rows(np.zeros((2, 3)), np.zeros((2, 3))))
    assert json.loads(json.dumps(good, allow_nan=False))["top1"] == [1, 1]


def test_means_over_blocks_of_eight():
    """Two blocks with means 0.1 and 0.3: mean 0.2, SE 0.1, t(1) = 12.706."""
    found = figures([row(8, [0.3] * 8), row(0, [0.1] * 8)])
    assert found["kl_floor"].value == pytest.approx(0.2)
    assert (found["kl_floor"].low, found["kl_floor"].high) == (0.0, pytest.approx(0.2 + 12.7062 * 0.1, rel=1e-4))
    assert found["top1_floor"].value == 1.0
    assert set(found) == {"kl_floor", "top1_floor", "logprob_floor"} <= set(METRICS)


def test_the_change_of_log_probability_is_a_95th_percentile_from_twenty_positions_on():
    found = figures([row(0, [0.0] * 21, [i / 20 for i in range(21)])])["logprob_floor"]
    assert (found.value, found.n, found.conditions["max"]) == (pytest.approx(0.95), 21, 1.0)
    assert (found.low, found.high) == (None, None)  # 0.95^21: in one case of three all lie below the percentile
    found = figures([row(0, [0.0] * 100, [float(i) for i in range(1, 101)])])["logprob_floor"]
    assert (found.low, found.value, found.high) == (90.0, pytest.approx(95.05), 100.0)
    assert figures([row(0, [0.0] * 19)])["logprob_floor"] == missing("small_n", n=19)


def test_a_nonfinite_row_is_left_out_and_named():
    bad = {"start": 32, "kl": [], "top1": [], "largest": [], "finite": False}
    found = figures([row(0, [0.1] * 32), bad])
    assert all(figure.reasons == ("nonfinite",) and figure.value is not None for figure in found.values())
    assert {figure.reasons for figure in figures([]).values()} == {("not_measured",)}


def scores(kl: Figure, **floor: Any) -> dict[str, Figure]:
    own = {"kl_floor": Figure(0.003, 0.002, 0.004, 64), "top1_floor": Figure(0.97, 0.9, 1.0, 64), **floor}
    return {"kl_mean": kl, "top1_agreement": Figure(0.9, 0.8, 1.0, 64), **own}


@pytest.mark.parametrize(("low", "inside"), [(0.0039, True), (0.004, True), (0.0041, False)])
def test_a_divergence_that_begins_inside_the_floor_is_within_noise(low: float, inside: bool):
    found = beside(scores(Figure(0.005, low, 0.006, 1024, conditions={"a": 1})))
    assert found["kl_mean"].conditions == {"a": 1, "floor": 0.003} | ({"within_noise": True} if inside else {})
    assert found["top1_agreement"].conditions == {"floor": 0.97}
    assert (found["kl_mean"].value, found["kl_mean"].ranks) == (0.005, True)


@pytest.mark.parametrize(
    ("kl", "floor"),
    [
        (Figure(0.005, 0.001, 0.006, 1024), Figure(0.003, 0.0, 0.02, 63)),  # too few positions
        (Figure(0.005, 0.001, 0.006, 1024), Figure(0.003, None, None, 8)),
        (Figure(0.0, 0.0, 0.0, 0, ("is_reference",)), Figure(0.003, 0.002, 0.004, 64)),
        (Figure(0.001, None, None, 8), Figure(0.003, 0.002, 0.004, 64)),
    ],
)
def test_nothing_is_excused_on_thin_evidence(kl: Figure, floor: Figure):
    assert beside(scores(kl, kl_floor=floor))["kl_mean"].conditions == {"floor": 0.003}


def test_a_floor_that_was_not_measured_stands_beside_nothing():
    found = beside(scores(Figure(0.005, 0.001, 0.006), kl_floor=missing("not_measured")))
    assert "kl_mean" not in found and "top1_agreement" in found
