"""Interval of a quantile from few values. Knows numbers only."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import nctdtrit, ndtri

from harness.stats.interval import LEVEL, Floats


def quantile_interval(
    values: Sequence[float] | Floats, q: float, *, spread: float = 1.0, level: float = LEVEL
) -> tuple[float, float] | None:
    """Two-sided interval of the q-th percentile of a normal distribution, from a sample of it.

    Formula: ``mean + t'(p; n-1, z sqrt(n)) sd / sqrt(n)`` at p = (1 ∓ level) / 2, with t' the quantile of the
    non-central t distribution and z the standard normal q-th percentile. For q = 50 it is Student's t interval.
    Source: Hahn and Meeker, "Statistical intervals" (1991), section 4.4.

    Args:
        values: Shape (n,).
        q: Percent.
        spread: By what the standard deviation is multiplied, where the values were centred and lost some of it.
        level: Coverage.

    Returns:
        (low, high), or None for fewer than two values.

    Raises:
        ValueError: If q is not between 0 and 100.

    >>> low, high = quantile_interval([1.0, 2.0, 3.0], 50); round(low, 4), round(high, 4)
    (-0.4841, 4.4841)
    """
    if not 0 < q < 100:
        raise ValueError(f"quantile_interval: q = {q}; expected a percentage between 0 and 100")
    x = np.asarray(values, dtype=float)
    if x.size < 2:
        return None
    root = math.sqrt(x.size)
    step = spread * float(x.std(ddof=1)) / root
    far = float(ndtri(q / 100)) * root
    low, high = (float(x.mean()) + float(nctdtrit(x.size - 1, far, 0.5 + s * level / 2)) * step for s in (-1, 1))
    return low, high
