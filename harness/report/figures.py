"""The interactive charts as plain plotly dicts, each with a text summary and the same numbers as a table.

Colours that depend on light or dark are tokens ("@ink"); the page's script fills them in. Knows nothing of HTML,
but plotly reads markup in texts, so every name passes ``plain`` first.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.report.text import DASH, Json, chip, quantity, reasons_of, shown

# Okabe-Ito's hues without yellow, told apart by colour-blind readers; the style sheet sets their shade by mode.
PALETTE = ("@c0", "@c1", "@c2", "@c3", "@c4", "@c5")
_SHAPES = {"none": ("circle", "solid"), "lookup": ("diamond", "dash"), "draft": ("square", "dot")}
_OTHER_SHAPE = ("triangle", "dashdot")


@dataclass(frozen=True, slots=True)
class Look:
    """How a variant looks on every chart: colour by weights, shape and dash by speculation."""

    color: str
    shape: str
    dash: str

    @property
    def symbol(self) -> str:
        """The shape's name in plotly."""
        return "triangle-up" if self.shape == "triangle" else self.shape


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


def plain(text: object) -> str:
    """A text that plotly prints as it is: its pseudo-HTML is escaped."""
    return html.escape(str(text), quote=False)


def looks(variants: Sequence[Json]) -> dict[str, Look]:
    """The look of every variant: the reference's weights take the ink, others the palette in order."""
    reference = next((v for v in variants if v.get("reference")), None)
    own = str(reference.get("settings", {}).get("weights")) if reference else None
    colors: dict[str, str] = {own: "@ink"} if own else {}
    result = {}
    for variant in variants:
        settings = variant.get("settings") or {}
        weights = str(settings.get("weights", variant["name"]))
        if weights not in colors:
            colors[weights] = PALETTE[(len(colors) - bool(own)) % len(PALETTE)]
        shape, dash = _SHAPES.get(str(settings.get("speculate", "none")), _OTHER_SHAPE)
        result[variant["name"]] = Look(colors[weights], shape, dash)
    return result


def _layout(height: int, x: Mapping[str, Any], y: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    axis = {"gridcolor": "@grid", "zeroline": False, "linecolor": "@grid", "automargin": True, "fixedrange": True}
    return {
        "height": height,
        "font": {"family": "@font", "size": 12.5, "color": "@muted"},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 8, "r": 12, "t": 8, "b": 8},
        "hoverlabel": {"bgcolor": "@card", "bordercolor": "@line", "font": {"color": "@ink", "family": "@font"}},
        "legend": {
            "orientation": "h",
            "xref": "container",
            "x": 0,
            "yref": "container",
            "y": 0,
            "yanchor": "bottom",
            "font": {"color": "@ink"},
        },
        "dragmode": False,
        "xaxis": {**axis, **x},
        "yaxis": {**axis, **y},
        **more,
    }


def _axis(text: str, **more: Any) -> dict[str, Any]:
    return {"title": {"text": plain(text), "standoff": 10}, **more}


def _bars(points: Sequence[Json], factor: float) -> dict[str, Any]:
    """Error bars from intervals; a point without one gets none."""

    def side(name: str, sign: int) -> list[float | None]:
        return [None if p.get(name) is None else sign * (p[name] - p["value"]) * factor for p in points]

    return {
        "type": "data", "symmetric": False, "array": side("high", 1), "arrayminus": side("low", -1),
        "thickness": 1, "width": 3,
    }  # fmt: skip


def lines(
    id: str,
    title: str,
    note: str,
    key: str,
    x_key: str,
    x_label: str,
    series: Mapping[str, Sequence[Json]],
    look: Mapping[str, Look],
    y_label: str,
    rule: tuple[float, str] | None = None,
) -> Figure | None:
    """One line with intervals per variant. None if no series has a value.

    Args:
        id: Of the element.
        title: Heading.
        note: Sentence under it.
        key: The figure plotted, for its unit.
        x_key: The points' key for the horizontal axis.
        x_label: Its axis title.
        series: ``{variant: [{x_key, "value", "low", "high", "n"}]}``.
        look: How each variant looks.
        y_label: Vertical axis title, without the unit.
        rule: A level drawn across the chart and its name, in the catalogue's unit.
    """
    kept = {name: [p for p in points if p.get("value") is not None] for name, points in series.items()}
    kept = {name: sorted(points, key=lambda p: p[x_key]) for name, points in kept.items() if points and name in look}
    if not kept:
        return None
    how = shown(key, (p["value"] for points in kept.values() for p in points))
    factor, unit = how.factor, how.unit
    data = [
        {
            "type": "scatter", "mode": "lines+markers", "name": plain(name),
            "x": [p[x_key] for p in points], "y": [p["value"] * factor for p in points],
            "error_y": _bars(points, factor),
            "text": [plain(f"{name}: {_point(key, p)} at {p[x_key]:,} tokens") for p in points], "hoverinfo": "text",
            "line": {"color": look[name].color, "dash": look[name].dash, "width": 2},
            "marker": {"size": 8, "symbol": look[name].symbol},
        }
        for name, points in kept.items()
    ]  # fmt: skip
    ticks = sorted({p[x_key] for points in kept.values() for p in points})
    extra = _rule(rule[0] * factor, rule[1]) if rule else {}
    height = 330 + 22 * math.ceil(len(kept) / 4)
    layout = _layout(
        height,
        _axis(x_label, type="log", tickmode="array", tickvals=ticks, ticktext=[f"{t:,}" for t in ticks]),
        _axis(f"{y_label} ({unit})", rangemode="tozero"),
        **extra,
    )
    rows = tuple(
        (name, *(_point(key, next((p for p in points if p[x_key] == tick), None)) for tick in ticks))
        for name, points in kept.items()
    )
    ends = [(name, points[-1]["value"]) for name, points in kept.items() if points[-1][x_key] == ticks[-1]]
    low, high = min(ends, key=lambda e: e[1]), max(ends, key=lambda e: e[1])
    summary = f"{title}, one line per variant. At {ticks[-1]:,} tokens: from {quantity(key, low[1])} ({low[0]})"
    summary += f" to {quantity(key, high[1])} ({high[0]})."
    head = ("variant", *(f"{tick:,} tokens" for tick in ticks))
    return Figure(id, title, note, summary, {"data": data, "layout": layout}, height, head, rows)


def _point(key: str, point: Json | None) -> str:
    if point is None:
        return DASH
    return quantity(key, point["value"], point.get("low"), point.get("high"))


def _rule(level: float, name: str) -> dict[str, Any]:
    line = {"color": "@muted", "width": 1.5, "dash": "dash"}
    shape = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": level, "y1": level, "line": line}
    note = {"xref": "paper", "x": 1, "y": level, "text": plain(name), "showarrow": False, "yanchor": "bottom"}
    return {"shapes": [shape], "annotations": [{**note, "xanchor": "right", "font": {"color": "@muted"}}]}


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
    layout = _layout(
        height,
        _axis("time / median of its prompt"),
        {"autorange": "reversed", "tickfont": {"color": "@ink"}},
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
    return Figure("fig-jitter", title, note, summary, {"data": data, "layout": layout}, height, head, rows)


def suite(
    id: str,
    title: str,
    note: str,
    key: str,
    metrics: Mapping[str, Json | None],
    look: Mapping[str, Look],
    chance: float | None,
    reference: Json | None,
) -> Figure | None:
    """One row per variant with its interval; guessing and the reference's interval drawn behind.

    None if no variant has a value.

    Args:
        id: Of the element.
        title: Heading.
        note: Sentence under it.
        key: The figure.
        metrics: The figure of each variant, or None where there is none.
        look: How each variant looks.
        chance: What guessing scores, in the catalogue's unit; None if there is no such level.
        reference: The reference's ``{"value", "low", "high"}``.
    """
    have = {name: metric for name, metric in metrics.items() if metric and metric.get("value") is not None}
    if not have:
        return None
    how = shown(key, (metric["value"] for metric in have.values()))
    factor, unit = how.factor, how.unit
    names = list(metrics)
    data = [
        {
            "type": "scatter", "mode": "markers", "name": plain(name), "showlegend": False,
            "x": [metric["value"] * factor], "y": [plain(name)],
            "error_x": _bars([metric], factor),
            "text": [plain(f"{name}: {_point(key, metric)}")], "hoverinfo": "text",
            "marker": {"size": 10, "color": look[name].color, "symbol": look[name].symbol},
        }
        for name, metric in have.items()
    ]  # fmt: skip
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
    height = 110 + 26 * len(names)
    for name in (name for name in names if name not in have):
        words = ", ".join(chip(code).label for code in reasons_of(metrics[name]))
        at = {"xref": "paper", "x": 0.02, "xanchor": "left", "y": plain(name), "showarrow": False}
        notes.append({**at, "text": plain(f"{DASH} {words}"), "font": {"color": "@muted", "size": 12}})
    every = [plain(name) for name in names]
    rows_axis = {"categoryorder": "array", "categoryarray": every, "range": [len(every) - 0.5, -0.5]}
    layout = _layout(height, _axis(unit), {**rows_axis, "tickfont": {"color": "@ink"}}, shapes=shapes)
    layout |= {"annotations": notes, "margin": {"l": 8, "r": 12, "t": 24, "b": 8}}
    rows = tuple((name, _point(key, have.get(name)), str((metrics[name] or {}).get("n", DASH))) for name in names)
    best, worst = max(have, key=lambda n: have[n]["value"]), min(have, key=lambda n: have[n]["value"])
    summary = f"{title}: from {quantity(key, have[worst]['value'])} ({worst}) to"
    summary += f" {quantity(key, have[best]['value'])} ({best})."
    summary += f" Guessing scores {quantity(key, chance)}." if chance is not None else ""
    return Figure(id, title, note, summary, {"data": data, "layout": layout}, height, ("variant", unit, "n"), rows)
