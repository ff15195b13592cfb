"""How long an agent waits that makes several calls one after the other. Knows requests, no engine.

An agent's calls follow each other, so they meet the machine in one state: a slow minute makes all of them slow. Its
wait is therefore summed over requests that followed each other in the run, never over requests picked at random, which
would average such minutes away. Each request is first put on equal prompt lengths, so that a chance mix of lengths does
not look like unsteadiness.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from harness.metrics import estimators as est
from harness.metrics import request
from harness.metrics.request import Trial
from harness.metrics.trials import prompt_groups
from harness.record import Figure, missing
from harness.stats import summary
from harness.stats.compare import VERDICT_BLOCKS
from harness.stats.interval import Floats
from harness.stats.quantile import quantile_interval


def agent_wait(calls: int, q: float) -> Callable[[Sequence[Trial]], Figure]:
    """The q-th percentile, over all agents that the run holds, of the sum of so many end-to-end times, seconds.

    An agent starts at every request and takes it and those after it; the last ones go on at the beginning. The interval
    rests on agents that share no request, and is that of a percentile of normal values. `small_n` below 10 blocks, and
    for a percentile that so few such agents do not support.
    """

    def compute(trials: Sequence[Trial]) -> Figure:
        kept, seconds = est.valued(trials, request.e2e_s)
        if not seconds:
            return missing("undefined")
        x = levelled(kept, seconds)
        value = summary.percentile(np.sum([np.roll(x, -k) for k in range(calls)], axis=0), q)
        apart = x.size // calls
        blocks = len({t.block for t in kept})
        few = blocks < VERDICT_BLOCKS or (q > 50 and not summary.enough_for_percentile(q, apart))
        ends = _ends(x[: apart * calls].reshape(apart, calls).sum(axis=1), q, kept, blocks)
        inside = None if ends is None else (max(0.0, min(ends[0], value)), max(ends[1], value))
        return est.with_ends(value, inside, len(seconds), ("small_n",) if few or inside is None else ())

    return compute


def _ends(waits: Floats, q: float, trials: Sequence[Trial], blocks: int) -> tuple[float, float] | None:
    """The interval; centring by length took some of the spread between blocks, which is given back."""
    lost = est.lost([(t.block, group) for t, group in zip(trials, prompt_groups(trials), strict=True)]).blocks
    return None if blocks <= lost else quantile_interval(waits, q, spread=math.sqrt((blocks - 1) / (blocks - lost)))


def levelled(trials: Sequence[Trial], seconds: Sequence[float]) -> Floats:
    """Requests in the order they ran, put on equal prompt lengths: ``x - mean of its length + mean of these means``."""
    groups, x = np.asarray(prompt_groups(trials)), np.asarray(seconds, dtype=float)
    means = {int(group): float(x[groups == group].mean()) for group in np.unique(groups)}
    found: Floats = x - np.array([means[int(group)] for group in groups]) + float(np.mean(list(means.values())))
    return found[np.argsort([t.position for t in trials], kind="stable")]
