"""A machine whose speed drifts, simulated: how its log speed moves from trial to trial, and who is measured when.

Everything is in natural logarithms of a rate, one value a trial. Knows no engine, no file and no clock.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from functools import cache

import numpy as np
import numpy.typing as npt

from harness.suites.speed import palindrome

Floats = npt.NDArray[np.float64]
Drift = Callable[[np.random.Generator, int], Floats]
# Beside the drift, every trial has noise of its own.
NOISE = 0.02
# So many different schedules are drawn from; each run takes one of them.
SCHEDULES = 64


def steady(rng: np.random.Generator, n: int) -> Floats:
    """No drift at all."""
    return np.zeros(n)


def walk(step: float) -> Drift:
    """A random walk: after every trial the machine is another ``step`` faster or slower."""
    return lambda rng, n: np.asarray(np.cumsum(rng.normal(0, step, n)))


def slope(rng: np.random.Generator, n: int) -> Floats:
    """Steadily faster or slower by up to 40% from the first trial to the last, as a machine that heats up."""
    return np.linspace(0, rng.uniform(-0.5, 0.5), n)


def steps(rng: np.random.Generator, n: int) -> Floats:
    """Two changes of the level on average, each of about 30%, as neighbours come and go."""
    change = np.where(rng.random(n) < 2 / n, rng.normal(0, 0.3, n), 0.0)
    return np.asarray(np.cumsum(change))


def bursts(rng: np.random.Generator, n: int) -> Floats:
    """Heavy-tailed slow-downs: one in twelve trials starts one, 3 trials long on average, up to 25 times slower."""
    level = np.zeros(n)
    for start in np.flatnonzero(rng.random(n) < 1 / 12):
        level[start : start + rng.geometric(1 / 3)] -= min(0.1 * (1 + rng.pareto(1.5)), math.log(25))
    return level


def ar1(rng: np.random.Generator, n: int) -> Floats:
    """A speed that wanders by 10% about its mean and forgets a tenth of the way back at each trial (AR(1), 0.9)."""
    level, shocks = rng.normal(0, 0.1), rng.normal(0, 0.1 * math.sqrt(1 - 0.9**2), n)
    return np.asarray([level := 0.9 * level + shock for shock in shocks])


def tide(rng: np.random.Generator, n: int) -> Floats:
    """A wave of 15% whose length is that of a few trials or of many, as a job that wakes up on a timer."""
    return np.asarray(0.15 * np.sin(2 * np.pi * (np.arange(n) / rng.uniform(2, 40) + rng.random())))


def rough(rng: np.random.Generator, n: int) -> Floats:
    """No drift, but trials that scatter by 6.5%: then 3% is reached after some 15 to 30 rounds, by luck or not."""
    return np.asarray(rng.normal(0, 0.065, n))


DRIFTS: Mapping[str, Drift] = {
    "steady": steady,
    "walk 0.5%": walk(0.005),
    "walk 2%": walk(0.02),
    "walk 5%": walk(0.05),
    "slope": slope,
    "steps": steps,
    "bursts": bursts,
    "AR(1)": ar1,
    "tide": tide,
    "rough": rough,
}


def mirrored(drift: Drift, rng: np.random.Generator, levels: Sequence[float], rounds: int) -> list[dict[int, float]]:
    """Log rates by round of each variant, measured in the sweep's own order.

    Args:
        drift: How the machine moves.
        rng: Of drift, noise and order.
        levels: True log rate of each variant.
        rounds: Palindromic rounds; each takes every variant twice.

    Returns:
        One ``{round: log rate}`` for each variant; a round's rate is tokens over seconds of its two trials.
    """
    order = _order(len(levels), rounds, int(rng.integers(SCHEDULES)))
    seen = (drift(rng, order.size) + rng.normal(0, NOISE, order.size)).reshape(order.shape)
    found: list[dict[int, float]] = []
    for variant, level in enumerate(levels):
        two = seen[order == variant].reshape(rounds, 2)
        pooled = level + math.log(2) - np.logaddexp(-two[:, 0], -two[:, 1])
        found.append(dict(enumerate(pooled.tolist())))
    return found


@cache
def _order(n_variants: int, rounds: int, seed: int) -> npt.NDArray[np.int64]:
    """Who is measured when, as a sweep draws it. Shape (rounds, 2 n_variants)."""
    names = [str(variant) for variant in range(n_variants)]
    return np.asarray([[int(name) for name in palindrome(names, seed, number)] for number in range(rounds)])


def one_after_other(drift: Drift, rng: np.random.Generator, levels: Sequence[float], rounds: int) -> list[list[float]]:
    """Log rates of each variant when all trials of one are run before the next, as many as in `mirrored`."""
    n = 2 * rounds
    seen = drift(rng, n * len(levels)) + rng.normal(0, NOISE, n * len(levels))
    order = random.Random(int(rng.integers(2**31))).sample(range(len(levels)), len(levels))
    parts: list[list[float]] = [[] for _ in levels]
    for place, variant in enumerate(order):
        parts[variant] = (levels[variant] + seen[place * n : (place + 1) * n]).tolist()
    return parts
