"""Puts derived figures into the structure of results.json."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from harness.decide.choose import decide
from harness.decide.claims import evaluate as evaluate_claims
from harness.decide.wish import default_wish
from harness.metrics import quality
from harness.metrics.catalog import METRICS
from harness.record import SCHEMA_VERSION, Figure
from harness.results import quiet
from harness.results.cost import cost
from harness.results.deploy import command, needs
from harness.results.feel import feel
from harness.results.figures import figures
from harness.results.fronts import fronts
from harness.results.mmlu import mmlu
from harness.results.model import RunData, VariantRun
from harness.results.series import series
from harness.results.tasks import by_task
from harness.suites import lossless
from harness.suites.long_context import score as long_context

Json = dict[str, Any]
CHANCE = 0.25
# Figures that guessing among four options would bring to CHANCE.
GUESSABLE = ("mmlu_acc", "ledger_acc", "tracking_acc")


def derive(run: RunData) -> tuple[Json, Json]:
    """``(results, series)``: the content of results.json, and the series for the report's charts."""
    found = _at_chance(run, {variant.name: figures(run, variant) for variant in run.variants})
    results: Json = {
        "schema_version": SCHEMA_VERSION,
        "run_id": run.facts["run_id"],
        "created": run.facts["created"],
        "harness_version": run.facts["harness_version"],
        "preset": run.facts["preset"],
        "status": _status(run),
        "machine": _machine(run),
        "conditions": {**_conditions(run), "notes": [*_notes(run), *_doubts(run, found)]},
        "suites": _suites(run, found),
        "variants": [_variant(variant, found[variant.name]) for variant in run.variants],
        "tasks": by_task(run),
        "mmlu": mmlu(run),
        "cost": cost(run),
        "feel": feel(run, found),
        "quiet": quiet.quiet(run, found),
    }
    drawn = series(run)
    wish = default_wish(results)
    keys = [key for key in (wish.quality_key, "mmlu_acc", "top1_agreement", "ledger_acc") if key]
    failed = {entry["name"] for entry in results["variants"] if entry["status"] == "failed"}
    results["fronts"] = fronts(run, found, list(dict.fromkeys(keys)), failed)
    results["decision"] = decide(results, wish)
    results["claims"] = evaluate_claims(results, drawn)
    return results, drawn


def _at_chance(run: RunData, found: dict[str, dict[str, Figure]]) -> dict[str, dict[str, Figure]]:
    """Where the reference itself does not beat guessing, no variant's figure of that suite may rank."""
    base = found[run.reference.name]
    dull = [key for key in GUESSABLE if base[key].value is not None and quality.at_chance(base[key], CHANCE)]
    dull += ["energy_per_correct_j"] * ("mmlu_acc" in dull)
    return {
        name: {
            key: replace(figure, reasons=(*figure.reasons, "at_chance"))
            if key in dull and figure.value is not None
            else figure
            for key, figure in figures_of.items()
        }
        for name, figures_of in found.items()
    }


def _status(run: RunData) -> str:
    states = {part.state for variant in run.variants for part in variant.parts.values()}
    return "complete" if run.facts["state"] == "complete" and states <= {"done"} else "partial"


def _machine(run: RunData) -> Json:
    probe = run.facts.get("bandwidth")
    made = {**run.facts["machine"], "bandwidth_bytes_per_s": probe or {"best": None, "median": None, "n": 0}}
    if probes := run.facts.get("bandwidths"):
        made["bandwidth_by_threads"] = probes
    return made


def _conditions(run: RunData) -> Json:
    reference = run.reference
    loaded = reference.rows("engine", "load")
    speed = (run.facts["suites"] or {}).get("speed") or {}
    return {
        "model": {key: reference.model.get(key) for key in ("name", "file", "digest", "restored", "note")},
        "engine": {
            "name": loaded[0]["info"]["engine"] if loaded else reference.spec["backend"],
            "version": loaded[0]["info"]["engine_version"] if loaded else None,
        },
        "suites": run.facts["suites"],
        "mmlu_data": run.facts["mmlu_data"],
        "schedule": {"rounds": speed.get("rounds", 0), "order": "palindromic"},
        "energy": run.facts["energy"],
        "quiet": quiet.short(run),
    }


def _notes(run: RunData) -> list[Json]:
    said_under_model = run.reference.model.get("note")
    return [{"code": "note", "text": text} for text in run.facts["warnings"] or () if text != said_under_model]


def _doubts(run: RunData, found: Mapping[str, Mapping[str, Figure]]) -> Iterator[Json]:
    """What the engine or a meter did otherwise than one would think."""
    for variant in run.variants:
        if doubt := found[variant.name]["energy_j_per_token"].conditions.get("disagreement"):
            yield {"code": "energy", "text": f"{variant.name}: {doubt}"}
        for loaded in variant.rows("engine", "load"):
            placement, layers = loaded["info"].get("placement", {}), loaded["info"].get("n_layers", 0)
            asked, placed = placement.get("gpu_layers_asked", 0), placement.get("gpu_layers", 0)
            if placed < min(asked, layers):
                yield {"code": "placement", "text": f"{variant.name}: {placed} of {layers} layers are on a GPU"}
    if slow := next((state for v in run.variants if (state := _amx(v)).startswith("off")), ""):
        why = slow.removeprefix("off: ")
        yield {
            "code": "amx",
            "text": f"llama.cpp was {why}: AMX is unused, so int8 and int4 could be faster; see doctor",
        }


def _amx(variant: VariantRun) -> str:
    """What became of the CPU's matrix unit when the variant was loaded, "" where that is unknown."""
    loaded = variant.rows("engine", "load")
    return str(loaded[0]["info"].get("placement", {}).get("amx", "")) if loaded else ""


def _suites(run: RunData, found: Mapping[str, Mapping[str, Figure]]) -> Json:
    base = found[run.reference.name]
    made: Json = {}
    settings = run.facts["suites"] or {}
    if "mmlu" in settings:
        data = run.facts["mmlu_data"] or {}
        own = {
            v.name: rows
            for v in run.variants
            if not v.reference and not v.shared("mmlu", "docs") and (rows := v.rows("mmlu", "docs"))
        }
        apart = quality.separates(own, run.reference.rows("mmlu", "docs"))
        made["mmlu"] = {
            "label": data.get("label", "MMLU"),
            "is_sample": bool(data.get("is_sample")),
            "form": settings["mmlu"]["form"],
            "chance": CHANCE,
            "reference": _short(base["mmlu_acc"]),
            "at_chance": quality.at_chance(base["mmlu_acc"], CHANCE),
            "separates": apart.separates,
            "why": apart.why,
        }
    if "long_context" in settings:
        figure = base["ledger_acc"]
        made["long_context"] = {
            "label": "Long context: planted facts",
            "is_sample": False,
            "chance": long_context.CHANCE,
            "reference": _short(figure),
            "at_chance": long_context.at_chance(figure),
            "separates": None,
            "why": "generated stories and documents; four options a question",
        }
    if "code_syntax" in settings:
        figure = base["code_parse_rate"]
        made["code_syntax"] = {
            "label": "Code that parses",
            "is_sample": False,
            "chance": 0.0,
            "reference": _short(figure),
            "at_chance": figure.value is None or figure.low is None or figure.low <= 0,
            "separates": None,
            "why": "function bodies in eight languages",
        }
    return made


def _short(figure: Figure) -> Json:
    return {"value": figure.value, "low": figure.low, "high": figure.high, "n": figure.n}


def _variant(variant: VariantRun, found: Mapping[str, Figure]) -> Json:
    failures = [
        {"suite": suite, "reason": part.error or "failed"}
        for (suite, _), part in variant.parts.items()
        if part.state == "failed"
    ]
    if variant.parts and all(part.state == "failed" for part in variant.parts.values()):
        status = "failed"
    else:
        status = "partial" if failures or any(p.state != "done" for p in variant.parts.values()) else "ok"
    if any("nonfinite" in figure.reasons for figure in found.values()):
        status = "failed"
        failures = failures or [{"suite": "all", "reason": "the model produced NaN or infinite logits"}]
    if changed := lossless.fault(lossless.audit(variant.rows("fidelity", "audit"))):
        status = "failed"
        failures.append({"suite": "fidelity", "reason": changed})
    return {
        "name": variant.name,
        "reference": variant.reference,
        "id": variant.identity,
        "status": status,
        "failures": failures,
        "settings": _settings(variant),
        "model_file": variant.model.get("file"),
        "model_digest": variant.model.get("digest"),
        "deploy": command(variant.spec),
        "deploy_needs": needs(variant.spec),
        "metrics": {key: _metric(key, figure) for key, figure in found.items()},
    }


def _settings(variant: VariantRun) -> Json:
    hidden = ("model_path", "model_digest", "speculate", "speculation", "extra")
    plain = {key: value for key, value in variant.spec.items() if key not in hidden}
    return {**plain, "speculate": variant.spec.get("speculation", "none"), "speculation": variant.spec["speculate"]}


def _metric(key: str, figure: Figure) -> Json:
    metric = METRICS[key]
    return {
        "value": figure.value,
        "low": figure.low,
        "high": figure.high,
        "n": figure.n,
        "unit": metric.unit,
        "better": metric.better,
        "reasons": list(figure.reasons),
        "conditions": dict(figure.conditions),
    }
