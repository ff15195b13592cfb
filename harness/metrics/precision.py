"""How precise a variant's speed figures are, and whether that is enough. Knows no front and no schedule."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from harness.metrics import speed
from harness.metrics.request import Trial
from harness.record import Figure
from harness.stats.compare import ALONE, Launches

# The figure that compares a speed figure with the reference's.
PAIRED: Mapping[str, str] = {"decode_tps": "speedup", "ttft_s": "ttft_ratio"}


def half_width(figure: Figure) -> float | None:
    """Half the interval's width over the value: ``ln(high / low) / 2``; None where there is no interval above 0.

    >>> round(half_width(Figure(100.0, 97.0, 103.0, 10)), 3)
    0.03
    """
    if figure.low is None or figure.high is None or figure.low <= 0:
        return None
    return math.log(figure.high / figure.low) / 2


def reached(
    trials: Sequence[Trial], reference: Sequence[Trial] | None, launches: Mapping[str, Launches] | None = None
) -> dict[str, float | None]:
    """Precision of each speed figure's comparison with the reference, paired by block.

    Without a reference (the only variant of a run) that of the figures themselves. ``launches``: of the run, by
    figure.

    Returns:
        Half widths by catalogue key ("decode_tps", "ttft_s"); None where there is no interval.
    """
    if reference is None:
        own = speed.speed_figures(trials)
        return {key: half_width(own[key]) for key in PAIRED}
    launches = launches or {}
    paired = {
        "decode_tps": speed.speedup(trials, reference, launches.get("decode_tps", ALONE)),
        "ttft_s": speed.ttft_ratio(trials, reference, launches.get("ttft_s", ALONE)),
    }
    return {key: half_width(figure) for key, figure in paired.items()}


def needed(found: Mapping[str, float | None], asked: Mapping[str, float]) -> str:
    """What is not precise enough yet, in words; empty if all is.

    >>> needed({"decode_tps": 0.052, "ttft_s": None}, {"decode_tps": 0.03})
    'decode_tps ±5.2%, asked ±3%'
    """
    short = []
    for key, most in asked.items():
        width = found.get(key)
        if width is None or width > most:
            text = "no interval" if width is None else f"±{100 * width:.2g}%"
            short.append(f"{key} {text}, asked ±{100 * most:.2g}%")
    return "; ".join(short)
