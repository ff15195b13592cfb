"""How far a variant's greedy texts stay the reference's own, by length. Knows stored rows, but no engine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import Any

from harness.stats.interval import wilson
from harness.suites.fidelity import Row, divergences

FIRST = 16  # tokens; each further length is twice the one before


def by_length(greedy: Sequence[Row], reference_greedy: Sequence[Row]) -> list[dict[str, Any]]:
    """Share of prompts whose text is still the reference's at 16, 32, 64 ... tokens, with Wilson's interval.

    Formula: ``share(L) = prompts with (equal or first divergence >= L) / prompts``. L ends at the longest text of the
    reference. A text that ended by itself before L, as the reference's did, counts as equal at L too. Each prompt is
    one independent text, so prompts are what the interval counts, not tokens.

    Returns:
        Points ``{"tokens", "value", "low", "high", "n"}``; empty where no prompt was continued by both.

    >>> theirs = [{"prompt": "a", "tokens": [1] * 32, "margins": [0.5] * 32}]
    >>> ours = [{"prompt": "a", "tokens": [1] * 20 + [2] * 12}]
    >>> [(p["tokens"], p["value"], p["n"]) for p in by_length(ours, theirs)]
    [(16, 1.0, 1), (32, 0.0, 1)]
    """
    found = divergences(greedy, reference_greedy)
    if not found:
        return []
    both = {d.prompt for d in found}
    longest = max(len(row["tokens"]) for row in reference_greedy if row["prompt"] in both)
    points, length = [], FIRST
    while length <= longest:
        share = wilson(sum(d.equal or d.index >= length for d in found), len(found))
        points.append({"tokens": length, "value": share.value, "low": share.low, "high": share.high, "n": share.n})
        length *= 2
    return points


def partings(
    greedy: Sequence[Row], reference_greedy: Sequence[Row], reference_floor: float | None
) -> dict[str, Any] | None:
    """Where the texts part, and whether the reference itself was as good as undecided there; None without a prompt.

    A near tie is a parting where the reference's two best tokens lie no further apart than noise can turn:
    ``margin <= floor x sqrt(2)``, the floor being how far the reference's own log-probabilities move when the same
    text is computed another way, and a margin being the difference of two of them.

    Args:
        greedy: Payloads of kind "greedy".
        reference_greedy: The same of the reference.
        reference_floor: Its ``logprob_floor`` in nats; None where it is not known, and then near ties are not either.

    Returns:
        ``{"n", "equal", "first", "median_margin", "near_ties", "without_margin", "limit"}``: prompts, texts equal to
        their end, tokens before the earliest parting, median margin in nats, partings that are near ties, partings
        where the reference's text had already ended, and the margin that noise can turn.
    """
    found = divergences(greedy, reference_greedy)
    if not found:
        return None
    parted = [d for d in found if not d.equal]
    margins = [d.reference_margin for d in parted if d.reference_margin is not None]
    limit = None if reference_floor is None else reference_floor * math.sqrt(2)
    return {
        "n": len(found),
        "equal": len(found) - len(parted),
        "first": min((d.index for d in parted), default=None),
        "median_margin": median(margins) if margins else None,
        "near_ties": None if limit is None else sum(margin <= limit for margin in margins),
        "without_margin": len(parted) - len(margins),
        "limit": limit,
    }
