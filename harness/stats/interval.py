"""Confidence intervals. Knows numbers only: no metric, no variant, no unit.

Every interval here is two-sided and 95% unless told otherwise. Random draws are seeded, so the same
data always give the same interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri, stdtrit

Floats = npt.NDArray[np.float64]
LEVEL = 0.95
SEED = 20240229


@dataclass(frozen=True, slots=True)
class Interval:
    """A value with its interval; ``low`` and ``high`` are None where the data allow none."""

    value: float
    low: float | None
    high: float | None
    n: int


def t_quantile(df: float, level: float = LEVEL) -> float:
    """Two-sided quantile of Student's t.

    >>> round(t_quantile(9), 3)
    2.262
    """
    return float(stdtrit(df, 0.5 + level / 2))


def z_quantile(level: float = LEVEL) -> float:
    """Two-sided quantile of the normal distribution.

    >>> round(z_quantile(), 3)
    1.96
    """
    return float(ndtri(0.5 + level / 2))


def t_interval(values: Sequence[float] | Floats, level: float = LEVEL) -> Interval:
    """Mean with Student's t interval: ``mean ± t(n-1) x sd / sqrt(n)``; no interval for n = 1.

    Raises:
        ValueError: If there are no values.

    >>> i = t_interval([1.0, 2.0, 3.0]); i.value, round(i.low, 4), round(i.high, 4)
    (2.0, -0.4841, 4.4841)
    """
    x = np.asarray(values, dtype=float)
    if x.size == 0:
        raise ValueError("t_interval: no values")
    mean = float(x.mean())
    if x.size < 2:
        return Interval(mean, None, None, 1)
    half = t_quantile(x.size - 1, level) * float(x.std(ddof=1)) / math.sqrt(x.size)
    return Interval(mean, mean - half, mean + half, int(x.size))


def log_t_factors(values: Sequence[float] | Floats, level: float = LEVEL, lost: int = 1) -> tuple[float, float] | None:
    """Relative interval of a positive quantity from its values per block.

    Formula: ``exp(∓ t(n - lost) x sd(ln x) / sqrt(n))``, to be multiplied with the pooled value.

    Args:
        values: One positive value per block. Shape (n,).
        level: Coverage.
        lost: Degrees of freedom used up; more than 1 where values were centred in several groups.

    Returns:
        (factor below 1, factor above 1), or None for too few blocks or a value <= 0.
    """
    x = np.asarray(values, dtype=float)
    if x.size <= lost or not np.all(np.isfinite(x)) or bool(np.any(x <= 0)):
        return None
    half = t_quantile(x.size - lost, level) * float(np.log(x).std(ddof=lost)) / math.sqrt(x.size)
    # A spread of hundreds of e-folds would overflow; such an interval says nothing anyway.
    return (math.exp(-half), math.exp(half)) if half < 300 else None


def wilson(successes: int, n: int, level: float = LEVEL) -> Interval:
    """Wilson score interval of a share.

    Formula: ``(p + z²/2n ± z sqrt(p(1-p)/n + z²/4n²)) / (1 + z²/n)``. Source: Wilson, JASA 22 (1927).

    Raises:
        ValueError: If n < 1 or successes is outside 0..n.

    >>> i = wilson(0, 100); round(i.low, 4), round(i.high, 4)
    (0.0, 0.037)
    """
    if n < 1 or not 0 <= successes <= n:
        raise ValueError(f"wilson: {successes} of {n}; expected 0 <= successes <= n, n >= 1")
    z, p = z_quantile(level), successes / n
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    return Interval(p, low, 1.0 if successes == n else min(1.0, centre + half), n)


def clustered_se(values: Sequence[float] | Floats, clusters: Sequence[Any]) -> tuple[float | None, int]:
    """Standard error of a mean whose values come in clusters (questions of one subject, say).

    Formula: ``sqrt(G/(G-1) x sum_c (sum_{i in c} (x_i - mean))²) / n``, G clusters.
    Source: Miller, "Adding error bars to evals" (2024), with the usual small-sample factor G/(G-1).

    Args:
        values: Shape (n,).
        clusters: The cluster of each value. Shape (n,).

    Returns:
        (standard error or None for fewer than two clusters, number of clusters).

    Raises:
        ValueError: If the lengths differ.
    """
    x = np.asarray(values, dtype=float)
    if x.size != len(clusters):
        raise ValueError(f"clustered_se: {x.size} values but {len(clusters)} clusters")
    code = {name: i for i, name in enumerate(dict.fromkeys(clusters))}
    groups = len(code)
    if groups < 2:
        return None, groups
    sums = np.bincount([code[name] for name in clusters], weights=x - x.mean(), minlength=groups)
    return math.sqrt(groups / (groups - 1) * float(np.sum(sums**2))) / x.size, groups


def share(successes: Sequence[bool], clusters: Sequence[Any] | None = None, level: float = LEVEL) -> Interval:
    """A share with the wider of Wilson's interval and, given clusters, the clustered t interval.

    The wider of the two, because a clustered error is itself uncertain with few clusters, and both it and
    the plain error are 0 when all values agree, which would claim certainty.

    Raises:
        ValueError: If there are no values.
    """
    n = len(successes)
    base = wilson(sum(bool(s) for s in successes), n, level)
    if clusters is None or base.low is None or base.high is None:
        return base
    se, groups = clustered_se([float(s) for s in successes], clusters)
    if se is None:
        return base
    half = t_quantile(groups - 1, level) * se
    return Interval(
        base.value, max(0.0, min(base.low, base.value - half)), min(1.0, max(base.high, base.value + half)), n
    )


def ratio_interval(numerators: Sequence[float], denominators: Sequence[float], level: float = LEVEL) -> Interval | None:
    """Ratio of sums with a t interval (linearised ratio estimator).

    Formula: ``R = sum a / sum b``, ``SE = sqrt(n/(n-1) sum (a_i - R b_i)²) / sum b``.

    Returns:
        The interval, without ends for n = 1; None if the denominators sum to 0.

    Raises:
        ValueError: If the lengths differ.
    """
    a, b = np.asarray(numerators, dtype=float), np.asarray(denominators, dtype=float)
    if a.size != b.size:
        raise ValueError(f"ratio_interval: {a.size} numerators but {b.size} denominators")
    total = float(b.sum())
    if total <= 0:
        return None
    value, n = float(a.sum()) / total, int(a.size)
    if n < 2:
        return Interval(value, None, None, n)
    half = t_quantile(n - 1, level) * math.sqrt(n / (n - 1) * float(np.sum((a - value * b) ** 2))) / total
    return Interval(value, value - half, value + half, n)


def bootstrap(
    values: Sequence[float] | Floats,
    statistic: Callable[[Floats], Floats],
    *,
    strata: Sequence[Any] | None = None,
    draws: int = 2000,
    seed: int = SEED,
    level: float = LEVEL,
) -> tuple[float, float] | None:
    """Percentile bootstrap of a statistic.

    Args:
        values: Shape (n,).
        statistic: Takes an array of shape (draws, n) and reduces its last axis.
        strata: Values are drawn within these groups only, so that the design (so many requests of each
            prompt length) stays as it was. Shape (n,).
        draws: Resamples.
        seed: Of the generator.
        level: Coverage.

    Returns:
        (low, high), or None for fewer than two values.
    """
    x = np.asarray(values, dtype=float)
    if x.size < 2:
        return None
    rng = np.random.default_rng(seed)
    labels = list(strata) if strata is not None else [0] * x.size
    picked = []
    for name in dict.fromkeys(labels):
        members = np.flatnonzero([label == name for label in labels])
        picked.append(members[rng.integers(0, members.size, size=(draws, members.size))])
    sample = statistic(x[np.concatenate(picked, axis=1)])
    low, high = np.percentile(sample, [50 * (1 - level), 50 * (1 + level)])
    return float(low), float(high)
