"""The interactive charts as plain plotly dicts, each with a text summary and the same numbers as a table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.report.frame import axis, bars, between, layout, lengths, plain
from harness.report.look import Look
from harness.report.text import DASH, Json, chip, quantity, reasons_of, shown

_READABLE = 12  # lines on one chart
_LENGTHS = {"prompt_tokens": "prompt tokens", "depth": "context depth (tokens)", "tokens": "tokens written"}


@dataclass(frozen=True, slots=True)
class Figure:
    """One chart.

    Attributes:
        id: Of its element on the page.
        title: Its heading.
        note: One sentence under the heading; may be empty.
        summary: What it shows, in words, for those who can't see it.
        spec: ``{"data", "layout"}`` for plotly.
        height: Pixels.
        head, rows: The same figures as a table.
    """

    id: str
    title: str
    note: str
    summary: str
    spec: Mapping[str, Any]
    height: int
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class About:
    """What a chart is of.

    Attributes:
        id: Of its element on the page.
        title: Heading.
        note: Sentence under it; may be empty.
        key: The figure plotted, for its unit.
        axis: Name of the vertical axis, without the unit (lines only).
        chance: What guessing scores, in the catalogue's unit; None if there is no such level.
        ticks: Lengths that the horizontal axis spans besides its own, so that charts side by side share it.
    """

    id: str
    title: str
    note: str
    key: str
    axis: str = ""
    chance: float | None = None
    ticks: tuple[int, ...] = ()


def lines(about: About, x_key: str, series: Mapping[str, Sequence[Json]], look: Mapping[str, Look]) -> Figure | None:
    """One line with intervals per variant over a length in tokens. None if no series has a value.

    Args:
        about: What it is of.
        x_key: The points' key for the horizontal axis: "prompt_tokens", "depth" or "tokens".
        series: ``{variant: [{x_key, "value", "low", "high", "n"}]}``.
        look: How each variant looks.
    """
    kept = {name: [p for p in points if p.get("value") is not None] for name, points in series.items()}
    kept = {name: sorted(points, key=lambda p: p[x_key]) for name, points in kept.items() if points and name in look}
    if not kept:
        return None
    how = shown(about.key, (p["value"] for points in kept.values() for p in points))
    data = [_line(about.key, name, x_key, points, how.factor, look[name]) for name, points in kept.items()]
    note = about.note
    if len(kept) > _READABLE and any(look[name].leading for name in kept):
        for name, line in zip(kept, data, strict=True):
            line["visible"] = True if look[name].leading else "legendonly"
        note = f"{note} Pick more variants in the legend.".strip()
    ticks = sorted({p[x_key] for points in kept.values() for p in points})
    every = sorted({*ticks, *about.ticks})
    height = 330 + 22 * math.ceil(len(kept) / 4)
    drawn = layout(
        height,
        lengths(_LENGTHS[x_key], every),
        axis(f"{about.axis} ({how.unit})", rangemode="tozero"),
        **({} if about.chance is None else _rule(about.chance * how.factor, "guessing", between(every))),
    )
    rows = tuple(
        (name, *(_point(about.key, next((p for p in points if p[x_key] == tick), None)) for tick in ticks))
        for name, points in kept.items()
    )
    ends = {name: points[-1]["value"] for name, points in kept.items() if points[-1][x_key] == ticks[-1]}
    summary = f"{about.title}, one line per variant. At {ticks[-1]:,} tokens {_span(about.key, ends)}."
    head = ("variant", *(f"{tick:,} tokens" for tick in ticks))
    spec = {"data": data, "layout": drawn}
    return Figure(about.id, about.title, note, summary, spec, height, head, rows)


def _line(key: str, name: str, x_key: str, points: Sequence[Json], factor: float, look: Look) -> dict[str, Any]:
    return {
        "type": "scatter", "mode": "lines+markers", "name": plain(name),
        "x": [p[x_key] for p in points], "y": [p["value"] * factor for p in points],
        "error_y": bars(points, factor),
        "text": [plain(f"{name}: {_point(key, p)} at {p[x_key]:,} tokens") for p in points], "hoverinfo": "text",
        "line": {"color": look.color, "dash": look.dash, "width": 2},
        "marker": {"size": 8, "symbol": look.symbol},
    }  # fmt: skip


def _span(key: str, values: Mapping[str, float]) -> str:
    """The smallest and largest of some figures, in words."""
    low, high = min(values, key=values.__getitem__), max(values, key=values.__getitem__)
    return f"from {quantity(key, values[low])} ({low}) to {quantity(key, values[high])} ({high})"


def _point(key: str, point: Json | None) -> str:
    if point is None:
        return DASH
    return quantity(key, point["value"], point.get("low"), point.get("high"))


def _rule(level: float, name: str, at: Mapping[str, Any]) -> dict[str, Any]:
    """A dashed line at a level, named ``at`` a place that no interval crosses."""
    line = {"color": "@muted", "width": 1.5, "dash": "dash"}
    shape = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": level, "y1": level, "line": line}
    note = {**at, "y": level, "text": plain(name), "showarrow": False, "yanchor": "top", "font": {"color": "@muted"}}
    return {"shapes": [shape], "annotations": [note]}


def jitter(
    values: Mapping[str, Sequence[float]], look: Mapping[str, Look], metrics: Mapping[str, str]
) -> Figure | None:
    """A box with every request's point per variant: end-to-end time over its prompt's median.

    Args:
        values: Normalised times per variant.
        look: How each variant looks.
        metrics: The jitter figure of each variant, as text.
    """
    kept = {name: list(v) for name, v in values.items() if v and name in look}
    if not kept:
        return None
    data = [
        {
            "type": "box", "orientation": "h", "name": plain(name), "x": v, "boxpoints": "all", "pointpos": 0,
            "jitter": 0.5, "fillcolor": "rgba(0,0,0,0)", "line": {"color": look[name].color, "width": 1.2},
            "marker": {"size": 4, "opacity": 0.55, "color": look[name].color}, "hoverinfo": "x", "showlegend": False,
        }
        for name, v in kept.items()
    ]  # fmt: skip
    rule = {"type": "line", "yref": "paper", "x0": 1, "x1": 1, "y0": 0, "y1": 1}
    height = 110 + 34 * len(kept)
    drawn = layout(
        height,
        axis("time / median of its prompt"),
        {"type": "category", "autorange": "reversed", "tickfont": {"color": "@ink"}},
        shapes=[{**rule, "line": {"color": "@muted", "width": 1, "dash": "dot"}}],
    )
    rows = tuple(
        (name, metrics.get(name, DASH), f"{min(v):.3f}", f"{max(v):.3f}", str(len(v))) for name, v in kept.items()
    )
    title = "Jitter: how evenly requests end"
    note = "Each point is one request. A tight cluster at 1 feels steady; a long tail is what users notice."
    widest = max(kept, key=lambda name: max(kept[name]) - min(kept[name]))
    summary = f"{title}. The widest spread is that of {widest}: {min(kept[widest]):.2f} to {max(kept[widest]):.2f}."
    head = ("variant", "jitter", "fastest / median", "slowest / median", "requests")
    return Figure("fig-jitter", title, note, summary, {"data": data, "layout": drawn}, height, head, rows)


def suite(
    about: About, metrics: Mapping[str, Json | None], look: Mapping[str, Look], reference: Json | None
) -> Figure | None:
    """One row per variant with its interval; guessing and the reference's interval drawn behind.

    None if no variant has a value.

    Args:
        about: What it is of.
        metrics: The figure of each variant, or None where there is none.
        look: How each variant looks.
        reference: The reference's ``{"value", "low", "high"}``.
    """
    have = {name: metric for name, metric in metrics.items() if metric and metric.get("value") is not None}
    if not have:
        return None
    key, names = about.key, list(metrics)
    how = shown(key, (metric["value"] for metric in have.values()))
    data = [_dot(key, name, metric, how.factor, look[name]) for name, metric in have.items()]
    height = 110 + 26 * len(names)
    every = [plain(name) for name in names]
    by_name = {"type": "category", "categoryarray": every, "range": [len(every) - 0.5, -0.5]}
    drawn = layout(height, axis(how.unit), {**by_name, "tickfont": {"color": "@ink"}})
    drawn |= {"margin": {"l": 8, "r": 12, "t": 24, "b": 8}, **_backdrop(about.chance, reference, how.factor)}
    drawn["annotations"] += [_gap(name, metric) for name, metric in metrics.items() if name not in have]
    rows = tuple((name, _point(key, have.get(name)), str((metrics[name] or {}).get("n", DASH))) for name in names)
    summary = f"{about.title}: {_span(key, {name: metric['value'] for name, metric in have.items()})}."
    summary += "" if about.chance is None else f" Guessing scores {quantity(key, about.chance)}."
    spec = {"data": data, "layout": drawn}
    return Figure(about.id, about.title, about.note, summary, spec, height, ("variant", how.unit, "n"), rows)


def _dot(key: str, name: str, metric: Json, factor: float, look: Look) -> dict[str, Any]:
    return {
        "type": "scatter", "mode": "markers", "name": plain(name), "showlegend": False,
        "x": [metric["value"] * factor], "y": [plain(name)],
        "error_x": bars([metric], factor),
        "text": [plain(f"{name}: {_point(key, metric)}")], "hoverinfo": "text",
        "marker": {"size": 10, "color": look.color, "symbol": look.symbol},
    }  # fmt: skip


def _gap(name: str, metric: Json | None) -> dict[str, Any]:
    """The words in the row of a variant without a figure: a dash and its reasons."""
    words = ", ".join(chip(code).label for code in reasons_of(metric))
    at = {"xref": "paper", "x": 0.02, "xanchor": "left", "y": plain(name), "showarrow": False}
    return {**at, "text": plain(f"{DASH} {words}"), "font": {"color": "@muted", "size": 12}}


def _backdrop(chance: float | None, reference: Json | None, factor: float) -> dict[str, list[dict[str, Any]]]:
    """The reference's interval as a band and the level of guessing as a dashed line."""
    shapes: list[dict[str, Any]] = []
    notes: list[dict[str, Any]] = []
    span = {"yref": "paper", "y0": 0, "y1": 1}
    if reference and reference.get("low") is not None and reference.get("high") is not None:
        edge = {"x0": reference["low"] * factor, "x1": reference["high"] * factor, "line": {"width": 0}}
        shapes.append({"type": "rect", **span, **edge, "fillcolor": "@band", "layer": "below"})
    if chance is not None:
        dash = {"color": "@warn", "width": 1.5, "dash": "dash"}
        shapes.append({"type": "line", **span, "x0": chance * factor, "x1": chance * factor, "line": dash})
        at = {"x": chance * factor, "yref": "paper", "y": 1, "yanchor": "bottom", "showarrow": False}
        notes.append({**at, "text": "guessing", "font": {"color": "@warn", "size": 12}})
    return {"shapes": shapes, "annotations": notes}
