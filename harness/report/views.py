"""Scatter views of two figures: who is drawn, who is left out and why, and what stands there instead of a drawing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.decide.view import figure, ranks
from harness.decide.view import shown as told
from harness.report import tables
from harness.report.front import Mark, Plot, layout
from harness.report.look import Look
from harness.report.tables import Wording
from harness.report.text import Json, Shown, higher_is_better, label, sentence

_WIDE, _NARROW, _SMALL = (1150, 480), (300, 340), (340, 300)


@dataclass(frozen=True, slots=True)
class View:
    """A view of two figures: drawn (the headline a second time, for narrow screens), in words, and who is not on it.

    Attributes:
        title: "MMLU accuracy against TTFT".
        wide, narrow: The drawings; ``wide`` is None if no variant has both figures.
        summary: The front in one sentence.
        left_out: Variants left out and why.
        tied: Groups that cannot be told apart.
        instead: Why nothing is drawn; empty if something is.
    """

    title: str
    wide: Plot | None
    narrow: Plot | None
    summary: str
    left_out: tuple[tuple[str, str], ...] = ()
    tied: tuple[str, ...] = ()
    instead: str = ""


@dataclass(frozen=True, slots=True)
class Scene:
    """What every view of a run shares."""

    variants: Sequence[Json]
    decision: Json
    words: Wording
    look: Mapping[str, Look]


def headline(front: Json | None, scene: Scene) -> View:
    """The view of the run's first front, drawn wide and narrow."""
    if front is None:
        return View("Front", None, None, "", instead="No front could be drawn: no two figures to set off.")
    return _view(front, scene, _WIDE, _NARROW)


def further(fronts: Sequence[Json], scene: Scene, energy: Json) -> tuple[View, ...]:
    """Quality against TTFT, memory and energy; a view that may not rank says why instead.

    Args:
        fronts: The run's fronts. A pair without one of its own is drawn without a line.
        scene: What the views share.
        energy: ``conditions.energy`` of results.json.
    """
    quality = scene.decision.get("quality_key") or (fronts[0]["objectives"][0] if fronts else "top1_agreement")
    found = []
    for key in ("ttft_s", "peak_rss_bytes", "energy_j_per_token"):
        own: Json = next((f for f in fronts if set(f["objectives"]) == {quality, key}), {})
        drawn = _view({**own, "objectives": [quality, key]}, scene, _SMALL, None)
        if drawn.wide is None and key == "energy_j_per_token" and energy:
            drawn = View(drawn.title, None, None, "", drawn.left_out, (), _no_energy(energy))
        found.append(drawn)
    return tuple(found)


def _view(front: Json, scene: Scene, size: tuple[int, int], narrow: tuple[int, int] | None) -> View:
    """One front; its first objective is drawn upwards, its second to the right."""
    y_key, x_key = front["objectives"][:2]
    away = {entry["name"] for entry in front.get("left_out") or ()}
    kept = [v for v in scene.variants if v["name"] not in away and ranks(figure(v, x_key)) and ranks(figure(v, y_key))]
    scales = (tables.scale(x_key, kept), tables.scale(y_key, kept))
    marks = [_mark(v, (x_key, y_key), scales, front, scene) for v in kept]
    titles = _axis(x_key, scene.words, scales[0].unit, "→", "←"), _axis(y_key, scene.words, scales[1].unit, "↑", "↓")
    members = ", ".join(front.get("members") or ())
    return View(
        title=f"{scene.words.names.get(y_key) or label(y_key)} against {label(x_key)}",
        wide=layout(marks, *titles, *size),
        narrow=layout(marks, *titles, *narrow) if narrow else None,
        summary=f"On the front: {members}." if members else "No variant is on this front.",
        left_out=tuple(
            (entry["name"], tables.left_out_text(entry.get("reasons") or ())) for entry in front.get("left_out") or ()
        ),
        tied=tuple(", ".join(group) for group in front.get("tied") or () if len(group) > 1),
        instead="" if marks else "No variant has both figures, so nothing is drawn.",
    )


def _axis(key: str, words: Wording, unit: str, up: str, down: str) -> str:
    arrow = up if higher_is_better(key) else down
    name = words.names.get(key) or label(key)
    return f"{name}{'' if unit in name else f', {unit}'} {arrow} better"


def _mark(variant: Json, keys: tuple[str, str], scales: tuple[Shown, Shown], front: Json, scene: Scene) -> Mark:
    def span(key: str, how: Shown) -> tuple[float, float | None, float | None]:
        found = figure(variant, key)
        low, high = (None if found.get(end) is None else found[end] * how.factor for end in ("low", "high"))
        return found["value"] * how.factor, low, high

    (x, x_low, x_high), (y, y_low, y_high) = (span(key, how) for key, how in zip(keys, scales, strict=True))
    name = variant["name"]
    share = (front.get("p_front") or {}).get(name)
    odds = f"; on the front in {share:.0%} of resamples" if share is not None else ""
    return Mark(
        name, x, y, x_low, x_high, y_low, y_high,
        front=name in (front.get("members") or ()),
        chosen=name == scene.decision.get("choice"),
        reference=bool(variant.get("reference")),
        shape=scene.look[name].shape,
        title=f"{name}: {told(variant, keys[0])}, {told(variant, keys[1])}{odds}",
    )  # fmt: skip


def _no_energy(energy: Json) -> str:
    why = sentence(energy.get("why") or "No energy counter can be read on this machine")
    if not str(energy.get("method")).startswith("estimate"):
        return why
    return (
        f"{why} Energy per token is an estimate: at full load it is a constant divided by tokens/s, so a chart would "
        "only redraw the speed axis. It is shown in the table, greyed, and never ranks."
    )
