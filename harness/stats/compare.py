"""Paired comparison of variants measured in the same blocks.

A block is a stretch of time in which every compared variant ran, in mirrored order (A B B A, or
A B C ... C B A). Whatever drifts slowly (heat, clock, other load) then falls on all of them alike and
cancels in the ratio within the block.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from harness.record import Figure, missing
from harness.stats.interval import LEVEL, t_interval

VERDICT_BLOCKS = 10


def launch_factor(compared: Sequence[tuple[Sequence[float], Sequence[Hashable]]]) -> float:
    """By how much the variance of a mean over blocks is larger since blocks of one launch go together, at least 1.

    A process keeps its luck (where its memory lies, which CPUs its threads got) until it ends: identical processes
    differed in speed by some percent for as long as they lived.

    Formula: mean over comparisons of ``MSB / s²``, with ``s²`` the variance of all values, and
    ``MSB = sum_l n_l (mean_l - mean)² / (L - 1)`` that of its L launches; its expectation is 1 where launches do not
    differ. One factor for all comparisons of a run, since a few launches of one variant tell little.
    Source: Kalibera & Jones, "Rigorous benchmarking in reasonable time" (ISMM 2013), on repetition at several levels.

    Args:
        compared: For each comparison its values by block, and each block's launch.

    >>> round(launch_factor([([1.0, 1.2, 2.0, 2.2], ["a", "a", "b", "b"])]), 3)
    2.885
    """
    found = []
    for values, launches in compared:
        x = np.asarray(values, dtype=float)
        groups: dict[Hashable, list[float]] = {}
        for value, launch in zip(values, launches, strict=True):
            groups.setdefault(launch, []).append(value)
        if len(groups) < 2 or x.size <= len(groups) or x.var() <= 0:
            continue
        between = math.fsum(len(g) * (math.fsum(g) / len(g) - float(x.mean())) ** 2 for g in groups.values())
        found.append(between / (len(groups) - 1) / float(x.var(ddof=1)))
    return max(1.0, math.fsum(found) / len(found)) if found else 1.0


def paired_ratio(
    log_rates: Mapping[int, float], reference: Mapping[int, float], level: float = LEVEL, factor: float = 1.0
) -> Figure:
    """Ratio of two rates: the geometric mean over common blocks, with a t interval.

    Formula: ``d_b = ln(rate_b) - ln(reference_b)``; ``exp(mean(d) ± t(n-1) sd(d) sqrt(factor / n))``.

    Args:
        log_rates: ln(rate) of the variant by block.
        reference: ln(rate) of the reference by block.
        level: Coverage.
        factor: ``launch_factor`` of the run.

    Returns:
        The ratio; `small_n` below 10 common blocks; `undefined` without any.

    >>> paired_ratio({0: math.log(3), 1: math.log(6)}, {0: math.log(2), 1: math.log(4)}).value
    1.5
    """
    blocks = sorted(log_rates.keys() & reference.keys())
    if not blocks:
        return missing("undefined")
    d = t_interval([log_rates[b] - reference[b] for b in blocks], level)
    reasons = () if len(blocks) >= VERDICT_BLOCKS else ("small_n",)
    if d.low is None or d.high is None or d.high > 300:
        return Figure(math.exp(d.value), n=len(blocks), reasons=reasons)
    half = (d.high - d.value) * math.sqrt(factor)
    return Figure(math.exp(d.value), math.exp(d.value - half), math.exp(d.value + half), len(blocks), reasons)
