"""The interval of a percentile from few values."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from harness.stats.interval import t_interval
from harness.stats.quantile import quantile_interval


def test_of_the_median_it_is_student_s() -> None:
    values = [3.0, 5.0, 4.0, 8.0]
    wanted = t_interval(values)
    assert quantile_interval(values, 50) == pytest.approx((wanted.low, wanted.high))


def test_published_factors() -> None:
    """One-sided 95% bounds of the 95th percentile for n = 10: 2.911 and 1.017 standard deviations above the mean."""
    values = norm.ppf((np.arange(10) + 0.5) / 10)
    ends = quantile_interval(values, 95, level=0.9)
    assert ends is not None
    low, high = ((end - values.mean()) / values.std(ddof=1) for end in ends)
    assert (round(low, 2), round(high, 3)) == (1.02, 2.911)


def test_spread_and_too_few_values() -> None:
    assert quantile_interval([2.0, 2.0], 95) == (2.0, 2.0)
    assert quantile_interval([2.0], 95) is None and quantile_interval([], 50) is None
    with pytest.raises(ValueError, match="between 0 and 100"):
        quantile_interval([1.0, 2.0], 100)
    one, two = (quantile_interval([1.0, 2.0, 3.0], 50, spread=s) for s in (1.0, 2.0))
    assert one is not None and two is not None
    assert two[1] - two[0] == pytest.approx(2 * (one[1] - one[0]))
