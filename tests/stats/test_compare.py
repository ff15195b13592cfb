"""What interleaving buys, and that the intervals cover."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.stats.compare import ALONE, Launches, launches, paired_ratio
from harness.stats.drift import drift

COOLING = [100, 99, 98, 97, 96, 95, 94, 93]


def mean_of(order: str, name: str) -> float:
    return float(np.mean([v for v, who in zip(COOLING, order, strict=True) if who == name]))


def test_mirrored_order_hides_no_difference_and_makes_none() -> None:
    assert mean_of("AAAABBBB", "A") - mean_of("AAAABBBB", "B") == 4.0
    assert mean_of("ABBAABBA", "A") - mean_of("ABBAABBA", "B") == 0.0


def test_drifting_machine_and_identical_variants() -> None:
    order = "ABBAABBA"
    logs: dict[str, dict[int, float]] = {"A": {}, "B": {}}
    for name in "AB":
        for block in (0, 1):
            speeds = [COOLING[i] for i in range(4 * block, 4 * block + 4) if order[i] == name]
            logs[name][block] = math.log(2 / sum(1 / v for v in speeds))
    figure = paired_ratio(logs["A"], logs["B"])
    assert figure.value == pytest.approx(1.0, abs=3e-4)
    assert figure.reasons == ("small_n",)


def test_ratio_by_hand() -> None:
    figure = paired_ratio({0: math.log(2), 1: math.log(8), 7: 0.0}, {0: 0.0, 1: math.log(2), 9: 0.0})
    # log ratios ln 2 and ln 4; mean ln(2.828); sd/sqrt(2) = ln(2)/2
    assert figure.value == pytest.approx(2 * math.sqrt(2)) and figure.n == 2
    assert figure.high == pytest.approx(2 * math.sqrt(2) * math.exp(12.7062047 * math.log(2) / 2))
    assert paired_ratio({0: 1.0}, {1: 1.0}).reasons == ("undefined",)
    assert paired_ratio({0: 1.0}, {0: 1.0}).low is None


@given(st.dictionaries(st.integers(0, 20), st.floats(-3, 3), min_size=2, max_size=12), st.floats(-2, 2))
def test_a_constant_ratio_is_found_whatever_the_drift(logs: dict[int, float], gain: float) -> None:
    figure = paired_ratio({b: v + gain for b, v in logs.items()}, logs)
    assert figure.value == pytest.approx(math.exp(gain))
    assert figure.low == pytest.approx(math.exp(gain), rel=1e-6)


def test_interval_covers_under_drift() -> None:
    """Random-walk drift of 5% a step, ten mirrored blocks, 3% noise: 95% intervals must hold the truth."""
    rng, runs, truth, covered = np.random.default_rng(5), 600, math.log(1.2), 0
    for _ in range(runs):
        logs = np.cumsum(rng.normal(0, 0.05, 40)) + rng.normal(0, 0.03, 40)
        logs = logs.reshape(10, 4)
        a = {b: float((row[0] + row[3]) / 2) + truth for b, row in enumerate(logs)}
        r = {b: float((row[1] + row[2]) / 2) for b, row in enumerate(logs)}
        figure = paired_ratio(a, r)
        assert figure.low is not None and figure.high is not None
        covered += figure.low <= 1.2 <= figure.high
    assert 0.93 <= covered / runs <= 0.975


class TestDrift:
    def test_slope_is_found_across_variants_of_different_speed(self) -> None:
        rates = [(100 if p % 2 else 200) * math.exp(-0.01 * p) for p in range(20)]
        found = drift(list(range(100, 120)), rates, [p % 2 for p in range(20)])
        assert found is not None and found.flagged
        assert found.change == pytest.approx(math.expm1(-0.19))

    def test_steady_machine_is_not_flagged(self) -> None:
        noise = np.random.default_rng(2).normal(0, 0.02, 40)
        found = drift(list(range(40)), list(100 * np.exp(noise)), ["a"] * 40)
        assert found is not None and not found.flagged and found.low < 0 < found.high

    def test_getting_faster_is_flagged_too(self) -> None:
        found = drift(list(range(40)), [100 + 1.0 * p for p in range(40)], ["a"] * 40)
        assert found is not None and found.low > 0 and found.flagged

    def test_wild_speed_is_not_called_drift(self) -> None:
        found = drift(list(range(6)), [100, 60, 130, 70, 120, 60], ["a"] * 6)
        assert found is not None and abs(found.change) > 0.05 and not found.flagged

    def test_small_drift_is_not_flagged_however_certain(self) -> None:
        found = drift(list(range(40)), [100 - 0.05 * p for p in range(40)], ["a"] * 40)
        assert found is not None and found.high < 0 and not found.flagged

    def test_too_little_to_tell(self) -> None:
        assert drift([0, 1], [1.0, 2.0], ["a", "b"]) is None
        assert drift([3, 3, 3], [1.0, 2.0, 3.0], ["a"] * 3) is None
        with pytest.raises(ValueError, match="positive"):
            drift([0, 1, 2], [1.0, 0.0, 1.0], ["a"] * 3)


def test_rounds_of_one_launch_that_go_together_widen_the_interval() -> None:
    """Two launches: 0, 0.2 and 1.0, 1.2. MSB = 1, s² = 1.04/3."""
    logs, by = [0.0, 0.2, 1.0, 1.2], ["a", "a", "b", "b"]
    assert launches([(logs, by)]) == Launches(pytest.approx(3 / 1.04), 2.0, 1)
    mixed = (logs, ["a", "b", "a", "b"])  # MSB = 0.04
    assert launches([mixed]) == Launches(1.0, 2.0, 1)
    assert launches([(logs, by), mixed]) == Launches(pytest.approx((3 + 0.12) / 1.04 / 2), 2.0, 2)
    twelve = {b: (b % 3) / 10 for b in range(12)}
    plain, wide = (
        paired_ratio(twelve, dict.fromkeys(twelve, 0.0), launched=of) for of in (ALONE, Launches(4.0, 1.2, 1000))
    )
    assert plain.low is not None and wide.low is not None and plain.value is not None
    wider = math.log(wide.low / plain.value) / math.log(plain.low / plain.value)
    assert wider == pytest.approx(Launches(4.0, 1.2, 1000).wider(12)) and wider >= 2


def test_degrees_of_freedom_by_hand() -> None:
    """Fifteen blocks, five launches, factor 2: w = (14 - 8) / 10, so 196 / (16 + 3.6) = 10; k = 1 knows it by 4."""
    assert Launches(2.0, 3.0, 1).t(15) == pytest.approx(math.sqrt(2) * 2.7764451)
    assert Launches(2.0, 3.0, 9).t(15) == pytest.approx(math.sqrt(2) * 2.2281389)
    assert Launches(1.0, 3.0, 9).t(15) == ALONE.t(15) == pytest.approx(2.1447867)
    # Launches decide alone: as many as there are, less one. A single one tells nothing of the others.
    assert Launches(14 / 4, 3.0, 1000).t(15) == pytest.approx(math.sqrt(3.5) * 2.7764451)
    assert Launches(2.0, 3.0, 9).t(3) == pytest.approx(math.sqrt(2) * 12.7062047)
    assert ALONE.wider(1) == ALONE.wider(7) == 1.0


def test_nothing_to_compare_leaves_the_interval_as_it_is() -> None:
    for compared in ([], [([1.0, 2.0], ["a", "b"])], [([1.0, 1.0], ["a", "b"])], [([1.0, 2.0], ["a", "a"])]):
        assert launches(compared) == ALONE


def test_a_spread_beyond_all_measure_has_no_interval() -> None:
    logs = {b: 200.0 * (b % 2) for b in range(4)}
    figure = paired_ratio(logs, dict.fromkeys(logs, 0.0), launched=Launches(9.0, 2.0, 1))
    assert (figure.low, figure.high, figure.n) == (None, None, 4)


@pytest.mark.parametrize("within", [0.05, 0.02, 0.01])
@pytest.mark.parametrize("variants", [1, 8])
def test_intervals_cover_although_launches_have_their_luck(variants: int, within: float) -> None:
    """Fifteen rounds, five launches: luck of 2.3% on rounds that scatter by 5%, 2% or 1%."""
    rng = np.random.default_rng(7)
    by, zero = [b // 3 for b in range(15)], dict.fromkeys(range(15), 0.0)
    held, runs = 0, 3200 // variants
    for _ in range(runs):
        base = np.repeat(rng.normal(0, 0.016, 5), 3) + rng.normal(0, within / math.sqrt(2), 15)
        own = np.repeat(rng.normal(0, 0.016, (variants, 5)), 3, axis=1)
        logs = own + rng.normal(0, within / math.sqrt(2), (variants, 15)) - base
        launched = launches([(list(x), by) for x in logs])
        for x in logs:
            figure = paired_ratio(dict(enumerate(x)), zero, launched=launched)
            assert figure.low is not None and figure.high is not None
            held += figure.low <= 1.0 <= figure.high
    assert held / runs / variants >= 0.93
