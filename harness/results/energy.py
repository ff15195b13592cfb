"""Energy figures of one variant: from windows where energy is counted, else from its trials' labelled estimates."""

from __future__ import annotations

from dataclasses import replace

from harness.metrics import energy, energy_windows
from harness.metrics.request import trial_from_payload
from harness.record import Figure, missing
from harness.results.model import Payload, RunData, VariantRun

Figures = dict[str, Figure]
# Domains that a processor's or a GPU's energy may be in; a meter of the user's own covers what the user says.
_PROCESSOR, _GPU, _WHOLE = ("package", "soc"), ("gpu", "soc"), ("meter",)


def energy_figures(run: RunData, variant: VariantRun, accuracy: Figure | None) -> Figures:
    """Joules per token and per correct answer; ``accuracy``: the variant's MMLU figure, if it has one."""
    told = run.facts["energy"] or {}
    method = str(told.get("method") or "none")
    if method == "none":
        return {}
    if method.startswith("estimate"):
        rows = variant.timed()
        measured = [energy.EnergyTrial(trial_from_payload(row), tuple(row["energy"])) for row in rows]
        found = energy.estimated_figures(measured, *_idle_w(variant)) if rows else {}
        never = ("energy_prefill_j_per_token", "energy_decode_j_per_token", "energy_per_correct_j")
        return {**dict.fromkeys(never, missing("no_counter")), **found}
    rows = variant.rows("speed", "energy")
    found = energy_windows.window_figures(rows) if rows else {}
    scored = variant.parts.get(("mmlu", "docs"))
    if accuracy is not None and scored is not None:
        found["energy_per_correct_j"] = energy_windows.per_correct(scored.energy, scored.rows, accuracy)
    if _covered(variant, [str(domain) for domain in told.get("scope") or ()]):
        return found
    return {key: _coded(figure, "uncovered") for key, figure in found.items()}


def _coded(figure: Figure, code: str) -> Figure:
    return figure if figure.value is None else replace(figure, reasons=(*figure.reasons, code))


def _idle_w(variant: VariantRun) -> tuple[float | None, str]:
    """Estimated watts with the model loaded and nothing to do; None with a reason code."""
    loaded = variant.rows("engine", "load")
    readings = loaded[0].get("idle") if loaded else None
    if not readings:
        return None, "not_measured"
    joules, reason = energy.total_joules(readings)
    seconds = energy.window_s(readings)
    return (None if joules is None or seconds <= 0 else joules / seconds), reason or "not_measured"


def _covered(variant: VariantRun, domains: list[str]) -> bool:
    """Whether the meters see the devices that hold the model's layers."""
    if any(domain.startswith(_WHOLE) for domain in domains):
        return True
    placed, layers = _placement(variant.rows("engine", "load"))
    on_gpu = not placed or any(domain.startswith(_GPU) for domain in domains)
    on_processor = placed >= layers > 0 or any(domain.startswith(_PROCESSOR) for domain in domains)
    return on_gpu and on_processor


def _placement(loaded: tuple[Payload, ...]) -> tuple[int, int]:
    """Layers on a GPU, and all layers."""
    info = loaded[0]["info"] if loaded else {}
    return int(info.get("placement", {}).get("gpu_layers", 0)), int(info.get("n_layers", 0))
