"""How many CPUs and how much memory this process may use: affinity and control groups (v1 and v2)."""

from __future__ import annotations

import os
from pathlib import Path

from harness.meters.files import text as read

_V1_UNLIMITED = 1 << 60  # control groups v1 write "no memory limit" as a huge page-rounded number


def affinity() -> frozenset[int] | None:
    """CPUs the scheduler may run us on, or None where the system does not tell (macOS)."""
    return frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None


class Cgroup:
    """The limits of the control groups that hold this process, ancestors included.

    Args:
        root: Where /proc and /sys are found.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        """Read the process's groups from /proc/self/cgroup."""
        self._fs = root / "sys/fs/cgroup"
        self._groups: dict[str, str] = {}
        for line in read(root / "proc/self/cgroup").splitlines():
            parts = line.split(":", 2)
            if len(parts) == 3:
                for controller in parts[1].split(","):
                    self._groups[controller] = parts[2]

    def cpus(self) -> float | None:
        """CPUs' worth of time allowed, quota / period, or None where there is no limit."""
        limits = []
        for folder in self._folders(""):
            limits.append(_ratio(read(folder / "cpu.max")))
        for folder in self._folders("cpu"):
            limits.append(
                _ratio(f"{read(folder / 'cpu.cfs_quota_us').strip()} {read(folder / 'cpu.cfs_period_us').strip()}")
            )
        return min((limit for limit in limits if limit is not None), default=None)

    def memory_bytes(self) -> int | None:
        """Bytes of memory allowed, or None where there is no limit."""
        texts = [read(folder / "memory.max") for folder in self._folders("")]
        texts += [read(folder / "memory.limit_in_bytes") for folder in self._folders("memory")]
        limits = [int(text) for text in texts if text.strip().isdigit()]
        return min((limit for limit in limits if limit < _V1_UNLIMITED), default=None)

    def _folders(self, controller: str) -> list[Path]:
        """The group's folder and its ancestors'; a container may see only the top, which is then its own."""
        if controller not in self._groups:
            return []
        # The unified hierarchy is mounted at the top, or under "unified" beside v1's controllers.
        tops = [self._fs / controller] if controller else [self._fs, self._fs / "unified"]
        parts = [part for part in self._groups[controller].split("/") if part not in ("", "..")]
        return [top.joinpath(*parts[:depth]) for top in tops for depth in range(len(parts) + 1)]


def effective_cpus(root: Path = Path("/")) -> int:
    """CPUs that threads of ours can really run on at once, at least 1.

    Formula: ``max(1, floor(min(CPUs of the machine, affinity, quota of the control groups)))``
    """
    allowed = affinity()
    limit = float(len(allowed) if allowed else os.cpu_count() or 1)
    quota = Cgroup(root).cpus()
    return max(1, int(limit if quota is None else min(limit, quota)))


def _ratio(text: str) -> float | None:
    """CPUs of a "quota period" text; None for "max", -1 or nothing.

    >>> _ratio("150000 100000")
    1.5
    """
    parts = text.split()
    if len(parts) != 2 or not all(part.isdigit() for part in parts) or parts[1] == "0":
        return None
    return int(parts[0]) / int(parts[1])
