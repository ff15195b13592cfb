"""Paired comparison of variants measured in the same blocks.

A block is a stretch of time in which every compared variant ran, in mirrored order (A B B A, or
A B C ... C B A). Whatever drifts slowly (heat, clock, other load) then falls on all of them alike and
cancels in the ratio within the block.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness.record import Figure, missing
from harness.stats.interval import LEVEL, t_quantile

VERDICT_BLOCKS = 10


@dataclass(frozen=True, slots=True)
class Launches:
    """How far blocks of one launch go together, and how well that is known.

    A process keeps its luck (where its memory lies, which CPUs its threads got) until it ends: identical processes
    differed in speed by some percent for as long as they lived.

    Attributes:
        factor: By how much the variance of a mean over blocks is larger for it, at least 1.
        blocks: Blocks a launch.
        compared: Comparisons it was found from.
    """

    factor: float = 1.0
    blocks: float = 1.0
    compared: int = 0

    def t(self, n: int, level: float = LEVEL) -> float:
        """Student's t for the mean of n blocks, times ``sqrt(factor)``.

        Formula: with L launches the variance ``factor x s²`` has ``(n - 1)² / ((L - 1) factor² + (n - L) w²)`` degrees
        of freedom, ``w = (n - 1 - (L - 1) factor) / (n - L)`` the share of s² within launches. They are at most
        ``(L - 1) k / (1 + (k - 1) / 4)``, by which the factor is known from k comparisons: all share the reference's
        launches, so that each two correlate by a half. ``n - 1`` where the factor is 1.
        Source: Satterthwaite, Biometrics Bulletin 2 (1946).

        >>> round(Launches().t(10), 3), round(Launches(2.0, 3.0, 1).t(15) / math.sqrt(2), 3)
        (2.262, 2.776)
        """
        return math.sqrt(self.factor) * t_quantile(self._df(n), level)

    def wider(self, n: int) -> float:
        """By how much an interval over n blocks that knows nothing of launches is too narrow."""
        return self.t(n) / t_quantile(n - 1) if n > 1 else 1.0

    def _df(self, n: int) -> float:
        if self.factor == 1:
            return n - 1
        between = max(0.0, n / self.blocks - 1)
        within = n - 1 - between
        rest = max(0.0, n - 1 - between * self.factor) / within
        free = (n - 1) ** 2 / (between * self.factor**2 + within * rest**2)
        known = between * self.compared / (1 + (self.compared - 1) / 4)
        return max(1.0, min(n - 1, free, known))


ALONE = Launches()


def launches(compared: Sequence[tuple[Sequence[float], Sequence[Hashable]]]) -> Launches:
    """What the comparisons of a run tell of its launches.

    Formula: the factor is the mean over comparisons of ``MSB / s²``, with ``s²`` the variance of all values, and
    ``MSB = sum_l n_l (mean_l - mean)² / (L - 1)`` that of its L launches; its expectation is 1 where launches do not
    differ. One for all comparisons, since a few launches of one variant tell little.
    Source: Kalibera & Jones, "Rigorous benchmarking in reasonable time" (ISMM 2013), on repetition at several levels.

    Args:
        compared: For each comparison its values by block, and each block's launch.

    >>> found = launches([([1.0, 1.2, 2.0, 2.2], ["a", "a", "b", "b"])])
    >>> round(found.factor, 3), found.blocks, found.compared
    (2.885, 2.0, 1)
    """
    found: list[float] = []
    blocks = starts = 0
    for values, of in compared:
        x = np.asarray(values, dtype=float)
        groups: dict[Hashable, list[float]] = {}
        for value, launch in zip(values, of, strict=True):
            groups.setdefault(launch, []).append(value)
        if len(groups) < 2 or x.size <= len(groups) or x.var() <= 0:
            continue
        between = math.fsum(len(g) * (math.fsum(g) / len(g) - float(x.mean())) ** 2 for g in groups.values())
        found.append(between / (len(groups) - 1) / float(x.var(ddof=1)))
        blocks, starts = blocks + x.size, starts + len(groups)
    if not found:
        return ALONE
    return Launches(max(1.0, math.fsum(found) / len(found)), blocks / starts, len(found))


def paired_ratio(
    log_rates: Mapping[int, float], reference: Mapping[int, float], level: float = LEVEL, launched: Launches = ALONE
) -> Figure:
    """Ratio of two rates: the geometric mean over common blocks, with a t interval.

    Formula: ``d_b = ln(rate_b) - ln(reference_b)``; ``exp(mean(d) ± t sd(d) / sqrt(n))``, t that of ``launched``.

    Args:
        log_rates: ln(rate) of the variant by block.
        reference: ln(rate) of the reference by block.
        level: Coverage.
        launched: What the run tells of its launches.

    Returns:
        The ratio; `small_n` below 10 common blocks; `undefined` without any.

    >>> paired_ratio({0: math.log(3), 1: math.log(6)}, {0: math.log(2), 1: math.log(4)}).value
    1.5
    """
    blocks = sorted(log_rates.keys() & reference.keys())
    if not blocks:
        return missing("undefined")
    d = np.array([log_rates[b] - reference[b] for b in blocks])
    n, mean = len(blocks), float(d.mean())
    reasons = () if n >= VERDICT_BLOCKS else ("small_n",)
    half = launched.t(n, level) * float(d.std(ddof=1)) / math.sqrt(n) if n > 1 else math.inf
    # A spread of hundreds of e-folds would overflow; such an interval says nothing anyway.
    if half > 300:
        return Figure(math.exp(mean), n=n, reasons=reasons)
    return Figure(math.exp(mean), math.exp(mean - half), math.exp(mean + half), n, reasons)
