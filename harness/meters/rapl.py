"""CPU and DRAM energy counters (RAPL) through Linux powercap sysfs. Knows nothing of joules per token.

``intel-rapl`` is the kernel's name for the driver of Intel and AMD processors alike (AMD has no dram domain). Counters
are in microjoules, step about every millisecond, and start again at 0 after ``max_energy_range_uj``: 65-262 kJ, minutes
at full load. The psys zone counts the whole platform, packages included, so it is never read beside them; core and
uncore are parts of a package. Kernels from 5.8 to 5.12 showed AMD sockets through hwmon instead (driver amd_energy,
64-bit sums of microjoules); that is read where powercap has no package. Sources: Linux Documentation,
power/powercap/powercap.rst, and hwmon/amd_energy.rst as of Linux 5.12.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.meters.base import Clock, RawReading
from harness.run.clock import now_ns

ROOT = Path("/sys/class/powercap")
HWMON = Path("/sys/class/hwmon")
RESOLUTION_S = 0.001
LEAST_S = 1.0
# A counter of 65 kJ turns over in 65 s at 1 kW.
POLL_S = 10.0
# No package draws more: a gap shorter than range / this power cannot hide a whole turn of the counter.
MOST_W = 1000.0
# A counter turns over within this long after the last look, or it was reset (a driver loaded anew, a machine that
# slept while our clock stood still).
_SLACK_S = 1.0
_COUNTER = re.compile(r"\d{1,19}\s*", re.ASCII)
# Some processors show one counter under every die of a package. Read microseconds apart, a shared counter moves by at
# most a step or two (< 1 J at 1 kW); two counters of their own agree that closely by chance once in 100,000.
_MIRROR_UJ = 1_000_000
_READABLE = "sudo chmod -R a+r /sys/class/powercap/intel-rapl*/"

Reader = Callable[[Path], str]


def _read_text(path: Path) -> str:
    return path.read_text(encoding="ascii")


def _inside(folder: Path, pattern: str) -> list[Path]:
    """What a folder holds of these names; nothing where we may not look."""
    try:
        return sorted(folder.glob(pattern))
    except OSError:
        return []


def _order(folder: Path) -> tuple[bool, str]:
    """intel-rapl-mmio shows the same packages again through another bus: after the others, so that the first win."""
    return not folder.name.startswith("intel-rapl:"), folder.name


@dataclass(slots=True)
class _Zone:
    domain: str
    scope: str
    energy: Path
    range: int | None
    last: int | None = None
    last_ns: int = 0
    wraps: int = 0
    gaps: int = 0


def _turned(zone: _Zone, value: int, passed_s: float) -> bool:
    """Whether a counter that went back can have turned over once in that time."""
    if zone.last is None or zone.range is None:
        return False
    return 0 <= value + zone.range - zone.last <= MOST_W * 1e6 * (passed_s + _SLACK_S)


class RaplMeter:
    """Packages and DRAM, each once.

    Args:
        root: The powercap folder.
        clock: Monotonic nanoseconds.
        read_text: Reads one sysfs file; raises OSError where it can't.
        hwmon: The folder of hardware monitors.
    """

    name = "rapl"
    method = "rapl"
    resolution_s = RESOLUTION_S
    least_s = LEAST_S
    poll_s = POLL_S

    def __init__(
        self, root: Path = ROOT, clock: Clock = now_ns, read_text: Reader = _read_text, hwmon: Path = HWMON
    ) -> None:
        """Find the zones and try each once.

        Where a package can't be read there are no domains at all: the sum of the others would look frugal. DRAM that
        can't be read is left out of the scope. ``why`` says what and why.
        """
        self._clock = clock
        self._text = read_text
        self.why = ""
        self._zones: list[_Zone] = []
        found = self._find(root) or list(self._amd_energy(hwmon))
        complete = True
        for zone in found:
            value, why = self._value(zone)
            if value is None:
                self.why = self.why or why
                complete = complete and not zone.domain.startswith("package")
            elif not self._mirrors(zone, value):
                self._note(zone, value)
                self._zones.append(zone)
        if not found:
            self.why = self._absent(root)
        if not complete:
            self._zones = []
        self.domains = {zone.domain: zone.scope for zone in self._zones}

    def read(self) -> list[RawReading]:
        """One reading of every domain, microjoules."""
        return [self._reading(zone) for zone in self._zones]

    def settled(self, readings: Sequence[RawReading]) -> list[RawReading]:
        """As they were."""
        return list(readings)

    def poll(self) -> None:
        """Note wraps."""
        self.read()

    def close(self) -> None:
        """Nothing was started."""

    def _reading(self, zone: _Zone) -> RawReading:
        value, why = self._value(zone)
        if value is not None:
            self._note(zone, value)
        return RawReading(
            domain=zone.domain,
            method=self.method,
            unit="uj",
            t_ns=self._clock() if value is None else zone.last_ns,
            value=value,
            range=zone.range,
            wraps=zone.wraps,
            gaps=zone.gaps,
            resolution_s=RESOLUTION_S,
            scope=zone.scope,
            reason="counter_invalid" if value is None else None,
            why=why,
        )

    def _note(self, zone: _Zone, value: int) -> None:
        now = self._clock()
        if zone.last is not None:
            if value < zone.last:
                zone.wraps += 1
                zone.gaps += not _turned(zone, value, (now - zone.last_ns) / 1e9)
            limit_s = zone.range / 1e6 / MOST_W if zone.range else 30.0
            zone.gaps += (now - zone.last_ns) / 1e9 > limit_s
        zone.last, zone.last_ns = value, now

    def _value(self, zone: _Zone) -> tuple[int | None, str]:
        try:
            text = self._text(zone.energy)
            if not _COUNTER.fullmatch(text):
                return None, f"{zone.energy}: found {text[:40]!r}; expected a number of microjoules"
            return int(text), ""
        except PermissionError:
            remedy = _READABLE if zone.energy.name == "energy_uj" else f"sudo chmod a+r {zone.energy}"
            return None, f"{zone.energy}: only root may read it; to allow everyone until the next boot: {remedy}"
        except (OSError, ValueError) as error:
            return None, f"{zone.energy}: {error}"

    def _mirrors(self, zone: _Zone, value: int) -> bool:
        """Whether a die of the same package already shows this counter."""
        package = zone.domain.partition("-die-")[0]
        return any(
            other.domain.partition("-die-")[0] == package
            and "-die-" in zone.domain
            and other.last is not None
            and abs(other.last - value) <= _MIRROR_UJ
            for other in self._zones
        )

    def _find(self, root: Path) -> list[_Zone]:
        zones: dict[str, _Zone] = {}
        try:
            tops = sorted((path for path in root.iterdir() if path.name.startswith("intel-rapl")), key=_order)
        except OSError:
            return []
        for top in tops:
            if top.name.count(":") != 1:
                continue
            label = self._word(top / "name")
            if not label.startswith("package"):
                continue
            words = f"processor {label}"
            zones.setdefault(label, _Zone(label, words, top / "energy_uj", self._range(top)))
            for child in sorted([*_inside(top, f"{top.name}:*"), *_inside(root, f"{top.name}:*")]):
                if self._word(child / "name") == "dram":
                    domain = label.replace("package", "dram", 1)
                    memory = f"memory of {label}"
                    zones.setdefault(domain, _Zone(domain, memory, child / "energy_uj", self._range(child)))
        return list(zones.values())

    def _amd_energy(self, hwmon: Path) -> Iterator[_Zone]:
        """Sockets by the old driver for AMD; its cores are parts of them."""
        for monitor in _inside(hwmon, "hwmon*"):
            if self._word(monitor / "name") != "amd_energy":
                continue
            for label in _inside(monitor, "energy*_label"):
                if (words := self._word(label)).startswith("Esocket"):
                    domain = words.replace("Esocket", "package-")
                    yield _Zone(domain, f"processor {domain}", label.with_name(f"{label.stem[:-6]}_input"), None)

    def _word(self, file: Path) -> str:
        try:
            return self._text(file).strip()
        except (OSError, ValueError):  # ValueError: not ASCII
            return ""

    def _range(self, folder: Path) -> int | None:
        text = self._word(folder / "max_energy_range_uj")
        return int(text) or None if _COUNTER.fullmatch(text) else None

    @staticmethod
    def _absent(root: Path) -> str:
        if not os.path.isdir(root):  # False too where we may not look
            return f"{root} is missing: no RAPL counter here (virtual machines and containers hide it)"
        return f"{root} has no intel-rapl package zone (the module intel_rapl_msr may not be loaded)"
