"""Summaries of a set of values: percentiles with their rules, and jitter. Knows no metric."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from harness.stats.interval import Floats, bootstrap

J80_MIN_N = 30
P95_MIN_N = 20
P99_MIN_N = 100


def enough_for_percentile(q: float, n: int) -> bool:
    """Whether the q-th percentile of n values may be called that: p99 needs 100 values, p95 20, p90 10.

    >>> enough_for_percentile(99, 99), enough_for_percentile(95, 20)
    (False, True)
    """
    # Rounded: 100 / (100 - 99.9) is 1000.0000000000568 in floating point.
    return q >= 100 or n >= round(100 / (100 - q), 6)


def percentile(values: Sequence[float] | Floats, q: float) -> float:
    """The q-th percentile, interpolated linearly.

    >>> percentile([1.0, 2.0, 3.0, 4.0], 50)
    2.5
    """
    return float(np.percentile(np.asarray(values, dtype=float), q))


def j80_rows(x: Floats) -> Floats:
    """J80 along the last axis: ``100 (p90 - p10) / (2 p50)``; NaN where p50 is 0."""
    p10, p50, p90 = np.percentile(x, [10, 50, 90], axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        result: Floats = np.where(p50 > 0, 100 * (p90 - p10) / (2 * p50), np.nan)
    return result


def mad_rows(x: Floats) -> Floats:
    """The same spread from few values, along the last axis: ``100 x 1.28 x 1.4826 x MAD / median``."""
    middle = np.median(x, axis=-1, keepdims=True)
    mad = np.median(np.abs(x - middle), axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        result: Floats = np.where(middle[..., 0] > 0, 100 * 1.28 * 1.4826 * mad / middle[..., 0], np.nan)
    return result


def jitter_pct(values: Sequence[float] | Floats) -> tuple[float, bool] | None:
    """Jitter of one set of values in ±%: J80 for n >= 30, else the MAD form.

    Both estimate 1.28 standard deviations over the median when the values are normal: four fifths of all
    values lie within ±J% of the median.

    Returns:
        (percent, whether the MAD form was used), or None for fewer than two values or a median of 0.

    >>> jitter_pct([1.0] * 40)
    (0.0, False)
    """
    x = np.asarray(values, dtype=float)
    if x.size < 2:
        return None
    few = bool(x.size < J80_MIN_N)
    value = float((mad_rows if few else j80_rows)(x))
    return None if np.isnan(value) else (value, few)


def jitter_interval(values: Sequence[float] | Floats) -> tuple[float, float] | None:
    """Bootstrap interval of `jitter_pct`.

    J80 of few values is too small more often than too large, so its interval is corrected for that.
    """
    x = np.asarray(values, dtype=float)
    few = bool(x.size < J80_MIN_N)
    return bootstrap(x, mad_rows if few else j80_rows, corrected=not few)


def relative_to_group(values: Sequence[float], groups: Sequence[Hashable], min_size: int = 3) -> Floats:
    """Each value over the median of its group; groups too small to show any spread are left out.

    A group of one is its own median, so it would add a spread of 0 that nobody measured.

    >>> relative_to_group([1.0, 2.0, 3.0, 9.0], ["a", "a", "a", "b"]).tolist()
    [0.5, 1.0, 1.5]
    """
    by_group: dict[Hashable, list[float]] = {}
    for value, group in zip(values, groups, strict=True):
        by_group.setdefault(group, []).append(value)
    parts = [np.asarray(v) / np.median(v) for v in by_group.values() if len(v) >= min_size and np.median(v) > 0]
    return np.concatenate(parts) if parts else np.empty(0)
