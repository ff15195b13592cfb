"""How precise each variant's speeds became, and the rounds that were spent on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.metrics.precision import PAIRED, half_width
from harness.metrics.sentinel import AGAIN
from harness.record import Figure
from harness.results.model import Payload, RunData, VariantRun

Json = dict[str, Any]


def precision(run: RunData, found: Mapping[str, Mapping[str, Figure]]) -> Json:
    """What was asked, and by variant the half widths of speeds and of their ratios to the reference's.

    ``met`` is judged on the ratios, and for the only variant of a run on its own speeds; None for the reference, and
    where nothing was asked. ``extra_rounds`` were run beyond the planned ones; ``why`` says what was open then.
    """
    asked = ((run.facts.get("suites") or {}).get("speed") or {}).get("precision")
    batches: Sequence[Payload] = run.facts.get("race") or ()
    alone = len(run.variants) == 1
    return {
        "asked": asked,
        "variants": {v.name: _reached(v, found[v.name], asked, batches, alone) for v in run.variants},
    }


def _reached(
    variant: VariantRun, own: Mapping[str, Figure], asked: Payload | None, batches: Sequence[Payload], alone: bool
) -> Json:
    widths: Json = {key: half_width(own[key]) for key in PAIRED}
    widths |= {key: None if variant.reference else half_width(own[key]) for key in PAIRED.values()}
    judged = {key: widths[key if alone else PAIRED[key]] for key in asked or ()}
    met = all(width is not None and width <= (asked or {})[key] for key, width in judged.items())
    rounds = {row["block"] % AGAIN for row in variant.rows("speed", "trials")}
    further = {b for batch in batches for b in range(batch["from_block"], batch["from_block"] + batch["blocks"])}
    return {
        **widths,
        "met": None if not judged or (variant.reference and not alone) else met,
        "extra_rounds": len(rounds & further),
        "why": next((batch["why"][variant.name] for batch in batches if variant.name in batch["why"]), None),
    }
