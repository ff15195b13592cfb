from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.stats import interval, summary

VALUES = st.lists(st.floats(0.1, 1e3), min_size=2, max_size=30)


def test_t_interval() -> None:
    i = interval.t_interval([1.0, 2.0, 3.0, 4.0])
    half = 3.18244631 * math.sqrt(5 / 3) / 2
    assert (i.value, i.n) == (2.5, 4)
    assert i.low == pytest.approx(2.5 - half) and i.high == pytest.approx(2.5 + half)
    assert interval.t_interval([7.0]) == interval.Interval(7.0, None, None, 1)
    with pytest.raises(ValueError, match="no values"):
        interval.t_interval([])


def test_wilson() -> None:
    i = interval.wilson(8, 10)
    assert i.low == pytest.approx(0.4902, abs=5e-5) and i.high == pytest.approx(0.9433, abs=5e-5)
    with pytest.raises(ValueError, match="11 of 10"):
        interval.wilson(11, 10)


@given(st.integers(1, 500), st.data())
def test_wilson_holds_its_value_and_mirrors(n: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, n))
    a, b = interval.wilson(k, n), interval.wilson(n - k, n)
    assert a.low is not None and a.high is not None and b.low is not None
    assert 0 <= a.low <= a.value <= a.high <= 1
    assert a.high == pytest.approx(1 - b.low)


def test_clustered_se_of_singletons_is_the_plain_one() -> None:
    x = [1.0, 2.0, 4.0, 9.0]
    se, groups = interval.clustered_se(x, [1, 2, 3, 4])
    assert groups == 4 and se == pytest.approx(np.std(x, ddof=1) / 2)
    assert interval.clustered_se(x, [1, 1, 1, 1]) == (None, 1)


@given(VALUES)
def test_copies_in_a_cluster_add_no_information(x: list[float]) -> None:
    once, _ = interval.clustered_se(x, list(range(len(x))))
    thrice, _ = interval.clustered_se(x * 3, list(range(len(x))) * 3)
    assert thrice == pytest.approx(once)


def test_ratio_interval() -> None:
    found = interval.ratio_interval([2.0, 4.0], [1.0, 1.0])
    # R = 3, residuals -1 and 1, SE = sqrt(2 x 2) / 2 = 1
    assert found is not None and found.value == 3.0
    assert found.high == pytest.approx(3 + 12.7062047)
    assert found.low == pytest.approx(3 - 12.7062047)
    assert interval.ratio_interval([1.0], [0.0]) is None


def test_log_factors() -> None:
    assert interval.log_t_factors([2.0]) is None
    assert interval.log_t_factors([1.0, 0.0]) is None
    assert interval.log_t_factors([1.0, 1.1], lost=2) is None
    low, high = interval.log_t_factors([1.0, math.e]) or (0, 0)
    assert low * high == pytest.approx(1.0) and math.log(high) == pytest.approx(12.7062047 / 2)


@given(VALUES)
def test_bootstrap_is_seeded_and_inside_the_data(x: list[float]) -> None:
    def median(rows: interval.Floats) -> interval.Floats:
        return np.asarray(np.median(rows, axis=-1))

    first = interval.bootstrap(x, median, draws=50)
    assert first == interval.bootstrap(x, median, draws=50)
    assert first is not None and min(x) <= first[0] <= first[1] <= max(x)


def test_bootstrap_keeps_strata() -> None:
    def mean(rows: interval.Floats) -> interval.Floats:
        return np.asarray(rows.mean(axis=-1))

    ends = interval.bootstrap([1.0, 1.0, 9.0], mean, strata=["a", "a", "b"])
    assert ends == pytest.approx((11 / 3, 11 / 3))
    assert interval.bootstrap([1.0], mean) is None


def test_jitter_of_a_normal_sample_is_1_28_sd_over_the_median() -> None:
    x = np.random.default_rng(1).normal(100, 10, 20_000)
    assert summary.jitter_pct(x) == (pytest.approx(12.8, rel=0.03), False)
    assert float(summary.mad_rows(x)) == pytest.approx(12.8, rel=0.03)


def test_j80_by_hand() -> None:
    x = [float(v) for v in range(1, 42)]  # p10 = 5, p50 = 21, p90 = 37
    assert summary.jitter_pct(x) == (pytest.approx(100 * 32 / 42), False)
    assert summary.jitter_pct([1.0]) is None
    assert summary.jitter_pct([0.0, 0.0, 0.0]) is None


@given(VALUES, st.floats(0.01, 100))
def test_jitter_does_not_depend_on_the_unit(x: list[float], unit: float) -> None:
    a, b = summary.jitter_pct(x), summary.jitter_pct([v * unit for v in x])
    assert a is not None and b is not None and a[0] == pytest.approx(b[0], rel=1e-6, abs=1e-9)


def test_percentile_names() -> None:
    assert not summary.enough_for_percentile(99, 99) and summary.enough_for_percentile(99, 100)
    assert not summary.enough_for_percentile(95, 19) and summary.enough_for_percentile(95, 20)
    assert summary.percentile([1.0, 2.0, 3.0, 4.0], 50) == 2.5
