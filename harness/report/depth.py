"""Speed beside quality as the context fills: charts that share one axis of depth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.report import figures
from harness.report.figures import About, Figure
from harness.report.look import Look
from harness.report.text import Json


def charts(series: Json, order: Sequence[str], look: Mapping[str, Look], suites: Json) -> tuple[Figure, ...]:
    """Decode speed, recall and TTFT by depth; one without data is left out.

    Args:
        series: The run's series: "depth_speed" and "depth" of it.
        order: Variants in the page's order.
        look: How each variant looks.
        suites: ``suites`` of results.json, for what guessing scores.
    """
    recall = _points(series.get("depth"), order)
    decode, ttft = (_points(series.get("depth_speed"), order, key) for key in ("decode_tps", "ttft_s"))
    ticks = tuple(sorted({point["depth"] for part in (decode, recall, ttft) for ps in part.values() for point in ps}))
    chance = (suites.get("long_context") or {}).get("chance")
    speed_note = f"Tokens per second after a context of this length. {_fall(decode)}".strip()
    share = "Share of probes answered right, by the length of the text before them."
    wait = "From sending a context of this length to the first token."
    found = (
        (About("fig-depth-tps", "Decode speed by depth", speed_note, "decode_tps", "decode", None, ticks), decode),
        (About("fig-depth", "Recall by depth", share, "ledger_acc", "probes right", chance, ticks), recall),
        (About("fig-depth-ttft", "TTFT by depth", wait, "ttft_s", "TTFT", None, ticks), ttft),
    )
    drawn = (figures.lines(about, "depth", points, look) for about, points in found)
    return tuple(figure for figure in drawn if figure is not None)


def _points(by_variant: Mapping[str, Any] | None, order: Sequence[str], key: str = "") -> dict[str, list[Json]]:
    """Points with a value in the page's order; where ``key`` is given, those of that figure at each depth."""
    found: dict[str, list[Json]] = {}
    for name in order:
        rows = (by_variant or {}).get(name) or ()
        given = [{"depth": row["depth"], **((row.get(key) or {}) if key else row)} for row in rows]
        found[name] = [point for point in given if point.get("value") is not None]
    return found


def _fall(decode: Mapping[str, Sequence[Json]]) -> str:
    """What is left of the decode speed at the greatest depth, in a sentence; empty where nothing can be compared."""
    depths = sorted({point["depth"] for points in decode.values() for point in points})
    left = {}
    for name, points in decode.items():
        by_depth = {point["depth"]: point["value"] for point in points}
        if len(depths) > 1 and by_depth.get(depths[0]) and depths[-1] in by_depth:
            left[name] = by_depth[depths[-1]] / by_depth[depths[0]]
    if not left:
        return ""
    least, most = min(left, key=left.__getitem__), max(left, key=left.__getitem__)
    low, high = f"{left[least]:.0%}", f"{left[most]:.0%}"
    share = low if low == high else f"{low} ({least}) to {high} ({most})"
    return f"At {depths[-1]:,} tokens {share} of the speed at {depths[0]:,} is left."
