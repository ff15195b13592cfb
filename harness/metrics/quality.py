"""Multiple-choice accuracy and paired comparison. Knows stored answers, not how they came about.

A document: ``{"subject", "doc_id", "gold", "logprobs": [per choice], "pred", "correct", "finite"}``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from harness.record import Figure, missing
from harness.stats.interval import Floats, clustered_se, share, t_quantile, z_quantile

Doc = Mapping[str, Any]
ALPHA = 0.05


def pick(logprobs: Sequence[float | None]) -> int | None:
    """The choice with the highest log-probability, the first of equals; None if any is NaN, infinite or absent.

    NaN must be caught first: it compares as neither smaller nor larger, so a maximum over it depends on the order.

    >>> pick([-3.0, -1.0, -2.0]), pick([float("nan"), -1.0, -2.0, -3.0])
    (1, None)
    """
    if not logprobs or any(v is None or not math.isfinite(v) for v in logprobs):
        return None
    values = [v for v in logprobs if v is not None]
    return values.index(max(values))


def is_valid(doc: Doc) -> bool:
    """Whether a document's scores are all finite."""
    return bool(doc["finite"]) and doc["correct"] is not None


def accuracy(docs: Sequence[Doc], reasons: tuple[str, ...] = ()) -> Figure:
    """Share correct, with an interval clustered by subject (never narrower than Wilson's).

    One item with a NaN or infinite score fails the variant: `nonfinite`, no value, the count in ``conditions``.
    """
    if not docs:
        return missing("not_measured")
    bad = sum(not is_valid(d) for d in docs)
    if bad:
        return replace(missing("nonfinite", n=len(docs)), conditions={"nonfinite": bad})
    i = share([bool(d["correct"]) for d in docs], [d["subject"] for d in docs])
    return Figure(i.value, i.low, i.high, i.n, reasons)


def by_subject(docs: Sequence[Doc]) -> dict[str, tuple[int, int]]:
    """(correct, answered validly) for each subject, in alphabetical order."""
    found: dict[str, tuple[int, int]] = {}
    for doc in sorted(docs, key=lambda d: str(d["subject"])):
        if is_valid(doc):
            right, n = found.get(doc["subject"], (0, 0))
            found[doc["subject"]] = (right + bool(doc["correct"]), n + 1)
    return found


def mcnemar(fixed: int, broken: int, *, mid: bool = True) -> float:
    """Two-sided McNemar test on items whose correctness changed.

    Formula: with n = fixed + broken and X ~ Binomial(n, 1/2),
    exact ``p = min(1, 2 P(X <= min))``; mid-p takes only half of ``P(X = min)``, because the exact test is
    far too cautious for few changes. Source: Fagerland, Lydersen, Laake, BMC Med Res Methodol 13:91 (2013).

    >>> round(mcnemar(8, 6), 2), round(mcnemar(8, 6, mid=False), 2)
    (0.61, 0.79)
    """
    n, least = fixed + broken, min(fixed, broken)
    if n == 0:
        return 1.0
    below, at = 0, 1
    # Whole binomial coefficients: 2**-n is 0 as a float beyond n = 1074.
    for k in range(least):
        below, at = below + at, at * (n - k) // (k + 1)
    return float(min(1.0, (2 * below + at if mid else 2 * (below + at)) / 2**n))


@dataclass(frozen=True, slots=True)
class Paired:
    """A variant against the reference on the same items.

    Attributes:
        delta: Mean difference of correctness, with its interval.
        flips: Share of items whose chosen answer changed.
        fixed, broken: Items that became right, wrong.
        p: Mid-p McNemar.
        p_exact: Exact McNemar.
        se: The larger of the plain and the clustered standard error of ``delta``.
        mde: Smallest difference found with 80% power; None if nothing changed.
        n: Items both answered.
    """

    delta: Figure
    flips: Figure
    fixed: int
    broken: int
    p: float
    p_exact: float
    se: float
    mde: float | None
    n: int


def mde(flip_rate: float, n: int) -> float:
    """Smallest difference that n paired items show with 80% power at the 5% level: ``2.80 sqrt(f / n)``.

    >>> round(mde(0.05, 1140), 4)
    0.0185
    """
    return 2.80 * math.sqrt(flip_rate / n)


def delta_interval(d: Sequence[int], clusters: Sequence[Any]) -> tuple[float, float, float]:
    """Standard error and interval of a mean of paired differences in {-1, 0, 1}.

    Formula: ``SE = sqrt((f - mean²) / n)`` with f the share of non-zero differences, or the clustered error
    if larger. The interval is never narrower than the one with one item added to each kind of change
    (Bonett & Price, J Educ Behav Stat 37, 2012): without it, no change in n items would read as certainty.

    Returns:
        (SE, low, high).
    """
    n, total, changed = len(d), sum(d), sum(x != 0 for x in d)
    mean, f = total / n, changed / n
    plain = math.sqrt(max(0.0, f - mean * mean) / n)
    clustered, groups = clustered_se([float(x) for x in d], clusters)
    se, half = plain, z_quantile() * plain
    if clustered is not None and clustered > plain:
        se, half = clustered, t_quantile(groups - 1) * clustered
    centre, f2 = total / (n + 2), (changed + 2) / (n + 2)
    adjusted = z_quantile() * math.sqrt((f2 - centre * centre) / (n + 2))
    return se, max(-1.0, min(mean - half, centre - adjusted)), min(1.0, max(mean + half, centre + adjusted))


def paired(docs: Sequence[Doc], reference: Sequence[Doc]) -> Paired | None:
    """Compare on the items both answered validly; None if there are none."""
    theirs = {(d["subject"], d["doc_id"]): d for d in reference if is_valid(d)}
    both = [(d, theirs[key]) for d in docs if is_valid(d) and (key := (d["subject"], d["doc_id"])) in theirs]
    if not both:
        return None
    n, subjects = len(both), [d["subject"] for d, _ in both]
    diffs = [int(bool(d["correct"])) - int(bool(r["correct"])) for d, r in both]
    fixed, broken = sum(x > 0 for x in diffs), sum(x < 0 for x in diffs)
    se, low, high = delta_interval(diffs, subjects)
    changed = share([d["pred"] != r["pred"] for d, r in both], subjects)
    return Paired(
        delta=Figure(sum(diffs) / n, low, high, n),
        flips=Figure(changed.value, changed.low, changed.high, n),
        fixed=fixed,
        broken=broken,
        p=mcnemar(fixed, broken),
        p_exact=mcnemar(fixed, broken, mid=False),
        se=se,
        mde=mde((fixed + broken) / n, n) if fixed + broken else None,
        n=n,
    )


def mmlu_figures(
    docs: Sequence[Doc], reference: Sequence[Doc] | None, reasons: tuple[str, ...] = ()
) -> dict[str, Figure]:
    """`mmlu_acc`, `mmlu_delta` and `mmlu_flips` of one variant.

    Args:
        docs: Its documents.
        reference: The reference's; None if this is the reference, whose difference is 0 by definition.
        reasons: Codes that hold for the whole suite, such as `sample_not_mmlu`.
    """
    acc = accuracy(docs, reasons)
    if acc.value is None:
        return {"mmlu_acc": acc, "mmlu_delta": missing(*acc.reasons), "mmlu_flips": missing(*acc.reasons)}
    if reference is None:
        same = Figure(0.0, 0.0, 0.0, acc.n, (*reasons, "is_reference"))
        return {"mmlu_acc": acc, "mmlu_delta": same, "mmlu_flips": same}
    pair = paired(docs, reference)
    if pair is None:
        return {"mmlu_acc": acc, "mmlu_delta": missing("not_measured"), "mmlu_flips": missing("not_measured")}
    return {
        "mmlu_acc": acc,
        "mmlu_delta": replace(pair.delta, reasons=reasons),
        "mmlu_flips": replace(pair.flips, reasons=reasons),
    }


def at_chance(reference: Figure, chance: float) -> bool:
    """Whether the reference does not beat guessing: its interval's low end is at or below chance."""
    return reference.value is None or reference.low is None or reference.low <= chance


@dataclass(frozen=True, slots=True)
class Separation:
    """Whether a suite tells any variant from the reference, and one sentence about it."""

    separates: bool
    why: str


def separates(variants: Mapping[str, Sequence[Doc]], reference: Sequence[Doc]) -> Separation:
    """Test each variant against the reference with mid-p McNemar, corrected for their number (Bonferroni).

    Args:
        variants: Documents of each variant that was scored by itself; the reference and variants that only
            share its scores are left out by the caller.
        reference: The reference's documents.
    """
    pairs = {name: p for name, docs in variants.items() if (p := paired(docs, reference)) is not None}
    if not pairs:
        return Separation(False, "no variant was scored on the same items as the reference")
    count = len(pairs)
    differ = {n: p for n, p in pairs.items() if p.p * count < ALPHA}
    if differ:
        listed = "; ".join(f"{k}: {p.fixed} fixed, {p.broken} broken, p = {p.p:.2g}" for k, p in differ.items())
        return Separation(True, f"tells from the reference: {listed}")
    worst = max((p.mde for p in pairs.values() if p.mde is not None), default=None)
    reach = f"; differences up to {100 * worst:.1f} points could go unseen" if worst is not None else ""
    against = f"{count} comparison{'s' if count > 1 else ''}"
    return Separation(False, f"no difference shown between any variant and the reference in {against}{reach}")


def score_matrix(docs: Mapping[str, Sequence[Doc]]) -> tuple[list[str], Floats, list[str]]:
    """Correctness as numbers, for joint resampling.

    Returns:
        (names, array of shape (variants, items) with NaN where a variant has no valid answer, subject of each item).
    """
    keys = list(dict.fromkeys((d["subject"], d["doc_id"]) for rows in docs.values() for d in rows))
    place = {key: i for i, key in enumerate(keys)}
    scores = np.full((len(docs), len(keys)), np.nan)
    for row, rows in zip(scores, docs.values(), strict=True):
        for d in rows:
            if is_valid(d):
                row[place[d["subject"], d["doc_id"]]] = float(bool(d["correct"]))
    return list(docs), scores, [str(subject) for subject, _ in keys]
