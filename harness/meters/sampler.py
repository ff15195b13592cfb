"""Takes snapshots of what went on around a process, from /proc and /sys. Judges nothing.

Sources: proc(5) for /proc/stat; kernel documentation accounting/psi.rst and scheduler/sched-stats.rst.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.meters.cpus import affinity
from harness.meters.files import number, text
from harness.run.clock import now_ns

_FREQUENCY_FILES = 2  # reading one may interrupt another core; two show a common fall
_SENSORS = ("x86_pkg_temp", "cpu-thermal", "cpu_thermal", "soc_thermal", "coretemp", "k10temp", "zenpower")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Counters at one moment; None where this machine does not tell.

    Attributes:
        t_ns: Monotonic clock, nanoseconds.
        busy_s: CPU seconds spent by everyone on the CPUs we may use, idle, iowait and steal apart.
        steal_s: Seconds for which the hypervisor ran something else there.
        own_s: CPU seconds of the process.
        psi_some_us: Microseconds in which at least one task waited for a CPU.
        wait_s: Seconds for which the process's threads were ready and waited for a CPU, by thread id.
        switched: Involuntary context switches of the process.
        throttled: Thermal throttle events of the first CPU.
        frequency_khz: Mean of the first CPUs.
        temperature_c: Of the CPU package.
    """

    t_ns: int
    busy_s: float | None = None
    steal_s: float | None = None
    own_s: float | None = None
    psi_some_us: int | None = None
    wait_s: Mapping[str, float] | None = None
    switched: int | None = None
    throttled: int | None = None
    frequency_khz: float | None = None
    temperature_c: float | None = None


class Sampler:
    """Takes snapshots of one process's surroundings, well under 0.1 ms each on a machine of a few cores.

    Args:
        pid: The process; None for this one.
        root: Where /proc and /sys are found.

    Attributes:
        n_cpus: CPUs whose time the snapshots count: those the scheduler may run us on. A control group's quota does not
            shrink it, since the time of others is counted on all of them.
    """

    def __init__(self, pid: int | None = None, root: Path = Path("/")) -> None:
        """Find the files once, so that a snapshot only reads."""
        self._pid = None if pid == os.getpid() else pid
        self._stat = str(root / "proc/stat")
        self._psi = str(root / "proc/pressure/cpu")
        self._task = str(root / "proc" / ("self" if self._pid is None else str(self._pid)))
        self._tick_s = 1 / os.sysconf("SC_CLK_TCK")
        cpu = root / "sys/devices/system/cpu"
        self._frequency = sorted(map(str, cpu.glob("cpu[0-9]*/cpufreq/scaling_cur_freq")))[:_FREQUENCY_FILES]
        self._throttle = str(cpu / "cpu0/thermal_throttle/package_throttle_count")
        self._temperature = _package_sensor(root / "sys/class")
        cpus, every = affinity(), os.cpu_count() or 1
        self._cpus = cpus if cpus is not None and len(cpus) < every else None
        self.n_cpus = len(self._cpus) if self._cpus else every

    def read(self) -> Snapshot:
        """A snapshot, now."""
        busy, steal = parse_stat(text(self._stat), self._cpus)
        temperature = number(self._temperature)
        frequencies = [f for f in map(number, self._frequency) if f is not None]
        throttled = number(self._throttle)
        return Snapshot(
            t_ns=now_ns(),
            busy_s=None if busy is None else busy * self._tick_s,
            steal_s=None if steal is None else steal * self._tick_s,
            own_s=self._own_s(),
            psi_some_us=parse_psi(text(self._psi)),
            wait_s=self._wait_s(),
            switched=self._switched(),
            throttled=None if throttled is None else int(throttled),
            frequency_khz=sum(frequencies) / len(frequencies) if frequencies else None,
            temperature_c=None if temperature is None else temperature / 1000,
        )

    def _own_s(self) -> float | None:
        if self._pid is None:
            return time.process_time_ns() / 1e9
        fields = text(f"{self._task}/stat").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * self._tick_s if len(fields) > 12 else None

    def _wait_s(self) -> dict[str, float] | None:
        try:
            threads = os.listdir(f"{self._task}/task")
        except OSError:
            return None
        waits = {thread: text(f"{self._task}/task/{thread}/schedstat").split() for thread in threads}
        return {thread: int(fields[1]) / 1e9 for thread, fields in waits.items() if len(fields) == 3} or None

    def _switched(self) -> int | None:
        if self._pid is not None or sys.platform == "win32":
            return None
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def parse_stat(stat: str, cpus: frozenset[int] | None = None) -> tuple[int | None, int | None]:
    r"""(busy, steal) ticks of /proc/stat: user + nice + system + irq + softirq, over all CPUs or the named ones.

    Guest time is part of user time already. Where a named CPU has no line (a container shows its own numbering), the
    line of all CPUs is used.

    >>> parse_stat("cpu  100 5 20 900 7 1 2 3 50 0\n")
    (128, 3)
    >>> parse_stat("")
    (None, None)
    """
    lines = {}
    head = stat.partition("\nintr" if cpus else "\n")[0]  # the line of all CPUs comes first
    for line in head.splitlines():
        name, *fields = line.split()
        lines[name] = [int(field) for field in fields if field.isdigit()]
    wanted = [f"cpu{cpu}" for cpu in cpus or ()]
    rows = [lines[name] for name in wanted if name in lines]
    if not rows or len(rows) < len(wanted):
        rows = [lines["cpu"]] if "cpu" in lines else []
    rows = [row for row in rows if len(row) >= 8]
    if not rows:
        return None, None
    return sum(sum(row[:3]) + row[5] + row[6] for row in rows), sum(row[7] for row in rows)


def parse_psi(pressure: str) -> int | None:
    r"""Total microseconds of the ``some`` line of a pressure file.

    >>> parse_psi("some avg10=2.72 avg60=2.10 avg300=14.41 total=138143829\n")
    138143829
    """
    for line in pressure.splitlines():
        if line.startswith("some ") and "total=" in line:
            return int(line.rpartition("total=")[2])
    return None


def _package_sensor(classes: Path) -> str | None:
    """The file with the CPU package's temperature in thousandths of a degree."""
    for pattern, label, value in (("thermal/thermal_zone*", "type", "temp"), ("hwmon/hwmon*", "name", "temp1_input")):
        for folder in sorted(classes.glob(pattern)):
            if text(folder / label).strip() in _SENSORS:
                return str(folder / value)
    return None
