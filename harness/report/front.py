"""A scatter of two figures with its front, laid out in pixels: what the inline SVG needs and nothing more.

Pure geometry. It finds no front of its own: who is on it comes with the points.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

CHAR_PX = 6.9  # mean width of a character at 12.5 px; only label placement rests on it
_LINE_PX = 15.0
_ROOM_PX2 = 5500.0  # less room than this for each dot: names of dominated ones show where they cover nothing
_REACHES = (11.0, 22.0, 36.0, 54.0)
_DIRECTIONS = ((1, 0), (-1, 0), (0, -1), (0, 1), (0.8, -0.8), (0.8, 0.8), (-0.8, -0.8), (-0.8, 0.8))
Box = tuple[float, float, float, float]
Scale = Callable[[float], float]


@dataclass(frozen=True, slots=True)
class Mark:
    """One variant on the plane, in shown units.

    Attributes:
        x, y: Its figures; ``x_low`` .. ``y_high`` their intervals or None.
        front, chosen, reference: What it is.
        shape: "circle" | "diamond" | "square" | "triangle".
        title: Hover text.
    """

    name: str
    x: float
    y: float
    x_low: float | None
    x_high: float | None
    y_low: float | None
    y_high: float | None
    front: bool
    chosen: bool
    reference: bool
    shape: str
    title: str


@dataclass(frozen=True, slots=True)
class Dot:
    """A mark in pixels with its label and error bars."""

    mark: Mark
    x: float
    y: float
    x0: float
    x1: float
    y0: float
    y1: float
    label: str
    label_x: float
    label_y: float
    anchor: str
    leader: bool


@dataclass(frozen=True, slots=True)
class Tick:
    """A tick in pixels and its text."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Plot:
    """Everything the SVG prints; pixels."""

    width: int
    height: int
    left: float
    top: float
    right: float
    bottom: float
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    x_title: str
    y_title: str
    dots: tuple[Dot, ...]
    line: str


def nice_ticks(low: float, high: float, count: int) -> tuple[float, ...]:
    """Round numbers within [low, high], about ``count`` of them.

    >>> nice_ticks(88.0, 205.0, 5)
    (100.0, 120.0, 140.0, 160.0, 180.0, 200.0)
    """
    if not high > low:
        return (low,)
    raw = (high - low) / max(count, 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = power * next(factor for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * 0.85)
    first = math.ceil(low / step - 1e-9)
    return tuple(round(index * step, 10) for index in range(first, math.floor(high / step + 1e-9) + 1))


def _range(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    pad = (high - low) * 0.09 or abs(high) * 0.1 or 1.0
    return low - pad, high + pad


def _tick_texts(ticks: Sequence[float]) -> list[str]:
    step = ticks[1] - ticks[0] if len(ticks) > 1 else 0.0
    decimals = max((d for d in range(5) if step and round(step, d) != round(step, 6) and d < 4), default=-1) + 1
    return [f"{tick:,.{decimals}f}" for tick in ticks]


def layout(marks: Sequence[Mark], x_title: str, y_title: str, width: int, height: int) -> Plot | None:
    """Place marks, labels, ticks and the front's line.

    Args:
        marks: The variants with both figures. None is returned if there are none.
        x_title: Axis title with its unit and direction.
        y_title: The same for the vertical axis.
        width: Of the whole drawing, pixels.
        height: Of the whole drawing, pixels.
    """
    if not marks:
        return None
    left, right, top, bottom = 52.0, width - 14.0, 34.0, height - 46.0
    xs = [v for m in marks for v in (m.x, m.x_low, m.x_high) if v is not None]
    ys = [v for m in marks for v in (m.y, m.y_low, m.y_high) if v is not None]
    (x_min, x_max), (y_min, y_max) = _range(xs), _range(ys)

    def px(value: float) -> float:
        return round(left + (value - x_min) / (x_max - x_min) * (right - left), 1)

    def py(value: float) -> float:
        return round(bottom - (value - y_min) / (y_max - y_min) * (bottom - top), 1)

    bare = [_bare_dot(mark, px, py) for mark in marks]
    members = sorted((dot for dot in bare if dot.mark.front), key=lambda dot: (dot.x, dot.y))
    dots = _label(bare, (left, top, right, bottom), _along(members))
    line = "M" + " L".join(f"{dot.x} {dot.y}" for dot in members) if len(members) > 1 else ""
    x_ticks, y_ticks = nice_ticks(x_min, x_max, width // 110), nice_ticks(y_min, y_max, height // 75)
    return Plot(
        width, height, left, top, right, bottom,
        tuple(Tick(px(v), text) for v, text in zip(x_ticks, _tick_texts(x_ticks), strict=True)),
        tuple(Tick(py(v), text) for v, text in zip(y_ticks, _tick_texts(y_ticks), strict=True)),
        x_title, y_title, tuple(dots), line,
    )  # fmt: skip


def _bare_dot(mark: Mark, px: Scale, py: Scale) -> Dot:
    def or_own(value: float | None, own: float) -> float:
        return own if value is None else value

    return Dot(
        mark, px(mark.x), py(mark.y),
        px(or_own(mark.x_low, mark.x)), px(or_own(mark.x_high, mark.x)),
        py(or_own(mark.y_low, mark.y)), py(or_own(mark.y_high, mark.y)),
        "", 0.0, 0.0, "start", False,
    )  # fmt: skip


def _overlap(a: Box, b: Box) -> float:
    if a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]:
        return 0.0
    return (min(a[2], b[2]) - max(a[0], b[0])) * (min(a[3], b[3]) - max(a[1], b[1]))


def _along(members: Sequence[Dot]) -> list[Box]:
    """Small boxes along the front's line, for labels to keep off."""
    steps = [(a, b, step / 12) for a, b in pairwise(members) for step in range(13)]
    centres = [(a.x + (b.x - a.x) * t, a.y + (b.y - a.y) * t) for a, b, t in steps]
    return [(x - 2, y - 2, x + 2, y + 2) for x, y in centres]


def _label(dots: Sequence[Dot], area: Box, line: Sequence[Box]) -> list[Dot]:
    """Give every dot the place for its name that covers least; the ones that matter choose first."""
    crowded = (area[2] - area[0]) * (area[3] - area[1]) < _ROOM_PX2 * len(dots)
    radii = [(d, 13.0 if d.mark.chosen else 6.0) for d in dots]
    solid: list[Box] = [(d.x - r, d.y - r, d.x + r, d.y + r) for d, r in radii]
    thin = [box for d in dots for box in ((d.x0, d.y - 1.5, d.x1, d.y + 1.5), (d.x - 1.5, d.y1, d.x + 1.5, d.y0))]
    thin += line
    placed: dict[str, Dot] = {}
    order = sorted(dots, key=lambda d: (not d.mark.chosen, not d.mark.reference, not d.mark.front, d.x))
    for dot in order:
        best = min(
            (
                (_cost(box, solid, thin, area) + reach * 0.6 + turn * 0.4, index, box, anchor, reach)
                for index, (box, anchor, reach, turn) in enumerate(_candidates(dot))
            ),
            key=lambda candidate: candidate[:2],
        )
        cost, _, box, anchor, reach = best
        if crowded and cost > reach and not (dot.mark.front or dot.mark.chosen or dot.mark.reference):
            placed[dot.mark.name] = dot  # no free place: the name stays in the hover text and the table
            continue
        solid.append(box)
        at = {"start": box[0], "end": box[2], "middle": (box[0] + box[2]) / 2}[anchor]
        placed[dot.mark.name] = _with_label(dot, round(at, 1), round(box[3] - 4, 1), anchor, reach > _REACHES[0])
    return [placed[dot.mark.name] for dot in dots]


def _with_label(dot: Dot, x: float, y: float, anchor: str, leader: bool) -> Dot:
    return Dot(dot.mark, dot.x, dot.y, dot.x0, dot.x1, dot.y0, dot.y1, label_text(dot.mark), x, y, anchor, leader)


def label_text(mark: Mark) -> str:
    """The name beside a dot; the reference says that it is one."""
    return f"{mark.name} (reference)" if mark.reference else mark.name


def _candidates(dot: Dot) -> list[tuple[Box, str, float, int]]:
    width = CHAR_PX * len(label_text(dot.mark)) + (8 if dot.mark.chosen else 0)
    grow = 4.0 if dot.mark.chosen else 0.0
    found: list[tuple[Box, str, float, int]] = []
    for reach in _REACHES:
        for turn, (dx, dy) in enumerate(_DIRECTIONS):
            x, y = dot.x + dx * (reach + grow), dot.y + dy * (reach + grow)
            anchor = "start" if dx > 0 else "end" if dx < 0 else "middle"
            x0 = {"start": x, "end": x - width, "middle": x - width / 2}[anchor]
            found.append(((x0, y - _LINE_PX / 2, x0 + width, y + _LINE_PX / 2), anchor, reach, turn))
    return found


def _cost(box: Box, solid: Sequence[Box], thin: Sequence[Box], area: Box) -> float:
    outside = max(0.0, area[0] - box[0]) + max(0.0, box[2] - area[2]) + max(0.0, area[1] - box[1] - 4)
    outside += max(0.0, box[3] - area[3])
    return 60 * outside + 10 * sum(_overlap(box, s) for s in solid) + 2 * sum(_overlap(box, t) for t in thin)
