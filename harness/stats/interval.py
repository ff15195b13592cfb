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
from scipy.special import bdtr, ndtr, ndtri, stdtrit

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


def log_t_factors(
    values: Sequence[float] | Floats, level: float = LEVEL, lost: int = 1, wider: float = 1.0
) -> tuple[float, float] | None:
    """Relative interval of a positive quantity from its values per block.

    Formula: ``exp(∓ wider x t(n - lost) x sd(ln x) / sqrt(n))``, to be multiplied with the pooled value.

    Args:
        values: One positive value per block. Shape (n,).
        level: Coverage.
        lost: Degrees of freedom used up; more than 1 where values were centred in several groups.
        wider: Of values that do not vary independently.

    Returns:
        (factor below 1, factor above 1), or None for too few blocks or a value <= 0.
    """
    x = np.asarray(values, dtype=float)
    if x.size <= lost or not np.all(np.isfinite(x)) or bool(np.any(x <= 0)):
        return None
    half = wider * t_quantile(x.size - lost, level) * float(np.log(x).std(ddof=lost)) / math.sqrt(x.size)
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


def effective_number(sizes: Sequence[float] | Floats) -> float:
    """How many equal parts tell as much as these unequal ones; 2 at least, so that one degree of freedom is left.

    Formula: ``(sum m)² / sum m²``.

    >>> effective_number([5.0, 5.0, 5.0]), effective_number([97.0, 1.0, 1.0, 1.0])
    (3.0, 2.0)
    """
    m = np.asarray(sizes, dtype=float)
    return max(2.0, float(m.sum() ** 2 / np.sum(m**2)))


def clustered_se(values: Sequence[float] | Floats, clusters: Sequence[Any]) -> tuple[float | None, float]:
    """Standard error of a mean whose values come in clusters (questions of one subject, say), by the jackknife.

    Formula: ``sqrt((G-1)/G x sum_c (mean without c - their mean)²)``, G clusters. With clusters of one size it is
    ``sqrt(G/(G-1) x sum_c (sum_{i in c} (x_i - mean))²) / n``; with unequal ones that is too small.
    Source: Miller, "Adding error bars to evals" (2024); Bell & McCaffrey, Survey Methodology 28 (2002).

    Args:
        values: Shape (n,).
        clusters: The cluster of each value. Shape (n,).

    Returns:
        (standard error or None for fewer than two clusters, `effective_number` of clusters or 1).

    Raises:
        ValueError: If the lengths differ.
    """
    x = np.asarray(values, dtype=float)
    if x.size != len(clusters):
        raise ValueError(f"clustered_se: {x.size} values but {len(clusters)} clusters")
    code = {name: i for i, name in enumerate(dict.fromkeys(clusters))}
    if len(code) < 2:
        return None, len(code)
    where = [code[name] for name in clusters]
    sums, sizes = np.bincount(where, weights=x - x.mean()), np.bincount(where)
    return _jackknife((sums.sum() - sums) / (x.size - sizes)), effective_number(sizes.astype(float))


def _jackknife(left_out: Floats) -> float:
    """Standard error from the estimates without each part."""
    n = left_out.size
    return math.sqrt((n - 1) / n * float(np.sum((left_out - left_out.mean()) ** 2)))


def share(successes: Sequence[bool], clusters: Sequence[Any] | None = None, level: float = LEVEL) -> Interval:
    """A share with Wilson's interval; given clusters, the same on as many values as the clusters are worth.

    Formula: all p with ``(share - p)² <= t² p (1 - p) / n'``, t at the effective number of clusters less 1, and
    ``n' = share (1 - share) / SE²``, at most n. Never narrower than Wilson's; unlike ``share ± t SE`` it bends away
    from 0 and 1 and claims no certainty where all values agree.
    Source: Dean & Pagano, J Surv Stat Methodol 3 (2015), on the score interval with an effective sample size.

    Raises:
        ValueError: If there are no values.
    """
    n, hits = len(successes), sum(bool(s) for s in successes)
    se, groups = (None, 1.0) if clusters is None else clustered_se([float(s) for s in successes], clusters)
    if se is None:
        return wilson(hits, n, level)
    p = hits / n
    worth = min(float(n), p * (1 - p) / se**2) if se > 0 else float(n)
    low, high = _score_ends(p, t_quantile(groups - 1, level) ** 2 / worth)
    return Interval(p, low, high, n)


def _score_ends(p: float, width: float) -> tuple[float, float]:
    """Both solutions q of ``(p - q)² = width x q (1 - q)``."""
    centre = (p + width / 2) / (1 + width)
    half = math.sqrt(width * p * (1 - p) + width * width / 4) / (1 + width)
    return (0.0 if p == 0 else max(0.0, centre - half)), (1.0 if p == 1 else min(1.0, centre + half))


def ratio_interval(numerators: Sequence[float], denominators: Sequence[float], level: float = LEVEL) -> Interval | None:
    """Ratio of sums with a t interval from the jackknife.

    Formula: ``R = sum a / sum b``; SE from the ratios without each part in turn, t at `effective_number` of the
    denominators less 1: a long window counts for more, and few long ones leave little freedom.

    Returns:
        The interval, without ends for n = 1 or where one part is the whole; None if the denominators sum to 0.

    Raises:
        ValueError: If the lengths differ.
    """
    a, b = np.asarray(numerators, dtype=float), np.asarray(denominators, dtype=float)
    if a.size != b.size:
        raise ValueError(f"ratio_interval: {a.size} numerators but {b.size} denominators")
    total, n = float(b.sum()), int(a.size)
    if total <= 0:
        return None
    value = float(a.sum()) / total
    if n < 2 or float(b.max()) >= total:
        return Interval(value, None, None, n)
    se = _jackknife((a.sum() - a) / (total - b))
    half = t_quantile(effective_number(b) - 1, level) * se
    return Interval(value, value - half, value + half, n)


def percentile_interval(values: Sequence[float] | Floats, q: float, level: float = LEVEL) -> tuple[float, float] | None:
    """Interval of the q-th percentile from the sorted values: right for any distribution, and often a little wide.

    Formula: ``x_(l) .. x_(u)``, the innermost with ``P(B < l) <= (1 - level)/2 >= P(B >= u)``, B ~ Binomial(n, q).
    A bootstrap cannot look beyond the largest value: of 20 values its interval for the 95th percentile holds the
    truth in 2 of 3 cases.

    Returns:
        (low, high), or None for values too few to bound it: fewer than 72 for the 95th percentile.
    """
    x = np.sort(np.asarray(values, dtype=float))
    tail, counts = (1 - level) / 2, np.arange(x.size + 1)
    below = bdtr(counts, x.size, q / 100)  # P(B <= count)
    lows, highs = counts[1:][below[:-1] <= tail], counts[1:][1 - below[:-1] <= tail]
    if lows.size == 0 or highs.size == 0:
        return None
    return float(x[lows[-1] - 1]), float(x[highs[0] - 1])


def bootstrap(
    values: Sequence[float] | Floats,
    statistic: Callable[[Floats], Floats],
    *,
    strata: Sequence[Any] | None = None,
    draws: int = 2000,
    seed: int = SEED,
    level: float = LEVEL,
    corrected: bool = False,
) -> tuple[float, float] | None:
    """Percentile bootstrap of a statistic, widened for few values.

    Formula: the quantiles of the draws at ``Phi(∓ t(n-1) sqrt(n/(n-1)))``, each shifted by ``2 Phi^-1(share of draws
    below the statistic)`` where ``corrected``. Source: Hesterberg, American Statistician 69 (2015), section 3.2;
    Efron & Tibshirani, "An introduction to the bootstrap" (1993), section 14.3.

    Args:
        values: Shape (n,).
        statistic: Takes an array of shape (draws, n) and reduces its last axis.
        strata: Values are drawn within these groups only, so that the design (so many requests of each
            prompt length) stays as it was. Shape (n,).
        draws: Resamples.
        seed: Of the generator.
        level: Coverage.
        corrected: For a statistic that is too small in small samples, such as a spread.

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
    reach = t_quantile(x.size - 1, level) * math.sqrt(x.size / (x.size - 1))
    shift = _bias(sample, float(statistic(x[None, :])[0])) if corrected else 0.0
    low, high = np.quantile(sample, [float(ndtr(shift - reach)), float(ndtr(shift + reach))])
    return float(low), float(high)


def _bias(sample: Floats, value: float) -> float:
    """How far the draws lie below the statistic, in standard deviations, doubled."""
    below = float(np.mean(sample < value) + np.mean(sample == value) / 2)
    least = 1 / (2 * sample.size)
    return 2 * float(ndtri(min(max(below, least), 1 - least)))
