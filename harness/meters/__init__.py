"""What is read from the machine. Each energy meter is one module here and one line in ``METERS``."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.energy_settings import EnergySettings
    from harness.meters.base import EnergyMeter
    from harness.meters.panel import Panel

METERS: dict[str, str] = {
    "rapl": "harness.meters.rapl:RaplMeter",
    "nvml": "harness.meters.nvml:NvmlMeter",
    "zeus": "harness.meters.zeus:ZeusMeter",
    "command": "harness.meters.command:CommandMeter",
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


def open_panel(settings: EnergySettings, folder: str | None = None) -> Panel:
    """The meters that the configuration asks for, open; close the panel in the end.

    ``auto`` takes every counter that can be read; where there is none, the labelled estimate alone: a sum of both would
    look measured. A meter that is named but can't be read leaves a panel that counts nothing and says why.

    Args:
        settings: What the configuration says.
        folder: Where a command runs: the configuration's folder.
    """
    from harness.meters.panel import Panel, zeus_installed

    if settings.meter == "none":
        return Panel(why="energy is not measured: the configuration says meter: none")
    if settings.meter == "command":
        meters = [make("command", command=settings.command or (), scope=settings.scope or "", folder=folder)]
    elif settings.meter != "auto":
        meters = [make(settings.meter)]
    else:
        rapl, nvml = make("rapl"), make("nvml")
        # Zeus takes seconds to import, and knows what NVML does not.
        meters = [rapl, nvml, *([make("zeus")] if not nvml.domains and zeus_installed() else [])]
    readable = [meter for meter in meters if meter.domains]
    # That there is no GPU to measure says nothing where something else is measured.
    silent = [meter for meter in meters if not meter.domains and (not readable or _lacking(meter))]
    why = "; ".join(meter.why for meter in silent)
    if not readable and settings.meter == "auto":
        return Panel([make("estimate", why=why)])
    return Panel(readable, why, settings.seconds)


def _lacking(meter: EnergyMeter) -> bool:
    """Whether there is something that a meter which reads nothing should have read."""
    from harness.meters.nvml import NvmlMeter

    return meter.name == "rapl" or (isinstance(meter, NvmlMeter) and meter.unmeasured)
