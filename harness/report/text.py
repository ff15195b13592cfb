"""Figures as table cells: one unit a column, an interval, reason chips. Knows nothing of HTML or of charts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from harness import units
from harness.decide import view
from harness.metrics.catalog import METRICS
from harness.record import CODES, INFORMATIVE_CODES

DASH = "—"
Json = Mapping[str, Any]
_SHORT = {
    "estimated_energy": "est.",
    "sample_not_mmlu": "sample",
    "shared_scoring": "shared",
    "is_reference": "reference",
    "not_measured": "not run",
    "cell_failed": "failed",
    "approx_tokens": "≈ tokens",
}


@dataclass(frozen=True, slots=True)
class Chip:
    """A reason code: its short label and what it means; ``quiet`` ones only inform."""

    label: str
    title: str
    quiet: bool = False


FLOORED = frozenset({"kl_mean", "top1_agreement"})  # figures whose noise floor has their own unit
WITHIN_NOISE = Chip("within noise", "not shown to be farther from the reference than the variant is from itself", True)


@dataclass(frozen=True, slots=True)
class Cell:
    """One figure, ready to print.

    Attributes:
        text: The figure, or a dash.
        spread: Its interval: "± 3.1" or "3.1 – 6.0"; empty if there is none.
        title: The whole story on hover: label, value, interval, n, conditions, reasons.
        chips: Reason codes that belong to this cell alone.
        noise: What of it may be noise: "noise floor 0.0150", "near ties: 5 of 27".
        below: More lines under it: "p95 1.20 s".
        muted: Shown but never ranks.
        missing: There is no figure.
    """

    text: str
    spread: str = ""
    title: str = ""
    chips: tuple[Chip, ...] = ()
    noise: tuple[str, ...] = ()
    below: tuple[str, ...] = ()
    muted: bool = False
    missing: bool = False


@dataclass(frozen=True, slots=True)
class Shown:
    """How all values of one column or axis are shown."""

    factor: float
    unit: str


def chip(code: str) -> Chip:
    """The chip of a reason code; an unknown code is its own label."""
    return Chip(_SHORT.get(code, code.replace("_", " ")), CODES.get(code, code), code in INFORMATIVE_CODES)


def unit_of(key: str) -> str:
    """The figure's unit in the catalogue."""
    return METRICS[key].unit if key in METRICS else ""


def shown(key: str, values: Iterable[float | None]) -> Shown:
    """One scale for all these values of a figure: that of the smallest, so that none loses its digits."""
    sizes = [abs(value) for value in values if value]
    scale = units.scale(min(sizes, default=0.0), unit_of(key))
    return Shown(scale.factor, f"{scale.prefix}{scale.suffix}".strip())


def label(key: str) -> str:
    """The figure's name in the catalogue, or the key itself."""
    return METRICS[key].label if key in METRICS else key


def higher_is_better(key: str) -> bool:
    """Whether more of this figure is better."""
    return key not in METRICS or METRICS[key].better != "lower"


def quantity(key: str, value: float | None, low: float | None = None, high: float | None = None) -> str:
    """A figure with interval and unit; a dash for None."""
    return DASH if value is None else _minus(units.quantity(value, unit_of(key), low, high))


def _minus(text: str) -> str:
    """A typographic minus before digits."""
    return "".join("−" if c == "-" and text[i + 1 : i + 2].isdigit() else c for i, c in enumerate(text))


def value_of(metric: Json | None) -> float | None:
    """The value of a metric of results.json, or None."""
    value = metric.get("value") if metric else None
    return None if value is None else float(value)


def reasons_of(metric: Json | None) -> tuple[str, ...]:
    """The reason codes of a metric of results.json; one that is absent was not measured."""
    return tuple(metric.get("reasons") or ()) if metric else ("not_measured",)


def ranks(metric: Json | None) -> bool:
    """Whether a metric of results.json may rank."""
    return metric is not None and view.ranks(metric)


def cell(key: str, metric: Json | None, how: Shown, hoisted: Iterable[str] = ()) -> Cell:
    """A metric of results.json as a table cell.

    Args:
        key: The figure.
        metric: ``{"value", "low", "high", "n", "reasons", "conditions"}``, or None if absent.
        how: The column's scale.
        hoisted: Codes the column's heading already carries; they get no chip here.
    """
    codes = reasons_of(metric)
    skip = {*hoisted, "is_reference"}  # the row itself says that it is the reference
    value = value_of(metric)
    chips = tuple(chip(code) for code in codes if code not in skip or value is None)
    because = "; ".join(CODES.get(code, code) for code in codes)
    if metric is None or value is None:
        return Cell(DASH, title=f"{label(key)}: {because or 'no reason recorded'}", chips=chips, missing=True)
    text, around = interval(key, value, metric.get("low"), metric.get("high"), how)
    chips += (WITHIN_NOISE,) if (metric.get("conditions") or {}).get("within_noise") else ()
    story = _story(key, metric, value, because)
    return Cell(text, around, story, chips, _noise(key, metric, how), muted=not ranks(metric))


def _noise(key: str, metric: Json, how: Shown) -> tuple[str, ...]:
    """What a figure's conditions say of noise: its floor in the column's unit, or how many flips noise can explain."""
    found = metric.get("conditions") or {}
    if found.get("near_ties") is not None:
        return (f"near ties: {found['near_ties']} of {found['flipped']}",) if found.get("flipped") else ()
    if found.get("floor") is None or key not in FLOORED:
        return ()
    return (f"noise floor {units.significant(found['floor'] * how.factor)}",)


def interval(key: str, value: float, low: float | None, high: float | None, how: Shown) -> tuple[str, str]:
    """A value and its interval without units: ("128", "± 3") or ("10", "9 – 14")."""
    ends = [None if end is None else end * how.factor for end in (low, high)]
    text, around = units.plus_minus(value * how.factor, *ends)
    if around.startswith("±") and unit_of(key) == "±%" and ends[0] is not None and ends[1] is not None:
        around = f"({units.significant(ends[0], 2)} to {units.significant(ends[1], 2)})"  # "± of a ±" would mislead
    if around.startswith("("):
        around = around[1:-1].replace(" to ", " – ")
    return _minus(text), _minus(around)


def _story(key: str, metric: Json, value: float, because: str) -> str:
    parts = [f"{label(key)}: {quantity(key, value)}"]
    low, high = metric.get("low"), metric.get("high")
    if low is not None and high is not None:
        parts.append(f"95% interval {quantity(key, low)} to {quantity(key, high)}")
    if metric.get("n"):
        parts.append(f"n = {metric['n']}")
    conditions = metric.get("conditions") or {}
    parts += [f"{name.replace('_', ' ')} {_plainly(conditions[name])}" for name in sorted(conditions)]
    if because:
        parts.append(because)
    return "; ".join(parts)


def _plainly(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return units.significant(value) if isinstance(value, float) else str(value)


def common_codes(metrics: Iterable[Json | None]) -> tuple[str, ...]:
    """Codes that every figure with a value carries: said once, in the column's heading."""
    sets = [reasons_of(metric) for metric in metrics if value_of(metric) is not None]
    if len(sets) < 2:
        return ()
    return tuple(code for code in sets[0] if all(code in other for other in sets))


def plural(count: int, noun: str) -> str:
    """A count with its noun.

    >>> plural(1, "trial"), plural(3, "trial")
    ('1 trial', '3 trials')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def sentence(text: object) -> str:
    """A text that ends like a sentence.

    >>> sentence("no counter"), sentence("No counter.")
    ('no counter.', 'No counter.')
    """
    words = str(text or "").strip()
    return words if not words or words[-1] in ".!?" else f"{words}."
