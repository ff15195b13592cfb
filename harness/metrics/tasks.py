"""Figures of lm-eval's tasks from its value of each metric for each document. Knows no lm-eval.

A document as judged: ``{"task", "doc_id", "values": {"acc,none": 1.0, ...}, "finite"}``; a task's totals:
``{"task", "kind", "shots", "n", "of", "options", "metrics": [{"key", "value", "higher_is_better", "aggregation"}]}``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.metrics.quality import delta_interval, mcnemar
from harness.record import Figure, missing
from harness.stats.interval import Interval, ratio_interval, share, t_interval

Row = Mapping[str, Any]
# Of several metrics the one that stands for its task, the first that it has.
_MAIN = ("acc_norm", "acc", "exact_match", "word_perplexity", "perplexity")
# How lm-eval's totals follow from pairs (log-likelihood, words or bytes): from their ratio per unit, in nats.
_PER_UNIT: Mapping[str, Callable[[float], float]] = {
    "weighted_perplexity": math.exp,
    "bits_per_byte": lambda nats: nats / math.log(2),
}


@dataclass(frozen=True, slots=True)
class Compared:
    """A variant against the reference on the documents both have.

    Attributes:
        delta: Mean difference, or for perplexities the ratio; with its interval.
        relative: Whether ``delta`` is a ratio.
        fixed, broken: Documents that became right, wrong; None where a document is not right or wrong.
        p: Mid-p McNemar of the two.
    """

    delta: Figure
    relative: bool
    fixed: int | None = None
    broken: int | None = None
    p: float | None = None


def main_metric(keys: Sequence[str]) -> str | None:
    """The metric that stands for a task: normalised accuracy, accuracy, exact match, perplexity; else its first.

    >>> main_metric(["acc,none", "acc_norm,none"]), main_metric(["f1,none"]), main_metric([])
    ('acc_norm,none', 'f1,none', None)
    """
    for name in _MAIN:
        for key in keys:
            if key.partition(",")[0] == name:
                return key
    return keys[0] if keys else None


def figure(judged: Sequence[Row], metric: Row) -> Figure:
    """A metric of a task with its interval.

    Formula, by lm-eval's way of putting documents together: ``mean`` of right or wrong: Wilson's interval of a share;
    of other numbers: Student's t; ``weighted_perplexity`` ``exp(-sum ll / sum units)`` and ``bits_per_byte``: the
    jackknife over documents; ``perplexity`` ``exp(-mean ll)``: Student's t. Of any other way lm-eval's value stands
    without an interval. One document with NaN or infinite scores fails the task.
    """
    if not judged:
        return missing("not_measured")
    if not all(row["finite"] for row in judged):
        return missing("nonfinite", n=len(judged))
    how, found = metric["aggregation"], _values(judged, metric["key"])
    interval = _interval(how, found) if found is not None else None
    if interval is None:
        value = metric["value"]
        return missing("undefined", n=len(judged)) if value is None else Figure(float(value), n=len(judged))
    if not math.isfinite(interval.value):
        return missing("undefined", n=len(judged))
    return Figure(interval.value, interval.low, interval.high, interval.n)


def _values(judged: Sequence[Row], key: str) -> list[Any] | None:
    """A metric's value for every document; None where one has none."""
    found = [row["values"].get(key) for row in judged]
    return None if any(value is None or isinstance(value, str) for value in found) else found


def _interval(how: str, values: Sequence[Any]) -> Interval | None:
    pairs = all(isinstance(value, list | tuple) and len(value) == 2 for value in values)
    if how in _PER_UNIT and pairs:
        return _mapped(ratio_interval([-ll for ll, _ in values], [n for _, n in values]), _PER_UNIT[how])
    if any(isinstance(value, list | tuple) for value in values):
        return None
    if how == "mean":
        if all(value in (0, 1) for value in values):
            return share([bool(value) for value in values])
        return t_interval([float(value) for value in values])
    if how == "perplexity":
        return _mapped(t_interval([-float(value) for value in values]), math.exp)
    return None


def _mapped(found: Interval | None, by: Callable[[float], float]) -> Interval | None:
    if found is None:
        return None

    def ends(end: float | None) -> float | None:
        return None if end is None or end > 700 else by(end)

    return Interval(by(found.value) if found.value < 700 else math.inf, ends(found.low), ends(found.high), found.n)


def compare(judged: Sequence[Row], reference: Sequence[Row], metric: Row) -> Compared | None:
    """A metric against the reference's, paired by document; None where nothing can be paired.

    Formula: mean of the differences with the interval of ``delta_interval`` for right or wrong, Student's t for other
    numbers; for perplexities ``exp(mean difference of nats per unit)``, with the jackknife over documents.
    """
    theirs = {row["doc_id"]: row for row in reference if row["finite"]}
    both = [(row, theirs[row["doc_id"]]) for row in judged if row["finite"] and row["doc_id"] in theirs]
    ours, base = (_values([pair[side] for pair in both], metric["key"]) for side in (0, 1))
    if not both or ours is None or base is None:
        return None
    how, n = metric["aggregation"], len(both)
    if how in _PER_UNIT:
        return _relative(how, ours, base)
    if any(isinstance(value, list | tuple) for value in ours):
        return None
    if how == "perplexity":
        return _logs(t_interval([b - a for a, b in zip(ours, base, strict=True)]))
    if how != "mean":
        return None
    differences = [float(a) - float(b) for a, b in zip(ours, base, strict=True)]
    if not all(value in (0, 1) for value in (*ours, *base)):
        found = t_interval(differences)
        return Compared(Figure(found.value, found.low, found.high, n), relative=False)
    signs = [round(x) for x in differences]
    _, low, high = delta_interval(signs, list(range(n)))
    fixed, broken = sum(x > 0 for x in signs), sum(x < 0 for x in signs)
    return Compared(Figure(sum(signs) / n, low, high, n), False, fixed, broken, mcnemar(fixed, broken))


def _relative(how: str, ours: Sequence[Any], base: Sequence[Any]) -> Compared | None:
    """Perplexities share their words or bytes, so that nats per unit differ by a ratio of sums."""
    if how != "weighted_perplexity":
        return None  # bits per byte is the logarithm of a perplexity that is compared itself
    found = ratio_interval([b[0] - a[0] for a, b in zip(ours, base, strict=True)], [b[1] for b in base])
    return None if found is None else _logs(found)


def _logs(found: Interval) -> Compared | None:
    ratio = _mapped(found, math.exp)
    if ratio is None or not math.isfinite(ratio.value):
        return None
    return Compared(Figure(ratio.value, ratio.low, ratio.high, ratio.n), relative=True)
