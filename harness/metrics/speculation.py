"""Speculation figures of a variant from its trials' engine counters. Knows no engine and no catalogue key."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from harness.metrics.request import Trial, speculation_s
from harness.metrics.trials import usable
from harness.record import Figure, RequestRecord, missing
from harness.stats import interval

Value = Callable[[RequestRecord], float | None]


def accept_rate(trials: Sequence[Trial]) -> Figure:
    """Accepted over drafted tokens, pooled over requests."""
    return _share(trials, lambda r: r.accepted, lambda r: r.drafted)


def accept_len(trials: Sequence[Trial]) -> Figure:
    """Tokens per verification, pooled over requests: ``1 + accepted / verifications``; each adds one of its own."""
    return _pooled(trials, lambda r: r.accepted, lambda r: r.verify_steps, shift=1.0)


def draft_share(trials: Sequence[Trial]) -> Figure:
    """Seconds in drafting over seconds in drafting and verifying, pooled over requests."""
    return _share(trials, lambda r: r.draft_s, speculation_s)


def by_position(trials: Sequence[Trial]) -> list[tuple[int, int]]:
    """``(accepted, drafted)`` tokens at each place of a draft, summed over the requests that count.

    The acceptance at a place is one over the other. Places that were never drafted are left out.
    """
    sums: list[tuple[int, int]] = []
    for trial in usable(trials, frozenset({"cached_prompt"})).trials:
        drafted, accepted = trial.record.drafted_at or (), trial.record.accepted_at or ()
        sums += [(0, 0)] * (len(drafted) - len(sums))
        for i, (a, d) in enumerate(zip(accepted, drafted, strict=True)):
            sums[i] = (sums[i][0] + a, sums[i][1] + d)
    return [(a, d) for a, d in sums if d]


def _share(trials: Sequence[Trial], part: Value, whole: Value) -> Figure:
    return _pooled(trials, part, whole, most=1.0)


def _pooled(
    trials: Sequence[Trial], amount: Value, per: Value, *, shift: float = 0.0, most: float | None = None
) -> Figure:
    """Sum over sum with the interval of a ratio, its ends kept within what is possible."""
    records = [t.record for t in trials if t.record.accepted is not None]
    if not records:
        return missing("no_speculation")
    pairs = [(a, b) for r in records if (a := amount(r)) is not None and (b := per(r)) is not None]
    if not pairs:
        return missing("not_measured", n=len(records))
    found = interval.ratio_interval([a for a, _ in pairs], [b for _, b in pairs])
    if found is None:
        return missing("undefined", n=len(pairs))
    low, high = found.low, found.high
    if low is not None and high is not None:
        low, high = max(0.0, low) + shift, (high if most is None else min(most, high)) + shift
    return Figure(found.value + shift, low, high, found.n, () if found.n > 1 else ("small_n",))
