"""What interleaving buys, and that the intervals cover."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.stats.compare import launch_factor, paired_ratio
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
    logs, launches = [0.0, 0.2, 1.0, 1.2], ["a", "a", "b", "b"]
    assert launch_factor([(logs, launches)]) == pytest.approx(3 / 1.04)
    mixed = (logs, ["a", "b", "a", "b"])  # MSB = 0.04
    assert launch_factor([mixed]) == 1.0
    assert launch_factor([(logs, launches), mixed]) == pytest.approx((3 + 0.12) / 1.04 / 2)
    plain, wide = (paired_ratio(dict(enumerate(logs)), dict.fromkeys(range(4), 0.0), factor=f) for f in (1.0, 4.0))
    assert plain.low is not None and wide.low is not None and plain.value is not None
    assert math.log(wide.low / plain.value) == pytest.approx(2 * math.log(plain.low / plain.value))


def test_nothing_to_compare_leaves_the_interval_as_it_is() -> None:
    assert (
        launch_factor([])
        == launch_factor([([1.0, 2.0], ["a", "b"])])
        == launch_factor([([1.0, 1.0], ["a", "b"])])
        == 1.0
    )


def test_intervals_cover_although_launches_have_their_luck() -> None:
    """Eight variants, fifteen rounds, five launches: luck of 2.3% on rounds that scatter by 5%."""
    rng = np.random.default_rng(7)
    held = trials = 0
    for _ in range(400):
        base = rng.normal(0, 0.016, 5)
        logs = [np.repeat(rng.normal(0, 0.016, 5) - base, 3) + rng.normal(0, 0.05, 15) for _ in range(8)]
        factor = launch_factor([(list(x), [b // 3 for b in range(15)]) for x in logs])
        for x in logs:
            figure = paired_ratio(dict(enumerate(x)), dict.fromkeys(range(15), 0.0), factor=factor)
            assert figure.low is not None and figure.high is not None
            held += figure.low <= 1.0 <= figure.high
            trials += 1
    assert held / trials >= 0.93
