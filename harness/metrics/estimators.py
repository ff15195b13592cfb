"""From trials to one figure: pooled rates, medians, jitter, prefill. Knows no catalogue key.

Intervals of rates and medians are t intervals over per-block log values, applied as a factor, because
requests of one block share the state of the machine. Blocks are first put on equal prompt lengths: each
request counts over the rate or the median of its length, so a block that lost its long prompt does not
look fast. A length measured once is left out of the interval: compared with itself it shows no spread.

These intervals cover what differs from block to block, or from launch to launch, independently. Of a speed that wanders
over the whole run they know only the part of its way that they saw; `stats.drift` flags it, and ratios paired by block
do not depend on it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from harness.metrics import request
from harness.metrics.request import Trial
from harness.metrics.trials import prompt_groups
from harness.record import Figure, RequestRecord, missing
from harness.stats import compare, interval, summary

Value = Callable[[RequestRecord], float | None]


def with_ends(value: float, ends: tuple[float, float] | None, n: int, reasons: tuple[str, ...]) -> Figure:
    """A figure with both ends of its interval, or neither."""
    low, high = ends or (None, None)
    return Figure(value, low, high, n, reasons)


def factored(
    value: float,
    per_block: Mapping[int, float],
    launch: Mapping[int, int],
    per_trial: Sequence[float],
    lost: Lost,
    n: int,
) -> Figure:
    """A value with its interval from blocks; from single requests, flagged, where the blocks leave no freedom.

    ``launch``: of each block; the interval is wider where blocks of one launch go together.
    """
    values, wider = list(per_block.values()), 1.0
    if min(values, default=0) > 0:
        launched = compare.launches([(np.log(values).tolist(), [launch[block] for block in per_block])])
        wider = launched.wider(len(values))
    factors = interval.log_t_factors(values, lost=lost.blocks, wider=wider)
    if factors is not None:
        return Figure(value, value * factors[0], value * factors[1], n)
    factors = interval.log_t_factors(per_trial, lost=lost.trials)
    if factors is None:
        return Figure(value, n=n, reasons=("small_n",))
    return Figure(value, value * factors[0], value * factors[1], n, ("small_n",))


@dataclass(frozen=True, slots=True)
class Lost:
    """Degrees of freedom that centring by prompt length uses up.

    Attributes:
        blocks: Of the blocks: one for each set of lengths that shares no block with the others. With one length a
            block, each length's own mean is taken out; with all lengths in every block, only the overall mean.
        trials: Of the requests: one for each length.
    """

    blocks: int
    trials: int


def lost(pairs: Sequence[tuple[int, int]]) -> Lost:
    """From ``(block, prompt length)`` of each request.

    >>> lost([(0, 16), (1, 48), (2, 16)]), lost([(0, 16), (0, 48), (1, 16), (1, 48)])
    (Lost(blocks=2, trials=2), Lost(blocks=1, trials=2))
    """
    sets: list[tuple[set[int], set[int]]] = []
    for block, group in pairs:
        touching = [found for found in sets if block in found[0] or group in found[1]]
        merged = ({block}.union(*(b for b, _ in touching)), {group}.union(*(g for _, g in touching)))
        sets = [found for found in sets if found not in touching] + [merged]
    return Lost(len(sets), len({group for _, group in pairs}))


def repeated(groups: Sequence[int]) -> set[int]:
    """The prompt lengths measured more than once."""
    return {g for g, count in Counter(groups).items() if count > 1}


@dataclass(frozen=True, slots=True)
class Amount:
    """What one trial contributes to a pooled rate."""

    block: int
    group: int
    amount: float
    per: float
    launch: int = 0


def amounts(trials: Sequence[Trial], amount: Value, per: Value) -> list[Amount]:
    """The contributions of all trials that have both quantities."""
    rows = []
    for trial, group in zip(trials, prompt_groups(trials), strict=True):
        a, b = amount(trial.record), per(trial.record)
        if a is not None and b is not None and b > 0:
            rows.append(Amount(trial.block, group, a, b, trial.launch))
    return rows


def block_ratios(rows: Sequence[Amount]) -> dict[int, float]:
    """Each block's rate over the rate expected for its mix of prompt lengths.

    Formula: ``sum over its requests of amount / (pooled rate of that length), over sum of per``.
    """
    totals: dict[int, list[float]] = {}
    for row in rows:
        total = totals.setdefault(row.group, [0.0, 0.0])
        total[0] += row.amount
        total[1] += row.per
    sums: dict[int, list[float]] = {}
    for row in rows:
        amount, per = totals[row.group]
        block = sums.setdefault(row.block, [0.0, 0.0])
        block[0] += row.amount * per / amount if amount > 0 else 0.0
        block[1] += row.per
    return {b: expected / actual for b, (expected, actual) in sorted(sums.items())}


def pooled_rows(rows: Sequence[Amount]) -> Figure:
    """Amounts over amounts (tokens over seconds), never the mean of rates."""
    if not rows:
        return missing("undefined")
    value = sum(r.amount for r in rows) / sum(r.per for r in rows)
    again = repeated([r.group for r in rows])
    spread = [r for r in rows if r.group in again]
    per_trial = block_ratios([replace(r, block=i) for i, r in enumerate(spread)])
    freedom = lost([(r.block, r.group) for r in spread])
    launch = {r.block: r.launch for r in spread}
    return factored(value, block_ratios(spread), launch, list(per_trial.values()), freedom, len(rows))


def pooled(trials: Sequence[Trial], amount: Value, per: Value) -> Figure:
    """`pooled_rows` of two quantities of a request."""
    return pooled_rows(amounts(trials, amount, per))


def valued(trials: Sequence[Trial], value: Value) -> tuple[list[Trial], list[float]]:
    """The trials in which a quantity has a value, and the values."""
    pairs = [(t, v) for t in trials if (v := value(t.record)) is not None]
    return [t for t, _ in pairs], [v for _, v in pairs]


def median(trials: Sequence[Trial], value: Value) -> Figure:
    """Median over requests. Where values reach 0 its interval is a bootstrap within prompt lengths."""
    kept, values = valued(trials, value)
    if not values:
        return missing("undefined")
    groups = prompt_groups(kept)
    middle = balanced_median(values, groups)
    if min(values) <= 0:
        ends = interval.bootstrap(values, lambda x: np.median(x, axis=-1), strata=groups)
        return with_ends(middle, ends, len(values), () if ends else ("small_n",))
    again = repeated(groups)
    relative = over_median(values, groups)
    rows = [(t.block, r) for t, r, g in zip(kept, relative, groups, strict=True) if g in again]
    freedom = lost([(t.block, g) for t, g in zip(kept, groups, strict=True) if g in again])
    return factored(middle, _block_medians(rows), _launch(kept), [r for _, r in rows], freedom, len(values))


def _launch(trials: Sequence[Trial]) -> dict[int, int]:
    """The launch of each block."""
    return {trial.block: trial.launch for trial in trials}


def balanced_median(values: Sequence[float], groups: Sequence[int]) -> float:
    """Median in which every prompt length weighs the same, however many of its requests count.

    >>> balanced_median([1.0, 1.0, 1.0, 9.0], [16, 16, 16, 48])
    5.0
    """
    counts = Counter(groups)
    whole = math.lcm(*counts.values())
    return float(np.median(np.repeat(values, [whole // counts[group] for group in groups])))


def over_median(values: Sequence[float], groups: Sequence[int]) -> list[float]:
    """Each value over the median of its group."""
    by_group: dict[int, list[float]] = {}
    for v, g in zip(values, groups, strict=True):
        by_group.setdefault(g, []).append(v)
    centre = {g: float(np.median(v)) for g, v in by_group.items()}
    return [v / centre[g] for v, g in zip(values, groups, strict=True)]


def _block_medians(rows: Sequence[tuple[int, float]]) -> dict[int, float]:
    blocks: dict[int, list[float]] = {}
    for block, r in rows:
        blocks.setdefault(block, []).append(r)
    return {b: float(np.median(r)) for b, r in sorted(blocks.items())}


def block_log_medians(trials: Sequence[Trial], value: Value) -> dict[int, float]:
    """Natural logarithm of a positive quantity in each block, put on equal prompt lengths around the overall median."""
    kept, values = valued(trials, value)
    if not values or min(values) <= 0:
        return {}
    middle = balanced_median(values, prompt_groups(kept))
    relative = over_median(values, prompt_groups(kept))
    blocks = _block_medians([(t.block, r) for t, r in zip(kept, relative, strict=True)])
    return {b: math.log(middle * r) for b, r in blocks.items()}


def mean(trials: Sequence[Trial], value: Value) -> Figure:
    """Mean over requests of a quantity that is never negative."""
    _, values = valued(trials, value)
    if not values:
        return missing("undefined")
    i = interval.t_interval(values)
    low = None if i.low is None else max(0.0, i.low)
    return Figure(i.value, low, i.high, i.n, () if i.n > 1 else ("small_n",))


def p95(trials: Sequence[Trial], value: Value) -> Figure:
    """95th percentile over requests, flagged below 20 of them; its interval, by order of values, needs 72 of them."""
    _, values = valued(trials, value)
    if not values:
        return missing("undefined")
    ends = interval.percentile_interval(values, 95)
    reasons = () if summary.enough_for_percentile(95, len(values)) else ("small_n",)
    return with_ends(summary.percentile(values, 95), ends, len(values), reasons)


def jitter(trials: Sequence[Trial], value: Value) -> Figure:
    """J80 of a quantity over the median of its prompt length; the MAD form, flagged, below 30 requests."""
    kept, values = valued(trials, value)
    relative = summary.relative_to_group(values, prompt_groups(kept))
    found = summary.jitter_pct(relative)
    if found is None:
        return missing("small_n", n=int(relative.size))
    ends = summary.jitter_interval(relative)
    return with_ends(found[0], ends, int(relative.size), ("small_n",) if found[1] else ())


def gap_jitter(trials: Sequence[Trial]) -> Figure:
    """Jitter of the gaps within a request, median over requests."""
    few = False

    def within(record: RequestRecord) -> float | None:
        nonlocal few
        found = summary.jitter_pct(request.icl_s(record) or [])
        few = few or (found is not None and found[1])
        return None if found is None else found[0]

    figure = median(trials, within)
    return replace(figure, reasons=tuple(dict.fromkeys((*figure.reasons, "small_n")))) if few else figure


def gap_p95(trials: Sequence[Trial]) -> Figure:
    """95th percentile of all gaps between arrivals."""
    by_block: dict[int, list[float]] = {}
    for trial in trials:
        by_block.setdefault(trial.block, []).extend(request.icl_s(trial.record) or [])
    gaps = [gap for block in by_block.values() for gap in block]
    if not gaps:
        return missing("undefined")
    per_block = {b: summary.percentile(g, 95) for b, g in by_block.items() if g}
    figure = factored(summary.percentile(gaps, 95), per_block, _launch(trials), [], Lost(1, 1), len(gaps))
    if not summary.enough_for_percentile(95, len(gaps)):
        figure = replace(figure, reasons=("small_n",))
    return figure


def prefill(trials: Sequence[Trial]) -> Figure:
    """Prefill tokens/s: 1 / slope of TTFT on prompt length, over at least three lengths.

    Least squares, with a t interval from robust (HC3) errors, because long prompts scatter more.
    """
    kept, values = valued(trials, request.ttft_s)
    if len(set(prompt_groups(kept))) < 3:
        return missing("undefined", n=len(values))
    x, y = np.asarray([t.prompt_tokens for t in kept], dtype=float), np.asarray(values)
    dx = x - x.mean()
    sxx = float(np.sum(dx**2))
    slope = float(np.sum(dx * y)) / sxx
    if slope <= 0:
        return missing("undefined", n=len(values))
    leverage = 1 / x.size + dx**2 / sxx
    residual = y - y.mean() - slope * dx
    with np.errstate(divide="ignore", invalid="ignore"):
        se = math.sqrt(float(np.sum((dx * residual / (1 - leverage)) ** 2))) / sxx
    half = interval.t_quantile(x.size - 2) * se
    if not math.isfinite(half) or slope - half <= 0:
        return Figure(1 / slope, n=len(values), reasons=("small_n",))
    return Figure(1 / slope, 1 / (slope + half), 1 / (slope - half), len(values))
