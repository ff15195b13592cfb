"""Series for the report's charts and lists. Kept beside results.json, since they are for eyes and not for scripts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from harness.metrics import depth, quality, request, speed
from harness.metrics.flips import flips
from harness.results import code_pairs, speculation
from harness.results.model import RunData, VariantRun
from harness.results.roofline import depth_series
from harness.stats.summary import relative_to_group
from harness.suites import agreement, lossless
from harness.suites import floor as floors
from harness.suites.code_syntax import score as code
from harness.suites.long_context import score as long_context


def series(run: RunData) -> dict[str, Any]:
    """All series by name; a variant without the rows is left out of a series."""
    trials = {variant.name: [t for t in variant.trials() if not t.extra] for variant in run.variants}
    trials = {name: found for name, found in trials.items() if found}
    judged = {v.name: code.judge(v.rows("code_syntax", "programs")) for v in run.variants}
    judged = {name: found for name, found in judged.items() if found}
    return {
        "ttft_by_prompt": {name: speed.ttft_by_prompt(found) for name, found in trials.items()},
        "tps_by_prompt": {name: speed.tps_by_prompt(found) for name, found in trials.items()},
        "streams": {name: _stream(found) for name, found in trials.items()},
        "jitter": {name: _jitter(found) for name, found in trials.items()},
        "depth": {
            v.name: long_context.depth_series(rows) for v in run.variants if (rows := v.rows("long_context", "probes"))
        },
        "depth_speed": {v.name: points for v in run.variants if (points := depth.series(v.rows("speed", "depth")))},
        "depth_speed_left_out": _without_depths(run),
        "depth_ceiling": {v.name: points for v in run.variants if (points := depth_series(run, v))},
        "mmlu_by_subject": {
            v.name: {subject: list(pair) for subject, pair in quality.by_subject(rows).items()}
            for v in run.variants
            if (rows := v.rows("mmlu", "docs"))
        },
        "code_by_language": {name: code.by_language(found) for name, found in judged.items()},
        "code_samples": [sample for name, found in judged.items() for sample in code.samples(found, name)],
        "greedy_by_length": _greedy(run),
        "code_speculation": code_pairs.by_variant(run, judged),
        "speculation": speculation.by_target_and_draft(run),
        "audit": [
            lossless.series_row(v.name, found)
            for v in run.variants
            if (found := lossless.audit(v.rows("fidelity", "audit"))) is not None
        ],
        "flips": [flip for v in run.variants if not v.reference for flip in _flips(run, v)],
    }


def _without_depths(run: RunData) -> dict[str, str]:
    """Why a variant has no speeds by depth, where others of the run have: a reason code by variant."""
    rows = {v.name: v.rows("speed", "depth") for v in run.variants}
    if not any(rows.values()):
        return {}
    codes = {
        v.name: "speculates" if v.speculates else depth.left_out(rows[v.name]) or v.why_missing("speed", "depth")
        for v in run.variants
    }
    return {name: code for name, code in codes.items() if not depth.series(rows[name])}


def _greedy(run: RunData) -> dict[str, Any]:
    """Texts still equal to the reference's by length, and where they part; only of variants that wrote their own."""
    theirs = run.reference.rows("fidelity", "greedy")
    floor = floors.figures(run.reference.rows("fidelity", "floor"))["logprob_floor"].value
    own = {v.name: v.rows("fidelity", "greedy") for v in run.variants if not v.reference}
    return {
        name: {"points": agreement.by_length(rows, theirs), "partings": parted}
        for name, rows in own.items()
        if (parted := agreement.partings(rows, theirs, floor)) is not None
    }


def _stream(trials: Sequence[request.Trial]) -> dict[str, Any]:
    """The undisturbed request of median length in time, of the middle prompt length."""
    lengths = sorted({trial.prompt_tokens for trial in trials})
    middle = [t for t in trials if t.prompt_tokens == lengths[len(lengths) // 2]]
    clean = [t for t in middle if not t.record.codes] or middle
    clean.sort(key=lambda trial: request.e2e_s(trial.record) or 0.0)
    record = clean[len(clean) // 2].record
    events = [[(event.t_ns - record.sent_ns) / 1e9, event.n_tokens] for event in record.events]
    return {"sent_s": 0, "events": events, "prompt_tokens": record.prompt_tokens}


def _jitter(trials: Sequence[request.Trial]) -> list[float]:
    pairs = [(e2e, t.prompt_tokens) for t in trials if (e2e := request.e2e_s(t.record)) is not None]
    return [float(x) for x in relative_to_group([e2e for e2e, _ in pairs], [length for _, length in pairs])]


def _flips(run: RunData, variant: VariantRun) -> list[dict[str, Any]]:
    """Questions whose chosen answer is not the reference's. The question's text stays in the data, not in the page."""
    if variant.shared("mmlu", "docs"):
        return []
    floor = floors.figures(variant.rows("fidelity", "floor"))["logprob_floor"].value
    found = flips(variant.rows("mmlu", "docs"), run.reference.rows("mmlu", "docs"), floor)
    return [{"variant": variant.name, **asdict(flip), "near_tie": flip.near_tie} for flip in found]
