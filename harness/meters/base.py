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
        domain: What is counted: "package-0", "dram-0", "gpu:<uuid>", "soc", "meter", "cpu".
        method: "rapl" | "nvml" | "nvml-power" | "zeus" | "zeus-power" | "command" | "estimate:ccf-vcpu".
        unit: Of ``value`` and ``range``: "uj" | "mj" | "j".
        t_ns: When it was read. Monotonic clock, nanoseconds.
        value: The counter, or None where it could not be read (then ``reason`` and ``why`` are set).
        range: Largest value before the counter starts again at 0; None where unknown or where it never wraps.
        wraps: Times the meter has seen this counter step back since the meter was made.
        gaps: Times the counter began anew, or was not read, or gave nothing, so long that energy may be unseen.
        resolution_s: The counter's step, or the time over which the power behind it is averaged; None if unknown.
        scope: What the domain covers, in words.
        low, high: Bounds of an estimate, in ``unit``, counted like ``value``; None for counters.
        power_j: Joules by the power that the device itself reports, summed up over time, a cross-check; None without.
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
    gaps: float = 0
    resolution_s: float | None = None
    scope: str = ""
    low: float | None = None
    high: float | None = None
    power_j: float | None = None
    reason: str | None = None
    why: str = ""


class EnergyMeter(Protocol):
    """A source of raw energy readings. Reading it costs little and never asks for a password.

    Attributes:
        name: As in ``harness.meters.METERS``.
        method: As in ``RawReading.method``.
        domains: The domains that can be read, with the words for what each covers; empty where not all that count can,
            then ``why`` says why.
        resolution_s: The counter's step; a window shorter than three of them says nothing.
        least_s: The shortest window that is worth reading.
        poll_s: How often ``poll`` is wanted during a window; None: never.
        why: Why a domain can't be read, or why there is only an estimate. Empty when all can.
    """

    name: str
    method: str
    domains: dict[str, str]
    resolution_s: float
    least_s: float
    poll_s: float | None
    why: str

    def read(self) -> list[RawReading]:
        """One reading of every domain, now."""
        ...

    def settled(self, readings: Sequence[RawReading]) -> list[RawReading]:
        """Its readings of a window that is over, with what became known of them since; may wait a few seconds."""
        ...

    def poll(self) -> None:
        """Look at the counters so that nothing goes unseen."""
        ...

    def close(self) -> None:
        """End what the meter has started."""
        ...


def window(before: Sequence[RawReading], after: Sequence[RawReading]) -> list[dict[str, Any]]:
    """Pair the readings at both ends of a window into plain dicts, one a domain, as the store keeps them.

    The keys: ``domain, scope, method, unit, resolution_s, before, after, range, window_s, low_j, high_j, reason, why``,
    and ``power_j`` where the device reports power (joules by that). ``after - before``, plus one ``range`` if negative,
    is the energy: where polls saw the counter wrap more often than the two ends show, ``after`` includes those ranges.

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
        "scope": before.scope,
        "method": before.method,
        "unit": before.unit,
        "resolution_s": end.resolution_s,
        "before": before.value,
        "after": value,
        "range": end.range,
        "window_s": None if after is None else (after.t_ns - before.t_ns) / 1e9,
        "low_j": _difference(before.low, end.low),
        "high_j": _difference(before.high, end.high),
        "reason": reason,
        "why": why,
    }
    power_j = _difference(before.power_j, end.power_j)
    return pair if power_j is None else {**pair, "power_j": power_j}


def _trouble(before: RawReading, after: RawReading | None) -> tuple[str | None, str]:
    if after is None:
        return "counter_invalid", f"{before.domain} vanished during the window"
    for reading in (before, after):
        if reading.reason is not None:
            return reading.reason, reading.why
    # Without a range nobody knows where a counter was when it began anew.
    if after.gaps > before.gaps or (after.wraps > before.wraps and after.range is None):
        unseen = "began anew, or was not read for so long that energy may have gone unseen"
        return "counter_invalid", f"{before.domain} {unseen}"
    return None, before.why


def _difference(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else after - before
