"""Bootstrap of shares whose items stand or fall together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

DRAWS = 2000
Floats = npt.NDArray[np.float64]


def share_draws(clusters: Sequence[str], hits: Sequence[float], seed: int, draws: int = DRAWS) -> Floats:
    """Bootstrap draws of a mean; whole clusters are redrawn.

    Args:
        clusters: Cluster of each item. Shape (n,), n >= 1.
        hits: Value of each item, e.g. 1 for right. Shape (n,).
        seed: Of the resampling.
        draws: How many.

    Returns:
        Shape (draws,).
    """
    _, index = np.unique(np.asarray(clusters), return_inverse=True)
    sums, counts = np.bincount(index, weights=np.asarray(hits, dtype=np.float64)), np.bincount(index)
    n = len(counts)
    weights = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=draws).astype(np.float64)
    result: Floats = (weights @ sums) / (weights @ counts)
    return result


def middle_95(draws: Floats) -> tuple[float, float]:
    """The interval that holds the middle 95% of bootstrap draws."""
    low, high = np.percentile(draws, [2.5, 97.5])
    return float(low), float(high)
