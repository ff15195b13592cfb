"""Did the machine get slower or faster while it measured? Knows positions and rates only."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from harness.stats.interval import LEVEL, t_quantile

DRIFT_LIMIT = 0.05


@dataclass(frozen=True, slots=True)
class Drift:
    """Change of speed over a run.

    Attributes:
        change: Relative change from the first to the last position; -0.07 is 7% slower at the end.
        low, high: 95% interval of ``change``.
        n: Values it rests on.
        flagged: Whether the interval excludes 0 and the change passes 5%.
    """

    change: float
    low: float
    high: float
    n: int
    flagged: bool


def drift(
    positions: Sequence[float], rates: Sequence[float], groups: Sequence[Hashable], level: float = LEVEL
) -> Drift | None:
    """Slope of log rate over position, common to all groups.

    Formula: least squares of ``ln(rate) - mean of its group`` on ``position - mean of its group``, with
    ``n - G - 1`` degrees of freedom; ``change = exp(slope x (last - first)) - 1``.

    Args:
        positions: When each value was taken, in order of the run. Shape (n,).
        rates: Positive rates. Shape (n,).
        groups: Values of one group (variant and prompt length) share a level. Shape (n,).
        level: Coverage.

    Returns:
        The drift, or None where groups leave no degree of freedom or nothing varies in position.

    Raises:
        ValueError: If a rate is not positive.
    """
    x, y = np.asarray(positions, dtype=float), np.asarray(rates, dtype=float)
    if bool(np.any(y <= 0)):
        raise ValueError("drift: rates must be positive")
    labels = list(dict.fromkeys(groups))
    code = np.asarray([labels.index(g) for g in groups], dtype=np.int64)
    df = x.size - len(labels) - 1
    if df < 1:
        return None
    count = np.bincount(code)
    y = np.log(y)
    dx, dy = (v - (np.bincount(code, weights=v) / count)[code] for v in (x, y))
    sxx = float(np.sum(dx**2))
    if sxx <= 0:
        return None
    slope = float(np.sum(dx * dy)) / sxx
    half = t_quantile(df, level) * math.sqrt(float(np.sum((dy - slope * dx) ** 2)) / df / sxx)
    span = float(x.max() - x.min())
    change, low, high = (math.expm1(min(s * span, 300.0)) for s in (slope, slope - half, slope + half))
    flagged = abs(change) > DRIFT_LIMIT and (low > 0 or high < 0)
    return Drift(change, low, high, int(x.size), flagged)


def flat(durations: Sequence[float], last: int = 5) -> bool:
    """Whether repeated work has stopped getting faster or slower: no drift over the ``last`` durations.

    Args:
        durations: Seconds of equal pieces of work, in order.
        last: How many of them count; fewer values are never flat.

    >>> flat([3.0, 2.0, 1.5, 1.2, 1.1]), flat([3.0, 2.0, 1.0, 1.01, 0.99, 1.0, 1.01])
    (False, True)
    """
    if len(durations) < last:
        return False
    tail = durations[-last:]
    found = drift(range(last), [1 / seconds for seconds in tail], [0] * last)
    return found is not None and not found.flagged
