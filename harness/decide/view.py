"""Reading the results of a run: a variant's figures, whether they rank, how they differ from the reference's.

Works on the plain structure of results.json. Knows the catalogue; decides nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.metrics.catalog import METRICS
from harness.record import CODES, INFORMATIVE_CODES
from harness.units import quantity

Results = Mapping[str, Any]
Variant = Mapping[str, Any]
# What a comparison of the reference with itself gives, whatever a suite stored for it.
IDENTITY: Mapping[str, float] = {
    "top1_agreement": 1.0,
    "kl_mean": 0.0,
    "kl_p99": 0.0,
    "mmlu_flips": 0.0,
    "mmlu_delta": 0.0,
}


@dataclass(frozen=True, slots=True)
class Span:
    """A value with its 95% interval, or the reason why there is none that may decide."""

    value: float | None
    low: float | None = None
    high: float | None = None
    why: str = ""


def reference(results: Results) -> Variant | None:
    """The reference variant."""
    return next((v for v in results["variants"] if v["reference"]), None)


def figure(variant: Variant, key: str) -> Mapping[str, Any]:
    """A variant's stored figure; one that was never computed reads as `not_measured`."""
    found: Mapping[str, Any] | None = variant["metrics"].get(key)
    return {"value": None, "low": None, "high": None, "n": 0, "reasons": ["not_measured"]} if found is None else found


def ranks(stored: Mapping[str, Any]) -> bool:
    """Whether a stored figure may decide: it has a finite value and no voiding code."""
    value = stored.get("value")
    return value is not None and math.isfinite(value) and set(stored.get("reasons") or ()) <= INFORMATIVE_CODES


def why_not(stored: Mapping[str, Any]) -> str:
    """In words, why a figure does not rank."""
    codes = [c for c in stored.get("reasons") or () if c not in INFORMATIVE_CODES or stored.get("value") is None]
    return "; ".join(CODES.get(c, c) for c in codes) or CODES["not_measured"]


def speculation_faults(variants: Sequence[Variant]) -> str:
    """One sentence that names the variants whose speculation changed their text; empty if there are none."""
    names = [v["name"] for v in variants if "lossy_speculation" in (figure(v, "audit_identical").get("reasons") or ())]
    return (
        f"{', '.join(names)}: speculation changed the text by more than rounding can; do not deploy." if names else ""
    )


def shares_scoring(variant: Variant, ref: Variant | None, key: str) -> bool:
    """Whether a figure is the reference's own: it is the reference, or has its weights and only speculates.

    Log-likelihoods do not depend on speculation, so such a variant was not scored again.
    """
    if ref is None:
        return False
    if variant["reference"]:
        return True
    same = all(variant["settings"].get(k) == ref["settings"].get(k) for k in ("weights", "kv"))
    return same and "shared_scoring" in (figure(variant, key).get("reasons") or ())


def span(variant: Variant, ref: Variant | None, key: str) -> Span:
    """A figure that may decide, with its interval; exact where the variant is compared with itself."""
    if key in IDENTITY and shares_scoring(variant, ref, key):
        return Span(IDENTITY[key], IDENTITY[key], IDENTITY[key])
    stored = figure(variant, key)
    if not ranks(stored):
        return Span(None, why=why_not(stored))
    low, high = stored.get("low"), stored.get("high")
    if METRICS[key].group == "memory" and low is None:
        low, high = stored["value"], stored["value"]
    return Span(stored["value"], low, high, "" if low is not None else "has no interval")


def delta_key(key: str) -> str | None:
    """The paired difference that goes with an accuracy: mmlu_acc -> mmlu_delta."""
    found = key.removesuffix("_acc") + "_delta"
    return found if key.endswith("_acc") and found in METRICS else None


def difference(variant: Variant, ref: Variant | None, key: str, *, relative: bool = False) -> Span:
    """A variant's figure minus the reference's, in the figure's unit or as a share of the reference's.

    Exactly 0 for a variant compared with itself. The paired difference (paired ratio for decode speed) where
    one was measured; else the ends of both intervals against each other, which is wider than needed.
    """
    if ref is None:
        return Span(None, why="there is no reference")
    if shares_scoring(variant, ref, key):
        return Span(0.0, 0.0, 0.0)
    paired = delta_key(key)
    # Where the suite tells nothing (the reference at chance), neither does its paired difference.
    if paired and not relative and all(map(ranks, (figure(variant, paired), figure(variant, key), figure(ref, key)))):
        return span(variant, ref, paired)
    if relative and key == "decode_tps" and ranks(figure(variant, "speedup")):
        s = span(variant, ref, "speedup")
        return Span(
            None if s.value is None else s.value - 1,
            None if s.low is None else s.low - 1,
            None if s.high is None else s.high - 1,
            s.why,
        )
    a, b = span(variant, ref, key), span(ref, ref, key)
    if a.value is None or b.value is None:
        return Span(None, why=a.why or f"the reference: {b.why}")
    if relative and b.value <= 0:
        return Span(None, why="the reference's value is 0")
    value = a.value / b.value - 1 if relative else a.value - b.value
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return Span(value, why="has no interval")
    if not relative:
        return Span(value, a.low - b.high, a.high - b.low)
    return Span(value, a.low / b.high - 1, a.high / b.low - 1 if b.low > 0 else None)


def shown(variant: Variant, key: str) -> str:
    """A figure for a sentence, with its name: "128 ± 3 decode tokens/s", "TTFT 85 ± 3 ms"."""
    metric, stored = METRICS[key], figure(variant, key)
    text = quantity(stored["value"], metric.unit, stored.get("low"), stored.get("high"))
    if metric.label.endswith(metric.unit) and text.endswith(metric.unit):
        return text.removesuffix(metric.unit) + metric.label
    return f"{metric.label} {text}"
