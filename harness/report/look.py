"""How a variant looks on every chart: colour by its weights, shape and dash by its speculation."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from harness.report.text import Json

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
    leading: bool

    @property
    def symbol(self) -> str:
        """The shape's name in plotly."""
        return "triangle-up" if self.shape == "triangle" else self.shape


def looks(variants: Sequence[Json], leading: Collection[str | None] = ()) -> dict[str, Look]:
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
        result[variant["name"]] = Look(
            colors[weights], shape, dash, variant["name"] in leading or bool(variant.get("reference"))
        )
    return result
