"""What machine this is, as plain JSON: enough to tell whether two runs may be compared, nothing that names its owner.

No host names, user names, addresses or serial numbers. It doesn't measure anything.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

from harness.meters.cpus import effective_cpus
from harness.meters.files import text
from harness.meters.memory import total_bytes

# Packages whose version can change a figure.
PACKAGES = ("llama-cpp-python", "lm-eval", "numpy", "datasets", "torch", "transformers", "vllm", "nvidia-ml-py")
# Instruction sets that decide which kernels an engine picks.
FLAGS = ("avx", "avx2", "avx512f", "avx512_vnni", "avx512_bf16", "avx_vnni", "amx_int8", "amx_bf16", "f16c", "fma")
FLAGS_ARM = ("asimd", "asimddp", "i8mm", "bf16", "sve", "sve2", "sme")
_HYPERVISORS = (("kvm-clock", "kvm"), ("hyperv", "hyperv"), ("xen", "xen"))


def machine(root: Path = Path("/"), gpus: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """Describe this machine.

    Args:
        root: Where /proc and /sys are found.
        gpus: GPUs already known; None asks NVML.

    Returns:
        ``fingerprint, cpu, cores, effective_cpus, ram_bytes, caches, flags, os, kernel, arch, python, governor,
        frequency, virtual, container, gpus, packages``. What the system does not tell is None.
    """
    info = _cpuinfo(root)
    found = gpus if gpus is not None else visible_gpus()
    flags = set(str(info.get("flags") or info.get("Features") or "").split())
    facts: dict[str, Any] = {
        "cpu": _cpu_name(info),
        "cores": os.cpu_count() or 1,
        "effective_cpus": effective_cpus(root),
        "ram_bytes": total_bytes(root / "proc"),
        "caches": caches(root),
        "flags": sorted(flags.intersection(FLAGS + FLAGS_ARM)),
        "os": _os_name(root),
        "kernel": platform.release(),
        "arch": platform.machine(),
        "python": platform.python_version(),
        "governor": _text(root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") or None,
        "frequency": _frequency(root, info),
        "virtual": virtual(root, "hypervisor" in flags),
        "container": _container(root),
        "gpus": found,
        "packages": versions(PACKAGES),
    }
    return {"fingerprint": fingerprint(facts), **facts}


def fingerprint(facts: dict[str, Any]) -> str:
    """16 hex digits that are equal where speeds may be compared.

    Over the CPU model, cores (all and usable), memory rounded to whole GiB, GPU models and drivers, kernel family
    (first two numbers), architecture and instruction sets. Not over package versions: those are conditions of a run.
    """
    ram = facts["ram_bytes"]
    parts = {
        "cpu": facts["cpu"],
        "cores": [facts["cores"], facts["effective_cpus"]],
        "ram_gib": None if ram is None else round(ram / 2**30),
        "gpus": sorted([str(gpu.get("name")), str(gpu.get("driver"))] for gpu in facts["gpus"]),
        "system": [sys.platform, ".".join(str(facts["kernel"]).split(".")[:2]), facts["arch"]],
        "flags": facts["flags"],
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def caches(root: Path = Path("/")) -> dict[str, int]:
    """Bytes of each cache of the first CPU, by name: {"L1d": 49152, "L2": ..., "L3": ...}. Empty where not told.

    In a virtual machine the last level is often that of the whole host.
    """
    found: dict[str, int] = {}
    for folder in sorted((root / "sys/devices/system/cpu/cpu0/cache").glob("index*")):
        kind = _text(folder / "type")
        size = parse_size(_text(folder / "size"))
        if kind != "Instruction" and size is not None:
            found[f"L{_text(folder / 'level')}" + ("d" if kind == "Data" else "")] = size
    return found or _mac_caches()


def last_level_cache(found: dict[str, int]) -> int | None:
    """Bytes of the largest cache of ``caches()``, or None."""
    return max(found.values(), default=None)


def parse_size(text: str) -> int | None:
    """Bytes of a sysfs cache size.

    >>> parse_size("307200K"), parse_size("32M"), parse_size("")
    (314572800, 33554432, None)
    """
    digits, unit = text[:-1], text[-1:]
    scale = {"K": 2**10, "M": 2**20, "G": 2**30}.get(unit)
    return int(digits) * scale if scale and digits.isdigit() else None


def virtual(root: Path = Path("/"), hypervisor: bool = False) -> str | None:
    """Kind of virtual machine ("kvm", "xen", "hyperv", "unknown"), or None on bare metal.

    Args:
        root: Where /sys is found.
        hypervisor: Whether the processor says that it is virtual.
    """
    kind = _text(root / "sys/hypervisor/type")
    if kind:
        return kind
    if not hypervisor:
        return None
    clocks = _text(root / "sys/devices/system/clocksource/clocksource0/available_clocksource")
    return next((name for mark, name in _HYPERVISORS if mark in clocks), "unknown")


def versions(packages: Iterable[str]) -> dict[str, str | None]:
    """Installed version of each package, None where it is not installed. Imports none of them."""
    found: dict[str, str | None] = {}
    for package in packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = None
    return found


def visible_gpus() -> list[dict[str, Any]]:
    """``{"name", "uuid", "memory_bytes", "driver"}`` of the NVIDIA GPUs this process may use."""
    from harness.meters.nvml import NvmlMeter

    meter = NvmlMeter()
    return [
        {"name": gpu.name, "uuid": gpu.uuid, "memory_bytes": gpu.memory_bytes, "driver": meter.driver}
        for gpu in meter.gpus
    ]


def _cpuinfo(root: Path) -> dict[str, str]:
    """The first processor's fields of /proc/cpuinfo."""
    first = _text(root / "proc/cpuinfo").partition("\n\n")[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def _cpu_name(info: dict[str, str]) -> str:
    if sys.platform == "darwin":
        return _sysctl("machdep.cpu.brand_string") or platform.machine()
    if info.get("model name"):
        stepping = (info.get("cpu family"), info.get("model"), info.get("stepping"))
        return info["model name"] + (" (family {} model {} stepping {})".format(*stepping) if all(stepping) else "")
    part = info.get("CPU part")
    return f"ARM implementer {info.get('CPU implementer')} part {part}" if part else platform.machine()


def _frequency(root: Path, info: dict[str, str]) -> dict[str, float | None]:
    """Megahertz: present (of the first CPU) and highest."""
    folder = root / "sys/devices/system/cpu/cpu0/cpufreq"
    most = _text(folder / "cpuinfo_max_freq")
    now = _text(folder / "scaling_cur_freq")
    told = info.get("cpu MHz")
    return {
        "now_mhz": int(now) / 1000 if now.isdigit() else float(told) if told else None,
        "max_mhz": int(most) / 1000 if most.isdigit() else None,
    }


def _os_name(root: Path) -> str:
    for line in _text(root / "etc/os-release").splitlines():
        if line.startswith("PRETTY_NAME="):
            return line.partition("=")[2].strip('"')
    return f"{platform.system()} {platform.mac_ver()[0]}".strip()


def _container(root: Path) -> str | None:
    if (root / ".dockerenv").exists():
        return "docker"
    return "podman" if (root / "run/.containerenv").exists() else None


def _mac_caches() -> dict[str, int]:
    names = {"L1d": "hw.l1dcachesize", "L2": "hw.l2cachesize", "L3": "hw.l3cachesize"}
    texts = {level: _sysctl(name) for level, name in names.items()}
    return {level: int(text) for level, text in texts.items() if text.isdigit() and text != "0"}


def _sysctl(name: str) -> str:
    """A value that macOS tells by name, else ""."""
    if platform.system() != "Darwin":
        return ""
    try:
        done = subprocess.run(
            ["sysctl", "-n", name], capture_output=True, text=True, timeout=2, stdin=subprocess.DEVNULL, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


def _text(path: Path) -> str:
    """A file's text without surrounding space, "" where it can't be read: the fact is then None."""
    return text(path).strip()
