"""What every interactive chart shares: its layout, axes and error bars, as plain plotly dicts.

Colours that depend on light or dark are tokens ("@ink"); the page's script fills them in. Plotly reads markup in texts,
so every name passes ``plain`` first.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any

from harness.report.text import Json

_APART = 1.12  # tick labels closer than this ratio would cover each other


def plain(text: object) -> str:
    """A text that plotly prints as it is: its pseudo-HTML is escaped."""
    return html.escape(str(text), quote=False)


def layout(height: int, x: Mapping[str, Any], y: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """A chart's layout with two axes; ``more`` replaces or adds top-level keys."""
    axis_look = {"gridcolor": "@grid", "zeroline": False, "linecolor": "@grid", "automargin": True, "fixedrange": True}
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
        "xaxis": {**axis_look, **x},
        "yaxis": {**axis_look, **y},
        **more,
    }


def axis(text: str, **more: Any) -> dict[str, Any]:
    """An axis with its title."""
    return {"title": {"text": plain(text), "standoff": 10}, **more}


def lengths(text: str, ticks: Sequence[int]) -> dict[str, Any]:
    """A horizontal axis of lengths in tokens, logarithmic unless one of them is 0; the same ticks, the same axis."""
    log = ticks[0] > 0
    low, high = (math.log10(ticks[0]), math.log10(ticks[-1])) if log else (float(ticks[0]), float(ticks[-1]))
    margin = 0.06 * (high - low) or 0.1 * (1 if log else max(high, 1.0))
    labels, last = [], None
    for tick in ticks:
        clear = last is None or tick >= last * _APART
        labels.append(f"{tick:,}" if clear else "")
        last = tick if clear else last
    return axis(
        text, type="log" if log else "linear", range=[low - margin, high + margin], tickvals=list(ticks),
        ticktext=labels,
    )  # fmt: skip


def between(ticks: Sequence[int]) -> dict[str, Any]:
    """Where a label stands on an axis of `lengths` so that it covers no point: half-way to the second of the ticks."""
    if len(ticks) < 2:
        return {"xref": "paper", "x": 0, "xanchor": "left"}
    low, high = (math.log10(tick) if ticks[0] > 0 else tick for tick in ticks[:2])
    return {"xref": "x", "x": (low + high) / 2, "xanchor": "center"}


def bars(points: Sequence[Json], factor: float) -> dict[str, Any]:
    """Error bars from intervals; a point without one gets none."""

    def side(name: str, sign: int) -> list[float | None]:
        return [None if p.get(name) is None else sign * (p[name] - p["value"]) * factor for p in points]

    return {
        "type": "data", "symmetric": False, "array": side("high", 1), "arrayminus": side("low", -1),
        "thickness": 1, "width": 3,
    }  # fmt: skip
