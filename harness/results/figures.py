"""All figures of one variant from its rows. Says for each figure that is missing why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from harness.metrics import quality, speed
from harness.metrics.catalog import METRICS
from harness.metrics.feel import feel_figures
from harness.record import Figure, missing
from harness.results.energy import energy_figures
from harness.results.model import RunData, VariantRun
from harness.results.noise import noise
from harness.results.roofline import roofline
from harness.suites import fidelity, lossless
from harness.suites.code_syntax import score as code
from harness.suites.long_context import score as long_context

Figures = dict[str, Figure]
# Figures that rest on log-likelihoods alone, by the part that gives them.
_SCORED = {
    ("mmlu", "docs"): ("mmlu_acc", "mmlu_delta", "mmlu_flips", "energy_per_correct_j"),
    ("long_context", "probes"): ("ledger_acc", "tracking_acc", "inconsistency"),
    ("fidelity", "kl"): ("kl_mean", "kl_p99", "top1_agreement"),
    ("fidelity", "floor"): ("kl_floor", "top1_floor", "logprob_floor"),
}
_SOURCES: Mapping[tuple[str, str], tuple[str, ...]] = {
    **_SCORED,
    ("long_context", "continuation"): ("nondegeneration", "coherence_1_10"),
    ("code_syntax", "programs"): ("code_parse_rate", "code_extract_rate", "code_truncated_rate"),
    ("fidelity", "greedy"): ("greedy_agree_tokens",),
    ("fidelity", "audit"): ("audit_identical",),
    ("speed", "energy"): tuple(key for key in METRICS if key.startswith("energy_") and key.endswith("j_per_token")),
    ("engine", "load"): ("load_s", "peak_rss_bytes", "model_bytes", "kv_bytes"),
}


def figures(run: RunData, variant: VariantRun) -> Figures:
    """Every catalogue figure of a variant, by key; none is left out, a missing one has its reason."""
    found: Figures = {}
    for part in (_speed, _memory, _mmlu, _long_context, _code, _fidelity, _audit):
        found |= part(run, variant)
    found |= energy_figures(run, variant, found.get("mmlu_acc"))
    found |= roofline(run, variant, found)
    found |= noise(run, variant, found)
    for key in METRICS:
        found.setdefault(key, missing(_why(variant, key)))
    return {key: _failed(variant, key, _shared(variant, key, found[key])) for key in METRICS}


def _part_of(key: str) -> tuple[str, str]:
    """The part of a suite that gives a figure."""
    return next((part for part, keys in _SOURCES.items() if key in keys), ("speed", "trials"))


def _why(variant: VariantRun, key: str) -> str:
    """Why a figure was never computed."""
    return variant.why_missing(*_part_of(key))


def _failed(variant: VariantRun, key: str, figure: Figure) -> Figure:
    """A figure of the rows that a failed cell left behind is shown, and never ranks."""
    part = variant.parts.get(_part_of(key))
    if figure.value is None or part is None or part.state != "failed":
        return figure
    return replace(figure, reasons=(*figure.reasons, "cell_failed"))


def _shared(variant: VariantRun, key: str, figure: Figure) -> Figure:
    part = next((part for part, keys in _SCORED.items() if key in keys), None)
    if part is None or not variant.shared(*part):
        return figure
    return replace(figure, reasons=tuple(dict.fromkeys((*figure.reasons, "shared_scoring"))))


def _speed(run: RunData, variant: VariantRun) -> Figures:
    rows = variant.timed()
    if not rows:
        return {}
    trials = variant.trials()
    base = None if variant.reference else run.reference.trials()
    found = speed.speed_figures(trials) | feel_figures(trials)
    for key, compare, of in (("speedup", speed.speedup, "decode_tps"), ("ttft_ratio", speed.ttft_ratio, "ttft_s")):
        found[key] = missing("not_measured") if base == [] else compare(trials, base, run.launches[of])
    if not variant.speculates:
        found |= {key: missing("no_speculation") for key in ("accept_rate", "accept_len", "draft_share")}
    return found


def _memory(run: RunData, variant: VariantRun) -> Figures:
    rows = variant.rows("engine", "load")
    if not rows:
        return {}
    loaded = rows[0]
    info = loaded["info"]
    values = {
        "load_s": loaded["load_s"],
        "peak_rss_bytes": loaded["peak_rss_bytes"],
        "model_bytes": info["weight_bytes"] + info["draft_weight_bytes"],
        "kv_bytes": info["kv_bytes"],
    }
    return {
        key: missing("not_measured") if value is None else Figure(float(value), n=1) for key, value in values.items()
    }


def _mmlu(run: RunData, variant: VariantRun) -> Figures:
    rows = variant.rows("mmlu", "docs")
    if not rows:
        return {}
    reasons = ("sample_not_mmlu",) if (run.facts["mmlu_data"] or {}).get("is_sample") else ()
    return quality.mmlu_figures(
        rows, None if same_scoring(run, variant) else run.reference.rows("mmlu", "docs"), reasons
    )


def same_scoring(run: RunData, variant: VariantRun) -> bool:
    """Whether a variant's log-likelihoods are the reference's own."""
    return variant.reference or variant.plain_spec == run.reference.plain_spec


def _long_context(run: RunData, variant: VariantRun) -> Figures:
    probes, texts = variant.rows("long_context", "probes"), variant.rows("long_context", "continuation")
    if not probes and not texts:
        return {}
    found = long_context.figures(probes, texts)
    sources = {key: part for part, keys in _SOURCES.items() for key in keys}
    for key, figure in found.items():
        if figure.value is None and "not_measured" in figure.reasons:
            found[key] = missing(variant.why_missing(*sources[key]))
    return found


def _code(run: RunData, variant: VariantRun) -> Figures:
    rows = variant.rows("code_syntax", "programs")
    return code.figures(rows) if rows else {}


def _fidelity(run: RunData, variant: VariantRun) -> Figures:
    kl, greedy = variant.rows("fidelity", "kl"), variant.rows("fidelity", "greedy")
    if not kl and not greedy:
        return {}
    theirs = run.reference.rows("fidelity", "greedy")
    found = fidelity.figures(kl, greedy, theirs, is_reference=variant.reference)
    if same_scoring(run, variant) and not variant.reference:
        own = fidelity.figures(kl, greedy, theirs, is_reference=True)
        found |= {key: own[key] for key in ("kl_mean", "kl_p99", "top1_agreement")}
    if not kl and not variant.reference:
        found |= {
            key: missing(variant.why_missing("fidelity", "kl")) for key in ("kl_mean", "kl_p99", "top1_agreement")
        }
    if not greedy:
        found["greedy_agree_tokens"] = missing(variant.why_missing("fidelity", "greedy"))
    return found


def _audit(run: RunData, variant: VariantRun) -> Figures:
    rows = variant.rows("fidelity", "audit")
    if variant.speculates and not rows:
        return {}
    return {"audit_identical": lossless.figure(lossless.audit(rows)) if rows else missing("no_speculation")}
