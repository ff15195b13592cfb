"""How often a 95% interval holds the truth while the machine's speed drifts: simulated, so that the truth is known.

``python -m benchmarks.coverage`` takes the sweep's own schedule and the sweep's own statistics through every drift of
``benchmarks.drifts``, thousands of runs each, and prints how often the interval of the ratio held the true one, and how
wide it was:

paired     palindromic rounds over 2 variants (A B B A), and over 5
stopped    rounds until the interval is as narrow as asked for: 15 at least, then 5 more at a time, up to 30
sequential all trials of A, then as many of B, with the usual interval of a difference of two means

and the same for jitter, shares by subject, energy, the 95th percentile and absolute rates. These last cover only where
rounds vary independently of each other; under drift they do not, which is why comparisons are paired.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.drifts import DRIFTS, NOISE, Drift, mirrored, one_after_other
from benchmarks.ratios import conclude
from harness.metrics import estimators
from harness.metrics.precision import half_width
from harness.record import Figure
from harness.stats import interval, summary
from harness.stats.compare import paired_ratio

GOAL = 0.93
# What a sequential schedule must be seen to miss, or the drifts are too tame to show anything.
FAILS = {"sequential, walk 5%": 0.5, "sequential, slope": 0.5}
TRUTH = 1.2
LEAST, STEP, MOST, PRECISION = 15, 5, 30, 0.03
Ends = tuple[float | None, float | None]


class Tally:
    """How often intervals held the truth, and how wide they were."""

    def __init__(self) -> None:
        self.held: list[bool] = []
        self.widths: list[float] = []
        self.rounds: list[int] = []

    def add(self, ends: Ends, truth: float, rounds: int = 0) -> None:
        """Count one interval; one without ends holds nothing."""
        low, high = ends
        self.held.append(low is not None and high is not None and low <= truth <= high)
        if low is not None and high is not None:
            self.widths.append((high - low) / 2 / truth)
        self.rounds.append(rounds)

    def figure(self) -> dict[str, Any]:
        """The share that held the truth, with Wilson's interval, and half the median width, relative."""
        held = interval.wilson(sum(self.held), len(self.held))
        half = float(np.median(self.widths)) if self.widths else None
        return {"value": held.value, "low": held.low, "high": held.high, "n": held.n, "half_width": half}


def log_levels(variants: int) -> list[float]:
    """The reference, one that is faster by the truth, and as many others as asked for."""
    return [0.0, math.log(TRUTH), *np.linspace(-0.5, 0.5, variants - 2).tolist()]


def paired(drift: Drift, rng: np.random.Generator, variants: int, rounds: int) -> Figure:
    """One simulated run of a sweep: the second variant over the reference."""
    found = mirrored(drift, rng, log_levels(variants), rounds)
    return paired_ratio(found[1], found[0])


def stopped(drift: Drift, rng: np.random.Generator) -> tuple[Figure, int]:
    """A run that goes on until the interval is narrow enough; the ratio and the rounds it took."""
    ours, reference = reversed(mirrored(drift, rng, log_levels(2), MOST))
    for rounds in range(LEAST, MOST + 1, STEP):
        figure = paired_ratio({block: rate for block, rate in ours.items() if block < rounds}, reference)
        width = half_width(figure)
        if width is not None and width <= PRECISION:
            break
    return figure, rounds


def sequential(drift: Drift, rng: np.random.Generator, rounds: int) -> Ends:
    """Two variants one after the other, trials taken as independent: ``difference of means ± t(2n-2) SE``."""
    reference, ours = (np.asarray(logs) for logs in one_after_other(drift, rng, log_levels(2), rounds))
    difference, n = float(ours.mean() - reference.mean()), ours.size
    half = interval.t_quantile(2 * n - 2) * math.sqrt(float(ours.var(ddof=1) + reference.var(ddof=1)) / n)
    return math.exp(difference - half), math.exp(difference + half)


def under_drift(name: str, runs: int, seed: int) -> dict[str, Tally]:
    """All schedules through one drift."""
    drift, rng = DRIFTS[name], np.random.default_rng([seed, list(DRIFTS).index(name)])
    kinds = ("paired, 2", "paired, 5", "stopped", "sequential")
    found = {kind: Tally() for kind in kinds}
    for _ in range(runs):
        for variants, rounds in ((2, 10), (5, 15)):
            figure = paired(drift, rng, variants, rounds)
            found[f"paired, {variants}"].add((figure.low, figure.high), TRUTH, rounds)
        figure, rounds = stopped(drift, rng)
        found["stopped"].add((figure.low, figure.high), TRUTH, rounds)
        found["sequential"].add(sequential(drift, rng, 10), TRUTH, 10)
    return found


def _latencies(rng: np.random.Generator, spread: float, n: int) -> np.ndarray[Any, Any]:
    """Log-normal, 3% of them three times as long."""
    return np.exp(rng.normal(0, spread, n)) * np.where(rng.random(n) < 0.03, 3.0, 1.0)


def jitter(rng: np.random.Generator, spread: float, n: int) -> Ends:
    """Interval of J80, half of the requests with a prompt that takes twice as long."""
    lengths = np.arange(n) % 2
    values = _latencies(rng, spread, n) * (1 + lengths)
    return summary.jitter_interval(summary.relative_to_group(values.tolist(), lengths.tolist())) or (None, None)


def subjects(rng: np.random.Generator, share: float, correlation: float) -> Ends:
    """Interval of a share of 20 subjects of unequal sizes, whose own shares differ."""
    a, b = (p * (1 - correlation) / correlation for p in (share, 1 - share))
    which = np.repeat(np.arange(20), 1 + rng.geometric(1 / 20, 20))
    found = interval.share((rng.random(which.size) < rng.beta(a, b, 20)[which]).tolist(), which.tolist())
    return found.low, found.high


def energy(rng: np.random.Generator, windows: int) -> Ends:
    """Interval of joules per token (truth: 2) from windows of unequal length."""
    tokens = rng.choice([32.0, 64.0, 128.0], windows)
    found = interval.ratio_interval((2 * tokens * (1 + rng.normal(0, 0.1, windows))).tolist(), tokens.tolist())
    return (None, None) if found is None else (found.low, found.high)


def absolute(drift: Drift, rng: np.random.Generator, rounds: int) -> Ends:
    """Interval of tokens/s (truth: 100), two requests a round that share the machine's state."""
    levels = np.repeat(drift(rng, rounds), 2) + rng.normal(0, NOISE, 2 * rounds)
    rows = [estimators.Amount(i // 2, 64, 32.0, 0.32 * math.exp(-level)) for i, level in enumerate(levels)]
    figure = estimators.pooled_rows(rows)
    return figure.low, figure.high


def slowest(rng: np.random.Generator, n: int) -> Ends:
    """Interval of the 95th percentile of log-normal values."""
    return interval.percentile_interval(np.exp(rng.normal(0, 0.1, n)), 95) or (None, None)


def others(runs: int, seed: int) -> dict[str, Tally]:
    """The intervals that are not of ratios; those that take long get a quarter of the runs."""
    rng = np.random.default_rng([seed, 99])
    cases: dict[str, tuple[Callable[[], Ends], float, int]] = {}
    for spread, n in product((0.1, 0.3), (30, 50)):
        many = _latencies(rng, spread, 1_000_000)
        truth = float(summary.j80_rows(many / np.median(many)))
        cases[f"J80, n={n}, spread {spread:g}"] = partial(jitter, rng, spread, n), truth, runs // 4
    for share, correlation in ((0.3, 0.02), (0.3, 0.1), (0.9, 0.1)):
        name = f"share {share:g} of subjects, correlation {correlation:g}"
        cases[name] = partial(subjects, rng, share, correlation), share, runs
    for windows in (4, 10):
        cases[f"energy, {windows} windows"] = partial(energy, rng, windows), 2.0, runs
    cases["95th percentile, n=100"] = partial(slowest, rng, 100), math.exp(0.1 * interval.z_quantile(0.9)), runs
    for name in ("rough", "walk 5%", "AR(1)"):
        cases[f"absolute rate, {name}"] = partial(absolute, DRIFTS[name], rng, 15), 100.0, runs // 4
    found = {name: Tally() for name in cases}
    for name, (draw, truth, times) in cases.items():
        for _ in range(times):
            found[name].add(draw(), truth)
    return found


def wide(tallies: Mapping[str, Mapping[str, Tally]]) -> Table:
    """Coverage and width by drift and schedule."""
    kinds = list(next(iter(tallies.values())))
    table = Table("drift", *kinds, title="share of intervals that hold the true ratio, ± half their width")
    for name, row in tallies.items():
        cells = []
        for kind, tally in row.items():
            found = tally.figure()
            rounds = f", {np.mean(tally.rounds):.0f} rounds" if kind == "stopped" else ""
            cells.append(f"{found['value']:.1%} ±{found['half_width']:.1%}{rounds}")
        table.add_row(name, *cells)
    return table


def bounds(names: Sequence[str]) -> tuple[dict[str, float], dict[str, float]]:
    """What must hold, and what must be seen to fail."""
    covers = ("paired", "stopped", "J80", "share", "energy", "95th", "absolute rate, rough")
    return {name: GOAL for name in names if name.startswith(covers)}, FAILS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2000, help="simulated runs of each kind")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    drifting = {name: under_drift(name, args.runs, args.seed) for name in DRIFTS}
    Console(width=110).print(wide(drifting))
    figures = {f"{kind}, {name}": tally.figure() for name, row in drifting.items() for kind, tally in row.items()}
    figures |= {name: tally.figure() for name, tally in others(args.runs, args.seed).items()}
    title = f"share of 95% intervals that hold the truth, {args.runs} runs"
    return conclude("coverage", title, figures, *bounds(list(figures)))


if __name__ == "__main__":
    raise SystemExit(main())
