"""Figures as text and text as quantities: SI prefixes, significant digits that fit the interval, limits.

Knows units, not metrics. Ratios (0-1) are shown as percentages.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from harness.errors import InputError

_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "min": 60.0}
_BYTES = {
    "b": 1.0,
    "byte": 1.0,
    "bytes": 1.0,
    "kb": 1e3,
    "mb": 1e6,
    "gb": 1e9,
    "tb": 1e12,
    "kib": 2.0**10,
    "mib": 2.0**20,
    "gib": 2.0**30,
    "tib": 2.0**40,
}
_NUMBER = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(.*?)\s*$")


# Relative width below which an interval is noise of floating-point arithmetic.
NOISE = 1e-6


def si(value: float, unit: str) -> str:
    """A number with an SI prefix and three significant digits.

    >>> si(2_150_000_000, "B"), si(512, "B"), si(0, "B"), si(999_999, "B")
    ('2.15 GB', '512 B', '0 B', '1 MB')
    """
    # Rounded first, so that 999 999 becomes 1 M and not 1000 k.
    value = float(f"{value:.3g}")
    for scale, prefix in _PREFIXES:
        if abs(value) >= scale:
            return f"{value / scale:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"


def decimals(half_width: float) -> int:
    """Decimal places worth printing: one significant digit of the half-width, two if the first is a 1.

    >>> decimals(3.1), decimals(0.123), decimals(14.0), decimals(350.0)
    (0, 2, 0, -2)
    """
    exponent = math.floor(math.log10(half_width))
    lead = round(half_width / 10.0**exponent, 6)
    return -exponent + (1 if lead < 1.95 else 0)


def significant(value: float, digits: int = 3) -> str:
    """A number with so many significant digits, never in exponent form.

    >>> significant(1234.5), significant(0.012345), significant(2.0), significant(0)
    ('1230', '0.0123', '2.00', '0')
    """
    if value == 0:
        return "0"
    places = digits - 1 - math.floor(math.log10(abs(value)))
    return _fixed(value, places)


def _fixed(value: float, places: int) -> str:
    text = f"{round(value, places):.{max(0, places)}f}"
    return text.removeprefix("-") if float(text) == 0 else text


def plus_minus(value: float, low: float | None, high: float | None) -> tuple[str, str]:
    """A value and its interval, rounded to what the interval supports.

    Returns:
        (value, "± half-width"), with "(low to high)" as the second where one arm is over 1.5 times the other, and
        "" where there is no interval.

    >>> plus_minus(128.37, 125.2, 131.5), plus_minus(10.0, 9.0, 14.0), plus_minus(128.37, None, None)
    (('128', '± 3'), ('10', '(9 to 14)'), ('128', ''))
    """
    # A width that is rounding noise of the arithmetic is no interval.
    if low is None or high is None or not low <= value <= high or high - low <= NOISE * abs(value):
        return significant(value), ""
    below, above = value - low, high - value
    half = max(below, above)
    # More digits than the interval supports mislead.
    places = min(decimals(half), 12)
    if min(below, above) * 1.5 < half:
        return _kept(value, half, places), f"({_fixed(low, places)} to {_fixed(high, places)})"
    return _kept(value, half, places), f"± {_fixed(half, places)}"


def _kept(value: float, half: float, places: int) -> str:
    """A number at so many places, or at more where rounding would change it by over 5%: 75 ± 20 is not 80 ± 20.

    One that is nothing beside its interval may round to 0.
    """
    if abs(value) >= half / 100:
        least = 1 - math.floor(math.log10(abs(value)))  # two significant digits are enough for 5%
        while places < least and abs(round(value, places) - value) > 0.05 * abs(value):
            places += 1
    return _fixed(value, places)


@dataclass(frozen=True, slots=True)
class Scale:
    """How a unit is shown: multiply by ``factor``, then ``prefix`` before the number and ``suffix`` after it."""

    factor: float
    suffix: str
    prefix: str = ""


def scale(value: float, unit: str) -> Scale:
    """Choose how to show a value given in a catalogue unit."""
    size = abs(value)
    if unit == "s":
        return Scale(1, " s") if size >= 1 or size == 0 else Scale(1e3, " ms") if size >= 1e-3 else Scale(1e6, " µs")
    if unit == "J/token":
        return Scale(1, " J/token") if size >= 0.1 or size == 0 else Scale(1e3, " mJ/token")
    if unit == "bytes":
        factor, prefix = next(((f, p) for f, p in _PREFIXES if size >= f), (1.0, ""))
        return Scale(1 / factor, f" {prefix}B")
    fixed = {"ratio": Scale(100, "%"), "±%": Scale(1, "%", "±"), "x": Scale(1, "x"), "%": Scale(1, "%")}
    return fixed.get(unit) or Scale(1, f" {unit}" if unit else "")


def quantity(value: float | None, unit: str, low: float | None = None, high: float | None = None) -> str:
    """A figure for a person: value, interval, unit.

    >>> quantity(0.0853, "s", 0.0821, 0.0885), quantity(0.971, "ratio", 0.965, 0.977), quantity(2.1e9, "bytes")
    ('85 ± 3 ms', '97.1 ± 0.6%', '2.10 GB')
    >>> quantity(12.3, "±%", 10.0, 15.9), quantity(1.38, "x"), quantity(None, "s")
    ('±12% (10% to 16%)', '1.38x', 'not measured')
    """
    if value is None:
        return "not measured"
    how = scale(value, unit)
    ends = [None if v is None else v * how.factor for v in (low, high)]
    number, interval = plus_minus(value * how.factor, *ends)
    if unit == "±%":
        if not interval or ends[0] is None or ends[1] is None:
            return f"±{number}%"
        places = decimals(max(value - ends[0], ends[1] - value))
        return f"±{number}% ({_fixed(ends[0], places)}% to {_fixed(ends[1], places)}%)"
    gap = " " if interval else ""
    if interval.startswith("("):
        return f"{how.prefix}{number}{how.suffix} {interval[:-1]}{how.suffix})"
    return f"{how.prefix}{number}{gap}{interval}{how.suffix}"


def half_width(width: float) -> str:
    """Half an interval's logarithmic width, ``ln(high / low) / 2``: a percentage, or a factor where that would mislead.

    >>> half_width(0.0213), half_width(4.8)
    ('±2.1%', 'a factor of 122')
    """
    return f"±{significant(100 * width, 2)}%" if width <= 0.5 else f"a factor of {significant(math.exp(width))}"


def parse_quantity(text: str, unit: str, where: str) -> float:
    """A limit as typed, in the catalogue's unit.

    Args:
        text: "200ms", "2GB", "95%", "1pt", "120".
        unit: The catalogue unit it is for. A plain number is in that unit.
        where: What to name in an error, such as ``--require``.

    Raises:
        InputError: If it is no number or the unit does not fit.

    >>> parse_quantity("200 ms", "s", "x"), parse_quantity("2GB", "bytes", "x"), parse_quantity("95%", "ratio", "x")
    (0.2, 2000000000.0, 0.95)
    """
    found = _NUMBER.match(text)
    if found is None:
        raise InputError(f"{where}: found '{text}'; expected a number and maybe a unit; write for example 0.5 or 95%")
    number, given = float(found[1]), found[2]
    if not math.isfinite(number):
        raise InputError(f"{where}: found '{text}'; expected a finite number; write for example 0.5")
    known = _units(unit)
    factor = known.get(given.lower(), known.get(given))
    if factor is None:
        names = ", ".join(k for k in known if k)
        raise InputError(f"{where}: found unit '{given}' in '{text}'; expected one of: {names}; without one: {unit}")
    if unit == "ratio" and not given and abs(number) > 1:
        raise InputError(f"{where}: found '{text}'; expected a share from 0 to 1; write {found[1]}% for a percentage")
    # 95 x 0.01 is 0.9500000000000001 in floating point, which a figure of exactly 95% would miss.
    return float(f"{number * factor:.12g}")


def _units(unit: str) -> dict[str, float]:
    if unit == "s":
        return {"": 1.0, **_SECONDS}
    if unit == "bytes":
        return {"": 1.0, **_BYTES}
    if unit == "ratio":
        return {"": 1.0, "%": 0.01, "pt": 0.01, "pts": 0.01, "point": 0.01, "points": 0.01}
    if unit in ("±%", "%"):
        return {"": 1.0, "%": 1.0}
    if unit == "J/token":
        return {"": 1.0, "j": 1.0, "mj": 1e-3, "j/token": 1.0, "mj/token": 1e-3}
    if unit == "tokens/s":
        return {"": 1.0, "tokens/s": 1.0, "tps": 1.0, "tok/s": 1.0}
    return {"": 1.0, unit.lower(): 1.0}
