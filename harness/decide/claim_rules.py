"""How each claim is held against a run. Knows the figures it needs, not the claim's wording.

What no instrument here can answer (how it feels, a model of another size) is "cannot tell", with the
nearest figures beside it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from harness.decide.evidence import (
    CANNOT,
    Evidence,
    Measured,
    Rule,
    Series,
    base_of,
    cannot,
    change,
    combine,
    each,
    fastest,
    judge,
    log_slope,
    plain,
    ratio,
    scaled,
    speculates,
    weights,
)
from harness.decide.view import Results, Span, Variant, difference, reference, span
from harness.metrics.catalog import METRICS
from harness.metrics.feel import BUDGET_S, COMPLETION_TOKENS, band_text, bands
from harness.units import quantity

INT4 = ("q4", "iq4", "int4", "nf4", "gptq4", "gptq-4", "awq")
INT8 = ("q8", "int8", "gptq8", "gptq-8")
SIXTEEN_BIT = ("f16", "bf16", "fp16")
FLAT = 0.10
SIZE = re.compile(r"(?<![\d.])(\d+(?:\.\d+)?)\s*([BM])(?![a-z])", re.IGNORECASE)


def _sixteen(results: Results) -> Variant | None:
    ref = reference(results)
    return ref if ref is not None and weights(ref).startswith(SIXTEEN_BIT) else None


def model_billions(results: Results) -> float | None:
    """Parameters in billions, as the model's name states them; None if it does not."""
    found = SIZE.search(str(results.get("conditions", {}).get("model", {}).get("name", "")))
    if found is None:
        return None
    return float(found[1]) * (1.0 if found[2].upper() == "B" else 1e-3)


def int4_speed(results: Results, series: Series) -> Evidence:
    """Decode speed of INT4 variants over a 16-bit reference."""
    base = _sixteen(results)
    if base is None:
        return cannot("the reference is not 16-bit")
    ratios = [(v["name"], ratio(v, base, "decode_tps")) for v in plain(results, *INT4)]
    rows = [Measured(name, s, "x", judge(s, 1.5, 3.0)) for name, s in ratios]
    return combine(rows, "no INT4 variant was measured")


def int8_between(results: Results, series: Series) -> Evidence:
    """INT8 faster than the 16-bit reference and slower than the fastest INT4."""
    base = _sixteen(results)
    if base is None:
        return cannot("the reference is not 16-bit")
    int4 = [(v, s) for v in plain(results, *INT4) if (s := ratio(v, base, "decode_tps")).value is not None]
    int8 = [(v, s) for v in plain(results, *INT8) if (s := ratio(v, base, "decode_tps")).value is not None]
    if not int4 or not int8:
        return cannot("needs the decode speed of an INT8 and an INT4 variant")
    top, ceiling = max(int4, key=lambda pair: pair[1].value or 0.0)
    rows = []
    for v, s in int8:
        verdict = CANNOT
        if None not in (s.low, s.high, ceiling.low, ceiling.high):
            below = judge(Span(s.value, s.low, s.high), at_least=1.0)
            over = judge(Span(s.value, s.low, s.high), at_most=ceiling.low or 0.0)
            out = below == "does not hold" or (s.low or 0.0) > (ceiling.high or 0.0)
            verdict = "does not hold" if out else "holds" if below == over == "holds" else CANNOT
        rows.append(Measured(v["name"], s, "x", verdict))
    against = Measured(top["name"], ceiling, "x").text()
    return combine(rows, "no INT8 variant was measured", f"The fastest INT4 is {against}")


def int4_mmlu(billions: float, at_least: float, at_most: float, relative: bool) -> Rule:
    """Loss of MMLU accuracy of INT4, in points or in percent of the score, on a model of that size only."""

    def rule(results: Results, series: Series) -> Evidence:
        ref = reference(results)
        unit = "%" if relative else "ratio"
        rows = []
        for v in plain(results, *INT4):
            d = difference(v, ref, "mmlu_acc")
            acc = span(ref, ref, "mmlu_acc").value if ref is not None else None
            factor = 100 / acc if relative and acc else 1.0
            loss = scaled(d, -factor)
            rows.append(Measured(v["name"], loss, unit, judge(loss, at_least, at_most)))
        size = model_billions(results)
        if size is None or abs(size / billions - 1) > 0.2:
            losses = ", ".join(r.text() for r in rows if r.span.value is not None)
            name = results.get("conditions", {}).get("model", {}).get("name", "another model")
            here = f" (loss: {losses})" if losses else ""
            return cannot(f"about a {billions:g}B model; this run measured {name}{here}", rows)
        return combine(rows, "no INT4 variant was measured")

    return rule


def int4_change(key: str, at_least: float) -> Rule:
    """Rise of a figure of INT4 variants over the reference's."""

    def rule(results: Results, series: Series) -> Evidence:
        ref = reference(results)
        rows = [
            Measured(v["name"], d := difference(v, ref, key), METRICS[key].unit, judge(d, at_least))
            for v in plain(results, *INT4)
        ]
        return combine(rows, "no INT4 variant was measured")

    return rule


def speculating(measure: Callable[[Variant, Variant], Measured]) -> Rule:
    """A rule over all pairs of a speculating variant and the same weights without speculation."""

    def rule(results: Results, series: Series) -> Evidence:
        sound = [v for v in results["variants"] if speculates(v) and v.get("status") != "failed"]
        pairs = [(v, base) for v in sound if (base := base_of(results, v)) is not None]
        return combine([measure(v, base) for v, base in pairs], "no variant speculates")

    return rule


def spec_speed(variant: Variant, base: Variant) -> Measured:
    """Decode speed of a speculating variant over its base."""
    s = ratio(variant, base, "decode_tps")
    return Measured(variant["name"], s, "x", judge(s, 2.0, 3.0))


def spec_quality(variant: Variant, base: Variant) -> Measured:
    """Change of coherence through speculation; a loss within tolerance is no loss."""
    s = change(variant, base, "coherence_1_10")
    return Measured(variant["name"], s, METRICS["coherence_1_10"].unit, judge(s, -METRICS["coherence_1_10"].tolerance))


def spec_code(variant: Variant, base: Variant) -> Measured:
    """Change of the share of programs that parse through speculation."""
    s = change(variant, base, "code_parse_rate")
    broken = s.high is not None and s.high < 0
    sound = judge(s, -METRICS["code_parse_rate"].tolerance) == "holds"
    return Measured(variant["name"], s, "ratio", "holds" if broken else "does not hold" if sound else CANNOT)


def spec_jitter(variant: Variant, base: Variant) -> Measured:
    """Change of jitter through speculation, in points."""
    s = change(variant, base, "jitter_pct")
    return Measured(variant["name"], s, "%", judge(s, 0.0))


def fastest_energy(results: Results, series: Series) -> Evidence:
    """Energy per token of the fastest variant over the reference's."""
    top, ref = fastest(results), reference(results)
    if top is None or ref is None:
        return cannot("no decode speed may decide")
    if top["reference"]:
        return cannot(f"the reference ({ref['name']}) is the fastest, so there is no pair to compare")
    s = ratio(top, ref, "energy_j_per_token")
    if s.value is None:
        return cannot(f"no energy figure that may decide: {s.why}")
    return combine([Measured(top["name"], s, "x", judge(s, 1.0))], "")


def _series(results: Results, series: Series, key: str) -> dict[str, list[Mapping[str, Any]]]:
    """Points by rising prompt length, of variants without speculation whose own figure may decide."""
    whole = {"ttft_by_prompt": "ttft_s", "tps_by_prompt": "decode_tps"}[key]
    found = series.get(key) or {}
    return {
        v["name"]: sorted(found[v["name"]], key=lambda p: float(p["prompt_tokens"]))
        for v in plain(results)
        if v["name"] in found and span(v, None, whole).value is not None
    }


def slopes(key: str, at_least: float) -> Rule:
    """Growth exponent of a series over prompt lengths."""

    def rule(results: Results, series: Series) -> Evidence:
        found = _series(results, series, key)
        rows = [Measured(name, s := log_slope(points), "", judge(s, at_least)) for name, points in found.items()]
        note = "Figures are exponents: 1 is linear, 2 quadratic"
        return combine(rows, "no series over prompt lengths may decide", note)

    return rule


def flat(results: Results, series: Series) -> Evidence:
    """Change of decode speed from the shortest to the longest prompt."""
    rows = []
    for name, points in _series(results, series, "tps_by_prompt").items():
        if len(points) < 2:
            continue
        a, b = points[0], points[-1]
        ends = a.get("low") and a.get("high") and b.get("low") and b.get("high")
        value = 100 * (b["value"] / a["value"] - 1)
        s = Span(value, 100 * (b["low"] / a["high"] - 1), 100 * (b["high"] / a["low"] - 1)) if ends else Span(value)
        rows.append(Measured(name, s, "%", judge(s, -100 * FLAT, 100 * FLAT)))
    return combine(
        rows,
        "decode speed was measured at fewer than two prompt lengths",
        "Figures are the change from the shortest to the longest prompt",
    )


def ceiling(results: Results, series: Series) -> Evidence:
    """Share of the bandwidth ceiling reached without speculation."""
    return combine(each(results, plain(results), "mbu", at_most=1.0), "the bandwidth or the decode speed is missing")


def ceiling_70b(results: Results, series: Series) -> Evidence:
    """A ceiling that is arithmetic here."""
    rows = each(results, [v for v in (reference(results),) if v is not None], "ceiling_tps")
    here = next((f"; here the ceiling of {r.text()}" for r in rows if r.span.value is not None), "")
    return cannot(f"arithmetic: 3.35 TB/s over 140 GB is 23.9 tokens/s; no 70B model was run{here}", rows)


def feel(results: Results, series: Series) -> Evidence:
    """The band of each decode speed; both where its interval lies over a limit."""
    rows = each(results, results["variants"], "decode_tps")
    named = [(r.variant, r.span) for r in rows]
    said = [f"{name} {band_text(bands(s.value, s.low, s.high))}" for name, s in named if s.value is not None]
    return cannot(f"feeling is not measured; by these bands: {', '.join(said) or 'no speed may decide'}", rows)


def completion(results: Results, series: Series) -> Evidence:
    """Time until a short completion is there against the budget."""
    return combine(
        each(results, results["variants"], "completion_s", at_most=BUDGET_S),
        "no time to a short completion may decide",
        f"A completion is {COMPLETION_TOKENS} tokens; whether a wait breaks the flow is not measured",
    )


def agent(results: Results, series: Series) -> Evidence:
    """What chains of calls take: sums of requests that followed each other."""
    rows = each(results, results["variants"], "agent10_s")
    five = {r.variant: r.span for r in each(results, results["variants"], "agent5_s")}
    waits = [
        f"{r.variant} {quantity(five[r.variant].value, 's')} to {quantity(r.span.value, 's')}"
        for r in rows
        if r.span.value is not None
    ]
    return cannot(f"arithmetic; requests in a row, 5 and 10 of them: {', '.join(waits) or 'none may decide'}", rows)


def tokenizers(results: Results, series: Series) -> Evidence:
    """Characters per second, which compare across tokenizers."""
    rows = each(results, results["variants"], "chars_per_s")
    return cannot("the variants of a run share one tokenizer, so their tokens/s compare; across models use these", rows)


def felt(results: Results, series: Series) -> Evidence:
    """Spread of TTFT at equal prompt length."""
    rows = each(results, results["variants"], "ttft_jitter_pct")
    return cannot("feeling is not measured; beside it the spread of TTFT at equal prompt length", rows)
