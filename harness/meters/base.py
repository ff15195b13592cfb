"""What an energy meter is. Meters hand out raw readings; joules are computed elsewhere, from the stored raw values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

#: Meters are built with a clock (``harness.run.clock.now_ns``): nanoseconds, monotonic.
Clock = Callable[[], int]


@dataclass(frozen=True, slots=True)
class RawReading:
    """One domain of a counter at one moment.

    Attributes:
        domain: What is counted: "package-0", "dram-0", "gpu:<uuid>", "cpu".
        method: "rapl" | "nvml" | "estimate:ccf-vcpu".
        unit: Of ``value`` and ``range``: "uj" | "mj" | "j".
        t_ns: When it was read. Monotonic clock, nanoseconds.
        value: The counter, or None where it could not be read (then ``reason`` and ``why`` are set).
        range: Largest value before the counter starts again at 0; None where unknown or where it never wraps.
        wraps: Times the meter has seen this counter step back since the meter was made.
        gaps: Times the meter was not read for so long that a wrap may have gone unseen, since the meter was made.
        low, high: Bounds of an estimate, in ``unit``, counted like ``value``; None for counters.
        power_w: Power the device itself reported at this moment, a cross-check; None where it reports none.
        reason: Reason code (``harness.record.CODES``) where ``value`` is None. It is "counter_invalid": the domain
            could be read when the meter was made, and a sum without it would look frugal.
        why: The reason in words, with what to do; for an estimate, why there is no counter.
    """

    domain: str
    method: str
    unit: str
    t_ns: int
    value: float | None
    range: float | None = None
    wraps: int = 0
    gaps: int = 0
    low: float | None = None
    high: float | None = None
    power_w: float | None = None
    reason: str | None = None
    why: str = ""


class EnergyMeter(Protocol):
    """A source of raw energy readings. Reading it costs well under a millisecond and never asks for a password.

    Attributes:
        name: "rapl" | "nvml" | "estimate" | "fake".
        method: As in ``RawReading.method``.
        domains: The domains that can be read; empty where not all that count can, then ``why`` says why.
        resolution_s: The counter's update step; a window shorter than a few of them says nothing.
        why: Why a domain can't be read, or why there is only an estimate. Empty when all can.
    """

    name: str
    method: str
    domains: tuple[str, ...]
    resolution_s: float
    why: str

    def read(self) -> list[RawReading]:
        """One reading of every domain, now."""
        ...

    def poll(self) -> None:
        """Look at the counters so that no wrap goes unseen; call it between trials, at least every 30 s."""
        ...


def window(before: Sequence[RawReading], after: Sequence[RawReading]) -> list[dict[str, Any]]:
    """Pair the readings at both ends of a window into plain dicts, one a domain, as the store keeps them.

    The keys: ``domain, method, unit, before, after, range, window_s, low_j, high_j, reason, why``, and ``power_w``,
    ``power_range_w`` where the device reports power (mean, and least and most, of both ends, W). ``after - before``,
    plus one ``range`` if negative, is the energy: where polls saw the counter wrap more often than the two ends show,
    ``after`` includes those ranges.

    >>> one = RawReading("package-0", "rapl", "uj", 0, 262143000000, range=262143328850)
    >>> two = RawReading("package-0", "rapl", "uj", 10**9, 1671150, range=262143328850, wraps=1)
    >>> pair = window([one], [two])[0]
    >>> pair["before"], pair["after"], pair["window_s"], pair["reason"]
    (262143000000, 1671150, 1.0, None)
    """
    ends = {reading.domain: reading for reading in after}
    return [_pair(start, ends.get(start.domain)) for start in before]


def _pair(before: RawReading, after: RawReading | None) -> dict[str, Any]:
    end = after or before
    reason, why = _trouble(before, after)
    value = None if after is None else after.value
    if value is not None and before.value is not None and end.range is not None:
        wraps = end.wraps - before.wraps
        if wraps > (value < before.value):  # more than the two ends show
            value += wraps * end.range
    pair: dict[str, Any] = {
        "domain": before.domain,
        "method": before.method,
        "unit": before.unit,
        "before": before.value,
        "after": value,
        "range": end.range,
        "window_s": None if after is None else (after.t_ns - before.t_ns) / 1e9,
        "low_j": _difference(before.low, end.low),
        "high_j": _difference(before.high, end.high),
        "reason": reason,
        "why": why,
    }
    powers = [reading.power_w for reading in (before, end) if reading.power_w is not None]
    if powers:
        pair["power_w"] = sum(powers) / len(powers)
        pair["power_range_w"] = [min(powers), max(powers)]
    return pair


def _trouble(before: RawReading, after: RawReading | None) -> tuple[str | None, str]:
    if after is None:
        return "counter_invalid", f"{before.domain} vanished during the window"
    for reading in (before, after):
        if reading.reason is not None:
            return reading.reason, reading.why
    if after.gaps > before.gaps:
        return "counter_invalid", f"{before.domain} was not read for so long that it may have wrapped unseen"
    return None, before.why


def _difference(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else after - before


def idle_window(meter: EnergyMeter, seconds: float, wait: Callable[[float], None]) -> list[dict[str, Any]]:
    """Readings over ``seconds`` in which nothing of ours runs: the idle power to subtract for net figures.

    Call it with the model loaded and no request under way; otherwise the baseline is not idle. ``wait`` sleeps. The
    wait is cut into pieces of at most 20 s with a poll between them.
    """
    before = meter.read()
    left = seconds
    while left > 0:
        piece = min(left, 20.0)
        wait(piece)
        left -= piece
        if left > 0:
            meter.poll()
    return window(before, meter.read())
