"""Pareto fronts of a run with their uncertainty, from rows resampled jointly over all variants."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.decide import pareto
from harness.metrics import quality, speed
from harness.metrics.energy_windows import log_rates
from harness.record import Figure
from harness.results.figures import same_scoring
from harness.results.model import RunData, VariantRun
from harness.suites.fidelity import BLOCK
from harness.suites.long_context import score as long_context

Floats = npt.NDArray[np.float64]
AllFigures = Mapping[str, Mapping[str, Figure]]
# What stands against quality, in the order of the report's views.
AGAINST = ("decode_tps", "ttft_s", "peak_rss_bytes", "energy_j_per_token")

# Any of these fails a variant or the part that gives a figure.
FATAL = ("nonfinite", "lossy_speculation", "cell_failed")


def fronts(
    run: RunData, figures: AllFigures, quality_keys: Sequence[str], failed: Container[str] = ()
) -> list[dict[str, Any]]:
    """The headline front first (first quality key against decode speed), then the further views.

    Args:
        run: The run.
        figures: Figures by variant and key.
        quality_keys: Quality axes; the first is the headline's.
        failed: Names of variants that no front may hold, whatever their figures.
    """
    pairs = [(quality_keys[0], key) for key in AGAINST] + [(key, "decode_tps") for key in quality_keys[1:]]
    return [_front(run, figures, list(pair), failed) for pair in pairs]


def _front(run: RunData, figures: AllFigures, objectives: list[str], failed: Container[str]) -> dict[str, Any]:
    points = {
        name: {key: found[key].value if found[key].ranks and name not in failed else None for key in objectives}
        for name, found in figures.items()
    }
    front = pareto.front(points, objectives)
    left = {entry.name: list(entry.missing) for entry in front.left_out}
    kept = [variant for variant in run.variants if variant.name not in left]
    chances, groups = _uncertainty(run, figures, kept, objectives)
    return {
        "objectives": objectives,
        "members": list(front.members),
        "p_front": chances,
        "left_out": [
            {"name": name, "reasons": _fatal(figures[name]) if name in failed else _reasons(figures[name], keys)}
            for name, keys in left.items()
        ],
        "tied": groups,
    }


def _reasons(figures: Mapping[str, Figure], keys: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(code for key in keys for code in figures[key].reasons)) or ["undefined"]


def _fatal(figures: Mapping[str, Figure]) -> list[str]:
    """The codes by which a variant failed."""
    return [code for code in FATAL if any(code in figure.reasons for figure in figures.values())]


def _uncertainty(
    run: RunData, figures: AllFigures, kept: Sequence[VariantRun], objectives: Sequence[str]
) -> tuple[dict[str, float], list[list[str]]]:
    if len(kept) < 2:
        return {variant.name: 1.0 for variant in kept}, []
    items, clusters = _items(run, kept, objectives[0])
    blocks = _blocks(run, figures, kept, objectives[1])
    names = [variant.name for variant in kept]
    draws = pareto.joint_draws(blocks, items, clusters, launched=run.launches.get(objectives[1]))
    groups = [group for group in pareto.tied(names, draws, objectives) if len(group) > 1]
    return pareto.p_front(names, draws, objectives), groups


def _items(run: RunData, variants: Sequence[VariantRun], key: str) -> tuple[Floats, list[str]]:
    """Scores by item, shape (variants, items), and what to resample them by."""
    if key == "mmlu_acc":
        _, scores, subjects = quality.score_matrix({v.name: v.rows("mmlu", "docs") for v in variants})
        return scores, subjects
    if key == "top1_agreement":
        found = {v.name: _agreement(run, v) for v in variants}
    else:
        found = {v.name: _probes(v) for v in variants}
    keys = sorted({item for scores in found.values() for item in scores})
    matrix = np.array([[scores.get(item, math.nan) for item in keys] for scores in found.values()], dtype=np.float64)
    return matrix, [item[0] for item in keys]


def _agreement(run: RunData, variant: VariantRun) -> dict[tuple[str, str], float]:
    rows = (variant if not same_scoring(run, variant) else run.reference).rows("fidelity", "kl")
    exact = same_scoring(run, variant)
    found = {}
    for row in rows:
        for offset, agrees in enumerate(row["top1"]):
            place = row["start"] + offset
            found[f"{place // BLOCK:06d}", f"{place:08d}"] = 1.0 if exact else float(agrees)
    return found


def _probes(variant: VariantRun) -> dict[tuple[str, str], float]:
    return {
        (f"{row['text']}/{row['fact']}", f"{row['depth']}/{row['family']}/{row['asked']}"): float(
            long_context.chosen(row) == row["gold"]
        )
        for row in variant.rows("long_context", "probes")
        if long_context.finite(row)
    }


def _blocks(run: RunData, figures: AllFigures, variants: Sequence[VariantRun], key: str) -> Floats:
    """ln(figure / the reference's) by block, shape (variants, blocks); one column for a figure that does not vary."""
    if key == "energy_j_per_token" and (logs := _energy_logs(run, variants)):
        turns = sorted(set().union(*logs))
        return np.array([[found.get(turn, math.nan) for turn in turns] for found in logs], dtype=np.float64)
    if key not in ("decode_tps", "ttft_s"):
        return np.array([[math.log(figures[v.name][key].value or math.nan)] for v in variants], dtype=np.float64)
    if base := run.reference.trials():
        # Over the reference's in the same block: blocks that took only some variants would else tilt the comparison.
        logs = [speed.block_log_ratios(key, variant.trials(), base) for variant in variants]
    else:
        by_block = speed.block_log_rates if key == "decode_tps" else speed.block_log_ttft
        logs = [by_block(variant.trials()) for variant in variants]
    numbers = sorted({block for found in logs for block in found})
    return np.array([[found.get(block, math.nan) for block in numbers] for found in logs], dtype=np.float64)


def _energy_logs(run: RunData, variants: Sequence[VariantRun]) -> list[dict[int, float]]:
    """ln(joules per token over the reference's) by turn, of each variant; none where any has less than two turns."""
    base = log_rates(run.reference.rows("speed", "energy"))
    rates = [log_rates(variant.rows("speed", "energy")) for variant in variants]
    logs = [{turn: rate - base[turn] for turn, rate in own.items() if turn in base} for own in rates]
    return logs if all(len(found) > 1 for found in logs) else []
