"""Energy of AMD GPUs, Apple silicon and Jetson boards through Zeus, an optional extra (``variant-harness[zeus]``).

Only Zeus's device layer is used, whose counters only ever grow, with our own clock. Its monitor is left out: that sums
GPUs alone under ``total_energy``, counts psys beside the packages it holds, mistakes a late wrap of RAPL for a large
negative energy, times windows by a clock that can be set, and wants torch to synchronise with. Processors have a reader
of their own here (``rapl``), and so have NVIDIA GPUs (``nvml``). Source: zeus 0.16, ``zeus/device``.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from harness.meters.base import Clock, RawReading
from harness.meters.trace import Trace
from harness.run.clock import now_ns

STEP_S, LEAST_S, POLL_S = 0.1, 5.0, 0.05
INSTALL = "pip install 'variant-harness[zeus]'"
# What adds up to the whole of a system on a chip; the first set of which any part can be read is taken. Parts of these
# (single cores, the SRAM of a GPU) are left out.
SOC_PARTS: tuple[Mapping[str, str], ...] = (
    {"total_energy_mj": "the whole board"},
    {
        "cpu_total_mj": "processor cores",
        "gpu_mj": "GPU",
        "dram_mj": "memory",
        "ane_mj": "neural engine",
        "cpu_energy_mj": "processor cores",
        "gpu_energy_mj": "GPU",
    },
)


class ZeusMeter:
    """Counters in millijoules of what Zeus knows here; power summed up over time for a GPU without a counter.

    Args:
        device: The module ``zeus.device`` or a stand-in; None imports it.
        clock: Monotonic nanoseconds.
    """

    name = "zeus"
    resolution_s = STEP_S
    least_s = LEAST_S
    poll_s: float | None = POLL_S

    def __init__(self, device: Any = None, clock: Clock = now_ns) -> None:
        """Ask Zeus for GPUs and for a system on a chip; ``why`` tells what it said."""
        self._clock = clock
        self.why = ""
        self.domains: dict[str, str] = {}
        self._gpus: Any = None
        self._soc: Any = None
        self._parts: Mapping[str, str] = {}
        self._traces: dict[int, Trace] = {}
        if device is None:
            device, why = _asked(partial(importlib.import_module, "zeus.device"))
        if device is None:
            self.why = f"{why}; {INSTALL}"
            return
        self._soc, no_soc = _asked(device.get_soc)
        self._gpus, no_gpu = _asked(device.get_gpus)
        if type(self._gpus).__name__ == "NVIDIAGPUs":
            self._gpus, no_gpu = None, "NVIDIA GPUs are read through NVML"
        self._look()
        if not self.domains:
            self.why = self.why or "; ".join(filter(None, (no_soc, no_gpu)))

    @property
    def method(self) -> str:
        """By counters, or by power where a GPU has none."""
        return "zeus-power" if self._traces else "zeus"

    def read(self) -> list[RawReading]:
        """One reading of every domain."""
        return [*self._soc_readings(), *(self._gpu_reading(index) for index in self._indices())]

    def settled(self, readings: Sequence[RawReading]) -> list[RawReading]:
        """As they were."""
        return list(readings)

    def poll(self) -> None:
        """Take a sample of the power of each GPU without a counter."""
        for index in self._traces:
            self._sample(index)

    def close(self) -> None:
        """Zeus ends what it has started with the process."""

    def _look(self) -> None:
        """Find what can be read; a GPU that can't be voids the others."""
        if self._soc is not None:
            found, why = _asked(self._soc.get_total_energy_consumption)
            readable = [
                {key: words for key, words in part.items() if _number(getattr(found, key, None)) is not None}
                for part in SOC_PARTS
            ]
            self._parts = next(filter(None, readable), {})
            self.why = why
            self.domains = {"soc": ", ".join(self._parts.values())} if self._parts else {}
        for index in self._indices():
            name, _ = _asked(partial(self._gpus.get_name, index))
            if not _asked(partial(self._gpus.supports_get_total_energy_consumption, index))[0]:
                self._traces[index] = Trace()
                if self._sample(index) is None:
                    self.domains, self.why = {}, f"GPU {index} ({name}): neither an energy counter nor a power"
                    self._gpus = None
                    return
            self.domains[f"gpu:{index}"] = f"{name}, the whole board"

    def _indices(self) -> list[int]:
        """GPUs that are measured; the second half of a dual-die GPU is counted by the first."""
        every = [] if self._gpus is None else list(enumerate(self._gpus.gpus))
        return [index for index, gpu in every if not getattr(gpu, "_is_dual_die_odd_chiplet", False)]

    def _soc_readings(self) -> list[RawReading]:
        """The parts as one domain: a part that rests for a whole window is no stuck counter."""
        if not self._parts:
            return []
        found, why = _asked(self._soc.get_total_energy_consumption)
        t_ns = self._clock()
        values = [_number(getattr(found, key, None)) for key in self._parts]
        gone = [key for key, value in zip(self._parts, values, strict=True) if value is None]
        return [
            RawReading(
                domain="soc",
                method="zeus",
                unit="mj",
                t_ns=t_ns,
                value=None if gone else math.fsum(value or 0 for value in values),
                resolution_s=STEP_S,
                scope=self.domains["soc"],
                reason="counter_invalid" if gone else None,
                why=why or (f"Zeus tells no {gone[0]} any more" if gone else ""),
            )
        ]

    def _gpu_reading(self, index: int) -> RawReading:
        value: float | None
        gaps = 0.0
        if index in self._traces:
            t_s = self._sample(index)
            summed = None if t_s is None else self._traces[index].at(t_s)
            value, gaps, why = (*summed, "") if summed else (None, 0.0, f"GPU {index} tells no power any more")
            t_ns = self._clock() if t_s is None else round(t_s * 1e9)
        else:
            told, why = _asked(lambda: self._gpus.get_total_energy_consumption(index))
            value = _number(told)
            why = why or ("" if value is not None else f"GPU {index}: its counter reads {told!r}")
            t_ns = self._clock()
        return RawReading(
            domain=f"gpu:{index}",
            method="zeus-power" if index in self._traces else "zeus",
            unit="j" if index in self._traces else "mj",
            t_ns=t_ns,
            value=value,
            gaps=gaps,
            resolution_s=STEP_S,
            scope=self.domains[f"gpu:{index}"],
            reason="counter_invalid" if value is None else None,
            why=why,
        )

    def _sample(self, index: int) -> float | None:
        milliwatts, _ = _asked(lambda: self._gpus.get_instant_power_usage(index))
        if milliwatts is None:
            milliwatts, _ = _asked(lambda: self._gpus.get_average_power_usage(index))
        if (milliwatts := _number(milliwatts)) is None:
            return None
        t_s, trace = self._clock() / 1e9, self._traces[index]
        return t_s if trace.add(t_s, milliwatts / 1000) else trace.t_s[-1]


def _asked(call: Callable[[], Any]) -> tuple[Any, str]:
    """What Zeus answers, or None and why: it passes on errors of three vendors' libraries, which share no class."""
    try:
        return call(), ""
    except Exception as error:
        return None, f"Zeus: {error or type(error).__name__}"


def _number(value: Any) -> float | None:
    """A finite number from 0 on, or None: what a vendor's library returns may be anything."""
    return value if isinstance(value, int | float) and math.isfinite(value) and value >= 0 else None
