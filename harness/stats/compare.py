"""Paired comparison of variants measured in the same blocks.

A block is a stretch of time in which every compared variant ran, in mirrored order (A B B A, or
A B C ... C B A). Whatever drifts slowly (heat, clock, other load) then falls on all of them alike and
cancels in the ratio within the block.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from harness.record import Figure, missing
from harness.stats.interval import LEVEL, t_interval

VERDICT_BLOCKS = 10


def paired_ratio(log_rates: Mapping[int, float], reference: Mapping[int, float], level: float = LEVEL) -> Figure:
    """Ratio of two rates: the geometric mean over common blocks, with a t interval.

    Formula: ``d_b = ln(rate_b) - ln(reference_b)``; ``exp(mean(d) ± t(n-1) sd(d)/sqrt(n))``.

    Args:
        log_rates: ln(rate) of the variant by block.
        reference: ln(rate) of the reference by block.
        level: Coverage.

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
    return Figure(math.exp(d.value), math.exp(d.low), math.exp(d.high), len(blocks), reasons)
