"""Dominance and Pareto fronts, with uncertainty. Knows the catalogue's directions, no suite and no file.

A variant dominates another if it is at least as good on every objective and better on one. Exact
duplicates do not dominate each other, so both stay. A variant that lacks a figure for an objective is
left out of that view and listed: NaN compares as neither better nor worse and would never be dominated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.metrics.catalog import METRICS

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from harness.stats.compare import Launches

    Floats = npt.NDArray[np.float64]

SEED = 20240229
# A front compares each two of its variants, 36 pairs of nine: at 95% two alike would be set apart on most fronts.
TOLD_APART = 0.99


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A variant that a view cannot show, and the objectives it lacks."""

    name: str
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Front:
    """Names on the front, in the order given, and what was left out."""

    members: tuple[str, ...]
    left_out: tuple[LeftOut, ...]


def signs(objectives: Sequence[str]) -> list[float]:
    """1.0 where higher is better, -1.0 where lower is.

    Raises:
        KeyError: If a key is not in the catalogue.
        ValueError: If a figure has no better direction.
    """
    if any(METRICS[key].better == "none" for key in objectives):
        raise ValueError(f"objectives {list(objectives)}: a figure without a better direction makes no front")
    return [1.0 if METRICS[key].better == "higher" else -1.0 for key in objectives]


def dominates(a: Sequence[float], b: Sequence[float]) -> bool:
    """Whether a dominates b; higher is better on every axis.

    >>> dominates((1, 2), (1, 1)), dominates((1, 1), (1, 1))
    (True, False)
    """
    return all(x >= y for x, y in zip(a, b, strict=True)) and any(x > y for x, y in zip(a, b, strict=True))


def front(points: Mapping[str, Mapping[str, float | None]], objectives: Sequence[str]) -> Front:
    """The variants that no other dominates on these objectives.

    Args:
        points: Figures of each variant by catalogue key; None, NaN or infinity where there is none that ranks.
        objectives: Catalogue keys.
    """
    sign, kept, left = signs(objectives), dict[str, tuple[float, ...]](), list[LeftOut]()
    for name, figures in points.items():
        values = [figures.get(key) for key in objectives]
        lacking = tuple(k for k, v in zip(objectives, values, strict=True) if v is None or not math.isfinite(v))
        if lacking:
            left.append(LeftOut(name, lacking))
        else:
            kept[name] = tuple(s * v for s, v in zip(sign, values, strict=True) if v is not None)
    members = tuple(n for n, p in kept.items() if not any(dominates(q, p) for q in kept.values()))
    return Front(members, tuple(left))


def joint_draws(
    blocks: Floats,
    items: Floats,
    clusters: Sequence[object] | None = None,
    *,
    launched: Launches | None = None,
    draws: int = 1000,
    seed: int = SEED,
) -> Floats:
    """Bootstrap two figures of all variants at once, with the same blocks and items drawn for each.

    Drawing jointly keeps what variants share (a slow block, a hard question) from counting as a difference
    between them. Of n blocks (or clusters) n - 1 are drawn, which makes the variance of the mean unbiased
    for small n (Rao & Wu, JASA 83, 1988). The draws are then spread about their mean by t(n-1)/z, the quantiles of
    Student's t and of the normal distribution: else of two identical variants in ten rounds one would win in 9% of
    all cases instead of 5%.

    Args:
        blocks: ln(rate) by block. Shape (variants, blocks), NaN where missing.
        items: Scores by item. Shape (variants, items), NaN where missing.
        clusters: Items are drawn by these groups (the subject of a question). Shape (items,).
        launched: What is known of the launches that blocks belong to: their draws are spread by its t as well.
        draws: Resamples.
        seed: Of the generator.

    Returns:
        Shape (draws, variants, 2): mean score, then rate (geometric mean over blocks). NaN where a variant has nothing.
    """
    import numpy as np

    rng = np.random.default_rng(seed)
    scores = _resampled_means(np.asarray(items, dtype=float), clusters, draws, rng)
    rates = np.exp(_resampled_means(np.asarray(blocks, dtype=float), None, draws, rng, launched))
    return np.stack([scores, rates], axis=-1)


def _resampled_means(
    x: Floats, clusters: Sequence[object] | None, draws: int, rng: np.random.Generator, launched: Launches | None = None
) -> Floats:
    import numpy as np

    from harness.stats.compare import ALONE
    from harness.stats.interval import z_quantile

    labels = list(range(x.shape[1])) if clusters is None else list(clusters)
    code = {label: i for i, label in enumerate(dict.fromkeys(labels))}
    where = np.asarray([code[label] for label in labels], dtype=np.int64)
    have = np.isfinite(x)
    sums, counts = (np.zeros((len(code), x.shape[0])) for _ in range(2))
    np.add.at(sums, where, np.where(have, x, 0.0).T)
    np.add.at(counts, where, have.T.astype(float))
    n = len(code)
    weights = np.ones((draws, n)) if n < 2 else rng.multinomial(n - 1, np.full(n, 1 / n), size=draws).astype(float)
    # A draw may miss every block a variant has; its plain mean then stands in.
    total, mass = weights @ sums, weights @ counts
    with np.errstate(divide="ignore", invalid="ignore"):
        plain = sums.sum(axis=0) / counts.sum(axis=0)
        drawn = np.where(mass > 0, total / mass, plain)
    wider = 1.0 if n < 2 else (launched or ALONE).t(n) / z_quantile()
    result: Floats = plain + wider * (drawn - plain)
    return result


def p_front(names: Sequence[str], draws: Floats, objectives: Sequence[str]) -> dict[str, float]:
    """Share of joint draws in which each variant is on the front.

    Args:
        names: Shape (variants,).
        draws: Shape (draws, variants, objectives), in the figures' own direction.
        objectives: Catalogue keys of the last axis.

    Returns:
        Probabilities of the variants that have every objective; the others are left out.
    """
    import numpy as np

    ok = np.asarray(np.isfinite(draws).all(axis=(0, 2)))
    x = draws[:, ok, :] * np.asarray(signs(objectives))
    a, b = x[:, :, None, :], x[:, None, :, :]
    dominated = ((a >= b).all(axis=-1) & (a > b).any(axis=-1)).any(axis=1)
    share = 1.0 - dominated.mean(axis=0)
    kept = [name for name, keep in zip(names, ok.tolist(), strict=True) if keep]
    return {name: float(p) for name, p in zip(kept, share, strict=True)}


def difference(a: Floats, b: Floats, key: str, level: float = TOLD_APART) -> tuple[float, float, float]:
    """Interval and median of what sets a apart from b, from joint draws of both; shape (draws,) each.

    Formula: ``a / b - 1`` where the catalogue calls the figure's tolerance relative, else ``a - b``.
    """
    import numpy as np

    d = a / b - 1 if METRICS[key].relative else a - b
    low, middle, high = (float(x) for x in np.quantile(d, [(1 - level) / 2, 0.5, (1 + level) / 2]))
    return low, middle, high


def tied(names: Sequence[str], draws: Floats, objectives: Sequence[str], level: float = TOLD_APART) -> list[list[str]]:
    """Groups of variants that cannot be told apart on these objectives.

    Two variants cannot be told apart on an objective if the interval of their paired difference includes 0,
    or if its median is within the catalogue's tolerance, the smallest difference that matters (accuracy: 1
    point; speed: 3%). They are tied if that holds on every objective. In a group every two are tied: being
    tied does not carry over, so a chain is not a group. Groups are filled in the order of ``names``.

    Args:
        names: Shape (variants,).
        draws: Joint draws. Shape (draws, variants, objectives).
        objectives: Catalogue keys of the last axis.
        level: Of the interval.
    """
    import numpy as np

    def same(i: int, j: int) -> bool:
        for k, key in enumerate(objectives):
            low, middle, high = difference(draws[:, i, k], draws[:, j, k], key, level)
            # 1e-12: a difference of exactly one point must not fail for 0.58 - 0.57 = 0.010000000000000009.
            if not (low <= 0 <= high or abs(middle) <= METRICS[key].tolerance + 1e-12):
                return False
        return True

    groups: list[list[int]] = []
    for i in range(len(names)):
        if not bool(np.isfinite(draws[:, i, :]).all()):
            continue
        home = next((g for g in groups if all(same(i, j) for j in g)), None)
        if home is None:
            groups.append([i])
        else:
            home.append(i)
    return [[names[i] for i in g] for g in groups if len(g) > 1]
