"""An estimate of the CPU's energy for machines without a counter: labelled, wide, and never ranked.

Linear in utilisation, per vCPU: ``P = n Pmin + u n (Pmax - Pmin)``, u our share of the n CPUs' time. The coefficients
are Cloud Carbon Footprint's averages over server processors, fitted to SPECpower results; the bounds are the lowest
and highest coefficients in its table of processor families. Source: https://www.cloudcarbonfootprint.org/docs/methodology/
(appendix I, and AWS_CLOUD_CONSTANTS and GCP_CLOUD_CONSTANTS in its source). It knows nothing of memory, disks, fans or
power supplies, nor of this machine's processor. At full load it is a constant over the decode rate.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from harness.meters.base import Clock, RawReading
from harness.meters.cpus import effective_cpus
from harness.run.clock import now_ns

METHOD = "estimate:ccf-vcpu"
SCOPE = "the processor by its use, modelled"
# (Pmin, Pmax) in watts per vCPU.
AVERAGE = (0.74, 3.5)  # AWS average
LOWEST = (0.45, 1.69)  # AMD EPYC 3rd gen idle, AMD EPYC 2nd gen full
HIGHEST = (3.04, 8.58)  # Intel Ivy Bridge idle, Intel Sandy Bridge full


def joules(coefficients: tuple[float, float], n_cpus: int, wall_s: float, cpu_s: float) -> float:
    """Energy of ``n_cpus`` over ``wall_s`` in which we used ``cpu_s`` of CPU time.

    Formula: ``n Pmin wall + (Pmax - Pmin) cpu``

    >>> joules((1.0, 3.0), n_cpus=2, wall_s=10.0, cpu_s=20.0)
    60.0
    """
    low, high = coefficients
    return n_cpus * low * wall_s + (high - low) * cpu_s


def process_cpu_s(pid: int | None = None) -> float:
    """CPU seconds (user + system, all threads) that a process has used; this one's where ``pid`` is None.

    Raises:
        OSError: The process is gone, or this system has no /proc and ``pid`` is another process.
    """
    if pid is None or pid == os.getpid():
        return time.process_time_ns() / 1e9
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    fields = text.rpartition(")")[2].split()  # the name before it may hold spaces and brackets
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class EstimateMeter:
    """Cumulative joules of the CPU, with bounds, since the meter was made.

    Args:
        pid: Process whose CPU time counts; None for this one.
        why: Why there is no counter, in words.
        n_cpus: vCPUs whose idle power is counted; None for those this process may use.
        clock: Monotonic nanoseconds.
        cpu_s: CPU seconds of the process so far.
    """

    name = "estimate"
    method = METHOD
    resolution_s = 0.01
    least_s = 0.0
    poll_s: float | None = None

    def __init__(
        self,
        pid: int | None = None,
        why: str = "no energy counter",
        n_cpus: int | None = None,
        clock: Clock = now_ns,
        cpu_s: Callable[[], float] | None = None,
    ) -> None:
        """Start counting."""
        self.why = why
        self.domains = {"cpu": SCOPE}
        self._n = n_cpus or effective_cpus()
        self._clock = clock
        self._cpu_s = cpu_s or (lambda: process_cpu_s(pid))
        self._t0 = clock()
        self._cpu_s0 = self._cpu()[0] or 0.0

    @property
    def idle_w(self) -> float:
        """Watts of the model with nothing running: n Pmin."""
        return self._n * AVERAGE[0]

    def read(self) -> list[RawReading]:
        """The estimate so far, joules; labelled by its method: figures from it always carry ``estimated_energy``."""
        now = self._clock()
        cpu_s, why = self._cpu()
        if cpu_s is None:
            return [RawReading("cpu", METHOD, "j", now, None, reason="counter_invalid", why=why)]
        wall_s, used_s = (now - self._t0) / 1e9, cpu_s - self._cpu_s0
        average, low, high = (joules(pair, self._n, wall_s, used_s) for pair in (AVERAGE, LOWEST, HIGHEST))
        return [RawReading("cpu", METHOD, "j", now, average, scope=SCOPE, low=low, high=high, why=self.why)]

    def settled(self, readings: Sequence[RawReading]) -> list[RawReading]:
        """As they were."""
        return list(readings)

    def poll(self) -> None:
        """Nothing to do: it never wraps."""

    def close(self) -> None:
        """Nothing was started."""

    def _cpu(self) -> tuple[float | None, str]:
        try:
            return self._cpu_s(), ""
        except OSError as error:
            return None, f"CPU time of the process: {error}"
