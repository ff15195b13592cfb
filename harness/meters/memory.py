"""Memory of a process and of the machine. Knows nothing of models; bytes everywhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from harness.meters.cpus import Cgroup
from harness.meters.files import text as read

_PROC = Path("/proc")


def parse_kib(text: str, field: str) -> int | None:
    r"""Bytes of a ``Field:   123 kB`` line of /proc/self/status or /proc/meminfo, or None where it has none.

    >>> parse_kib("VmPeak:\t    3060 kB\nVmHWM:\t    1708 kB\n", "VmHWM")
    1748992
    """
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        if name == field:
            words = rest.split()
            return int(words[0]) * 1024 if words and words[0].isdigit() else None
    return None


def rusage_bytes(maxrss: int, platform: str = sys.platform) -> int:
    """Bytes of getrusage's ``ru_maxrss``: bytes on macOS, kibibytes elsewhere.

    >>> rusage_bytes(1024, "darwin"), rusage_bytes(1024, "linux")
    (1024, 1048576)
    """
    return maxrss if platform == "darwin" else maxrss * 1024


def peak_rss_bytes(pid: int | None = None, proc: Path = _PROC) -> int | None:
    """Highest resident set of a process since it started or since ``reset_peak``.

    Includes pages of mapped files, so weights that are mapped count once touched.

    Args:
        pid: The process; None for this one.
        proc: Where /proc is found.

    Returns:
        Bytes, or None where another process cannot be read (gone, or no /proc).
    """
    text = read(proc / ("self" if pid is None else str(pid)) / "status")
    peak = parse_kib(text, "VmHWM")
    if peak is None and pid is None and sys.platform != "win32":
        import resource

        peak = rusage_bytes(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    return peak


def rss_bytes(pid: int | None = None, proc: Path = _PROC) -> int | None:
    """Resident set of a process now, bytes, or None where it cannot be read."""
    return parse_kib(read(proc / ("self" if pid is None else str(pid)) / "status"), "VmRSS")


def reset_peak(pid: int | None = None, proc: Path = _PROC) -> bool:
    """Start the peak again from the present resident set. Says whether the kernel let us (Linux, own process).

    Source: proc(5), /proc/pid/clear_refs, value 5.
    """
    try:
        with open(proc / ("self" if pid is None else str(pid)) / "clear_refs", "w", encoding="ascii") as file:
            file.write("5")
    except OSError:
        return False
    return True


def total_bytes(proc: Path = _PROC) -> int | None:
    """Memory of the machine, bytes; None where the system does not tell."""
    found = parse_kib(read(proc / "meminfo"), "MemTotal")
    return _sysctl("hw.memsize") if found is None else found


def available_bytes(proc: Path = _PROC, cgroup: Cgroup | None = None) -> int | None:
    """Memory that could still be used without swapping, never above the control group's limit.

    On Linux MemAvailable; on macOS free, inactive and purgeable pages. None where the system does not tell.
    """
    free = parse_kib(read(proc / "meminfo"), "MemAvailable")
    if free is None:
        free = _mac_available()
    limit = (cgroup or Cgroup()).memory_bytes()
    if limit is None or free is None:
        return free
    return max(0, min(free, limit - (rss_bytes(proc=proc) or 0)))


def parse_vm_stat(text: str) -> int | None:
    r"""Bytes that macOS's ``vm_stat`` shows as free, inactive or purgeable.

    >>> parse_vm_stat("(page size of 16384 bytes)\nPages free: 10.\nPages inactive: 5.\nPages wired down: 9.\n")
    245760
    """
    _, _, rest = text.partition("page size of ")
    size = rest.split(" ", 1)[0]
    if not rest or not size.isdigit():
        return None
    pages = 0
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name in ("Pages free", "Pages inactive", "Pages purgeable"):
            pages += int(value.strip(" ."))
    return pages * int(size)


def _mac_available() -> int | None:
    return parse_vm_stat(_command("vm_stat")) if sys.platform == "darwin" else None


def _sysctl(name: str) -> int | None:
    text = _command("sysctl", "-n", name) if sys.platform == "darwin" else ""
    return int(text) if text.strip().isdigit() else None


def _command(*words: str) -> str:
    """Output of a system tool that needs no rights, or "" where it is missing or slow."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=2, stdin=subprocess.DEVNULL, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout
