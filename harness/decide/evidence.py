"""What a run says about one claim: the figures behind it, a verdict, and why. Knows no claim's text.

A claim holds only if the whole interval lies in its range, and does not hold only if the whole interval
lies outside; anything else cannot be told. A claim about several variants holds if it holds for all of
them and does not if it fails for one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from harness.decide.view import Results, Span, Variant, difference, reference, span
from harness.metrics.catalog import METRICS
from harness.units import quantity

Verdict = Literal["holds", "does not hold", "cannot tell"]
Series = Mapping[str, Any]
Rule = Callable[[Results, Series], "Evidence"]
CANNOT: Verdict = "cannot tell"


@dataclass(frozen=True, slots=True)
class Measured:
    """One figure behind a verdict."""

    variant: str
    span: Span
    unit: str
    verdict: Verdict = CANNOT

    def text(self) -> str:
        """The figure for a sentence."""
        if self.span.value is None:
            return f"{self.variant}: {self.span.why}"
        suffix = "" if self.span.low is not None else " (no interval)"
        return f"{self.variant} {quantity(self.span.value, self.unit, self.span.low, self.span.high)}{suffix}"


@dataclass(frozen=True, slots=True)
class Evidence:
    """Figures, verdict and reason."""

    measured: tuple[Measured, ...]
    verdict: Verdict
    why: str


def judge(s: Span, at_least: float = -math.inf, at_most: float = math.inf) -> Verdict:
    """Compare an interval with a range.

    >>> [judge(Span(v, v - 0.1, v + 0.1), 1.5, 3.0) for v in (1.8, 1.2, 1.5)]
    ['holds', 'does not hold', 'cannot tell']
    """
    if s.value is None or s.low is None or s.high is None:
        return CANNOT
    if s.low >= at_least and s.high <= at_most:
        return "holds"
    return "does not hold" if s.high < at_least or s.low > at_most else CANNOT


def combine(rows: Sequence[Measured], nothing: str, note: str = "") -> Evidence:
    """One verdict from those of several variants; ``nothing`` says why there are none."""
    shown = tuple(r for r in rows if r.span.value is not None)
    if not shown:
        return Evidence((), CANNOT, "; ".join(dict.fromkeys(r.span.why for r in rows if r.span.why)) or nothing)
    verdicts = {r.verdict for r in shown}
    verdict: Verdict = "holds" if verdicts == {"holds"} else CANNOT
    if "does not hold" in verdicts:
        verdict = "does not hold"
    parts = []
    for name, words in (("holds", "holds for"), ("does not hold", "not for"), (CANNOT, "open for")):
        group = ", ".join(r.text() for r in shown if r.verdict == name)
        parts += [f"{words} {group}"] if group else []
    return Evidence(shown, verdict, "; ".join(parts) + (f". {note}" if note else ""))


def cannot(why: str, rows: Sequence[Measured] = ()) -> Evidence:
    """What a run cannot answer."""
    return Evidence(tuple(r for r in rows if r.span.value is not None), CANNOT, why)


def weights(variant: Variant) -> str:
    """Label of the weight precision, lower case."""
    return str(variant["settings"].get("weights", "")).lower()


def speculates(variant: Variant) -> bool:
    """Whether a variant speculates."""
    return variant["settings"].get("speculate") not in (None, "none", False)


def plain(results: Results, *prefixes: str) -> list[Variant]:
    """Variants without speculation, with the reference's KV cache, of these weight precisions (all if none given)."""
    ref = reference(results)
    kv = ref["settings"].get("kv") if ref else None
    return [
        v
        for v in results["variants"]
        if not speculates(v) and v["settings"].get("kv") == kv and (not prefixes or weights(v).startswith(prefixes))
    ]


def base_of(results: Results, variant: Variant) -> Variant | None:
    """The variant with the same weights and KV cache that does not speculate."""
    same = [
        v
        for v in results["variants"]
        if not speculates(v) and all(v["settings"].get(k) == variant["settings"].get(k) for k in ("weights", "kv"))
    ]
    return same[0] if same else None


def ratio(variant: Variant, base: Variant, key: str) -> Span:
    """One variant's figure over another's: paired against the reference, else from the ends of both intervals."""
    if base["reference"]:
        d = difference(variant, base, key, relative=True)
        return scaled(d, 1.0, 1.0)
    a, b = span(variant, None, key), span(base, None, key)
    if a.value is None or b.value is None or b.value <= 0:
        return Span(None, why=a.why or b.why or "the base is 0")
    if a.low is None or a.high is None or not b.low or not b.high or b.low <= 0:
        return Span(a.value / b.value)
    return Span(a.value / b.value, a.low / b.high, a.high / b.low)


def change(variant: Variant, base: Variant, key: str) -> Span:
    """One variant's figure minus another's, from the ends of both intervals where they were not paired."""
    if base["reference"]:
        return difference(variant, base, key)
    a, b = span(variant, None, key), span(base, None, key)
    if a.value is None or b.value is None:
        return Span(None, why=a.why or b.why)
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return Span(a.value - b.value)
    return Span(a.value - b.value, a.low - b.high, a.high - b.low)


def scaled(s: Span, factor: float, shift: float = 0.0) -> Span:
    """``shift + factor x span``, with the ends swapped for a negative factor."""
    low, high = (s.low, s.high) if factor >= 0 else (s.high, s.low)
    value, low, high = (None if x is None else shift + factor * x for x in (s.value, low, high))
    return Span(value, low, high, s.why)


def each(
    results: Results, variants: Sequence[Variant], key: str, at_least: float = -math.inf, at_most: float = math.inf
) -> list[Measured]:
    """A figure of several variants against a range."""
    ref = reference(results)
    rows = [(v["name"], span(v, ref, key)) for v in variants]
    return [Measured(name, s, METRICS[key].unit, judge(s, at_least, at_most)) for name, s in rows]


def log_slope(points: Sequence[Mapping[str, Any]]) -> Span:
    """Exponent of growth: slope of ln(value) on ln(prompt tokens), with the points' own intervals carried through.

    Formula: ``b = sum c_i ln y_i`` with ``c_i = (x_i - mean x) / sum (x - mean x)²``; ``SE² = sum c_i² SE_i²``
    with ``SE_i = ln(high/low) / (2 x 1.96)``, wider than needed where an interval rests on few blocks.
    """
    points = [p for p in points if p["value"] and p["prompt_tokens"] > 0]
    if len({p["prompt_tokens"] for p in points}) < 3:
        return Span(None, why="fewer than three prompt lengths were measured")
    x = [math.log(p["prompt_tokens"]) for p in points]
    mean = sum(x) / len(x)
    c = [(v - mean) / sum((w - mean) ** 2 for w in x) for v in x]
    slope = sum(k * math.log(p["value"]) for k, p in zip(c, points, strict=True))
    if any(not p.get("low") or not p.get("high") for p in points):
        return Span(slope, why="a prompt length has no interval")
    half = math.sqrt(sum((k * math.log(p["high"] / p["low"]) / 2) ** 2 for k, p in zip(c, points, strict=True)))
    return Span(slope, slope - half, slope + half)


def fastest(results: Results) -> Variant | None:
    """The variant with the highest decode speed that may decide."""
    found = [(s.value, v) for v in results["variants"] if (s := span(v, None, "decode_tps")).value is not None]
    return max(found, key=lambda pair: pair[0] or 0.0)[1] if found else None
