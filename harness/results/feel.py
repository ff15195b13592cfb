"""What a reader feels of each variant, beside the figures that the catalogue has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.metrics import feel as felt
from harness.record import Figure
from harness.results.model import RunData, VariantRun

Json = dict[str, Any]


def feel(run: RunData, found: Mapping[str, Mapping[str, Figure]]) -> Json:
    """The ``feel`` entry of results.json: what was taken as a completion and as a reader, and each timed variant."""
    return {
        "completion_tokens": felt.COMPLETION_TOKENS,
        "budget_s": felt.BUDGET_S,
        "calls": list(felt.CALLS),
        "readers_tps": {"reading": felt.READING_TPS, "skimming": felt.SKIMMING_TPS},
        "variants": {v.name: _variant(v, found[v.name]["decode_tps"]) for v in run.variants if v.trials()},
    }


def _variant(variant: VariantRun, speed: Figure) -> Json:
    trials = variant.trials()
    names = () if speed.value is None else felt.bands(speed.value, speed.low, speed.high)
    return {
        "bands": list(names),
        "band": felt.band_text(names) if names else None,
        "figures": {key: plain(figure) for key, figure in felt.feel_details(trials).items()},
        "by_prompt": [
            {"prompt_tokens": length, **{key: plain(figure) for key, figure in figures.items()}}
            for length, figures in felt.completion_by_prompt(trials)
        ],
    }


def plain(figure: Figure) -> Json:
    """A figure that the catalogue doesn't have, as JSON values."""
    return {
        "value": figure.value,
        "low": figure.low,
        "high": figure.high,
        "n": figure.n,
        "reasons": list(figure.reasons),
        "conditions": dict(figure.conditions),
    }
