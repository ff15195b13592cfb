"""A variant's noise floor, and its scores with that floor beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from harness.metrics.flips import flips
from harness.record import Figure
from harness.results.model import RunData, VariantRun
from harness.suites import floor


def noise(run: RunData, variant: VariantRun, found: Mapping[str, Figure]) -> dict[str, Figure]:
    """The figures of part "floor", and those of the scores that are read against them."""
    rows = variant.rows("fidelity", "floor")
    if not rows:
        return {}
    own = floor.figures(rows)
    return {**own, **floor.beside({**found, **own}), **_flips(run, variant, found, own["logprob_floor"])}


def _flips(run: RunData, variant: VariantRun, found: Mapping[str, Figure], limit: Figure) -> dict[str, Figure]:
    """``mmlu_flips`` with the floor, and how many of the flips it can explain."""
    figure = found.get("mmlu_flips")
    if figure is None or figure.value is None or limit.value is None:
        return {}
    conditions = {**figure.conditions, "floor": limit.value}
    if "is_reference" not in figure.reasons:
        flipped = flips(variant.rows("mmlu", "docs"), run.reference.rows("mmlu", "docs"), limit.value)
        conditions |= {"flipped": len(flipped), "near_ties": sum(flip.near_tie is True for flip in flipped)}
    return {"mmlu_flips": replace(figure, conditions=conditions)}
