"""What speculation gives, target by draft: each speculating variant beside the same settings without speculation."""

from __future__ import annotations

from typing import Any

from harness.metrics import speculation, speed
from harness.record import CODES, INFORMATIVE_CODES, Figure
from harness.results.model import RunData, VariantRun
from harness.suites import lossless

Json = dict[str, Any]


def by_target_and_draft(run: RunData) -> Json:
    """Targets, drafts and their cells: the speed-up over the target alone, paired by block, and the acceptance."""
    pairs = [(variant, plain(run, variant)) for variant in run.variants if variant.speculates]
    targets = {target.name for _, target in pairs if target is not None}
    return {
        "targets": [variant.name for variant in run.variants if variant.name in targets],
        "drafts": list(dict.fromkeys(_draft(variant) for variant, _ in pairs)),
        "cells": [_cell(variant, target) for variant, target in pairs],
    }


def plain(run: RunData, variant: VariantRun) -> VariantRun | None:
    """The variant with the same settings and no speculation."""
    return next((v for v in run.variants if not v.speculates and v.plain_spec == variant.plain_spec), None)


def _draft(variant: VariantRun) -> str:
    return str(variant.spec.get("speculation") or variant.spec["speculate"]["kind"])


def _cell(variant: VariantRun, target: VariantRun | None) -> Json:
    trials, how = variant.trials(), variant.spec["speculate"]
    figures = speed.speed_figures(trials) if trials else {}
    speedup, why = _speedup(variant, target)
    share = figures["draft_share"].value if figures else None
    return {
        # Without its target in the run, the name that the target would have.
        "target": target.name if target else variant.name.removesuffix(f"+{_draft(variant)}"),
        "draft": _draft(variant),
        "variant": variant.name,
        "speedup": _short(speedup),
        "why": why,
        "accept_rate": _short(figures.get("accept_rate")),
        "accept_len": _short(figures.get("accept_len")),
        "by_position": [{"accepted": a, "drafted": d} for a, d in speculation.by_position(trials)],
        "draft_share": share,
        "tokens": how["tokens"],
        "adapt": bool(how.get("adapt", False)),
    }


def _speedup(variant: VariantRun, target: VariantRun | None) -> tuple[Figure | None, str | None]:
    """The paired speed-up, and in words why there is none or why it cannot be relied on."""
    if target is None:
        return None, "the same settings without speculation are not in this run"
    mine, theirs = variant.trials(), target.trials()
    if not mine or not theirs:
        silent = variant if not mine else target
        return None, f"{silent.name}: {CODES[silent.why_missing('speed', 'trials')]}"
    figure = speed.speedup(mine, theirs)
    codes = [code for code in figure.reasons if code not in INFORMATIVE_CODES]
    if lossless.fault(lossless.audit(variant.rows("fidelity", "audit"))):
        codes.append("lossy_speculation")
    return figure, "; ".join(CODES[code] for code in codes) or None


def _short(figure: Figure | None) -> Json | None:
    if figure is None or figure.value is None:
        return None
    return {"value": figure.value, "low": figure.low, "high": figure.high, "n": figure.n}
