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


def test_effective_number() -> None:
    assert interval.effective_number([3.0] * 7) == pytest.approx(7)
    assert interval.effective_number([1.0, 2.0, 3.0]) == pytest.approx(36 / 14)


def test_clustered_se_of_unequal_clusters_by_hand() -> None:
    # without a: mean 2, without b: mean 1, without c: 5/3; spread 0.5185 around their mean 14/9, x 2/3
    se, worth = interval.clustered_se([1.0, 1.0, 3.0, 1.0], ["a", "a", "b", "c"])
    assert se == pytest.approx(math.sqrt(2 / 3 * ((2 - 14 / 9) ** 2 + (1 - 14 / 9) ** 2 + (5 / 3 - 14 / 9) ** 2)))
    assert worth == pytest.approx(16 / 6)


def test_share_by_hand() -> None:
    # three of four; without either pair 1/2 and 1: SE² = 1/2 x 2 x 1/16, worth (3/16) / (1/16) = 3, w = t(1)² / 3
    found = interval.share([True, True, True, False], ["a", "a", "b", "b"])
    w = 12.7062047**2 / 3
    centre, half = (0.75 + w / 2) / (1 + w), math.sqrt(w * 3 / 16 + w * w / 4) / (1 + w)
    assert found.value == 0.75 and found.n == 4
    assert (found.low, found.high) == (pytest.approx(centre - half), pytest.approx(centre + half))


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), min_size=1, max_size=40))
def test_a_clustered_share_is_never_narrower_than_wilsons(rows: list[tuple[bool, int]]) -> None:
    hits, clusters = [hit for hit, _ in rows], [name for _, name in rows]
    wide, plain = interval.share(hits, clusters), interval.wilson(sum(hits), len(hits))
    assert wide.low is not None and wide.high is not None and plain.low is not None and plain.high is not None
    assert 0 <= wide.low <= plain.low + 1e-12 and plain.high - 1e-12 <= wide.high <= 1


def test_a_ratio_of_unequal_parts_by_hand() -> None:
    # R = 14/4; without each part 12/3, 12/3 and 4/2: mean 10/3, SE² = 2/3 x 8/3; worth 16/6 parts
    found = interval.ratio_interval([2.0, 2.0, 10.0], [1.0, 1.0, 2.0])
    half = interval.t_quantile(16 / 6 - 1) * math.sqrt(2 / 3 * 8 / 3)
    assert found is not None and found.value == 3.5
    assert (found.low, found.high) == (pytest.approx(3.5 - half), pytest.approx(3.5 + half))
    one = interval.ratio_interval([1.0, 2.0], [0.0, 4.0])
    assert one == interval.Interval(0.75, None, None, 2)


def test_percentile_interval() -> None:
    # 0.95^71 = 0.0262 and 0.95^72 = 0.0249: only from 72 values on does the largest bound the 95th percentile
    assert interval.percentile_interval(range(1, 72), 95) is None
    assert interval.percentile_interval(range(72, 0, -1), 95) == (64.0, 72.0)
    # of ten: P(B < 2) = 11/1024 and P(B < 3) = 56/1024 for B ~ Binomial(10, 1/2)
    assert interval.percentile_interval(range(1, 11), 50) == (2.0, 9.0)


def test_bootstrap_is_wider_for_few_values_and_corrected_for_bias() -> None:
    x = np.random.default_rng(3).normal(100, 5, 30)
    plain, mended = (interval.bootstrap(x, summary.j80_rows, corrected=c) for c in (False, True))
    assert plain is not None and mended is not None
    assert mended[0] > plain[0] and mended[1] > plain[1]
    assert summary.jitter_interval(x) == mended
