"""What is read from the machine. Each energy meter is one module here and one line in ``METERS``."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.meters.base import EnergyMeter

METERS: dict[str, str] = {
    "rapl": "harness.meters.rapl:RaplMeter",
    "nvml": "harness.meters.nvml:NvmlMeter",
    "estimate": "harness.meters.estimate:EstimateMeter",
}


def make(name: str, **options: Any) -> EnergyMeter:
    """Import and build one meter of ``METERS``.

    Raises:
        KeyError: The name is not in ``METERS``.
    """
    module, _, attribute = METERS[name].partition(":")
    meter: EnergyMeter = getattr(importlib.import_module(module), attribute)(**options)
    return meter


def open_meters(pid: int | None = None) -> list[EnergyMeter]:
    """Every counter that can be read here; where there is none, the labelled estimate alone.

    An estimate is never mixed with a counter: a sum of both would look measured.

    Args:
        pid: Process whose CPU time the estimate counts; None for this one.
    """
    counters = [make("rapl"), make("nvml")]
    readable = [meter for meter in counters if meter.domains]
    if readable:
        return readable
    return [make("estimate", pid=pid, why="; ".join(meter.why for meter in counters))]


def describe(meters: list[EnergyMeter]) -> dict[str, Any]:
    """``{"method", "scope", "why"}`` for the conditions of a run; method "none" where nothing is read."""
    if not meters:
        return {"method": "none", "scope": [], "why": "no meter"}
    return {
        "method": "+".join(meter.method for meter in meters),
        "scope": [domain for meter in meters for domain in meter.domains],
        "why": "; ".join(meter.why for meter in meters if meter.why),
    }
