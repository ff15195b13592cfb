"""What can be measured on this machine and what can't, with reasons and remedies. Measures briefly, changes nothing.

Every check is a function that returns one ``Check``; none raises for what a machine lacks.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from harness.backends.llama_cpp import amx
from harness.meters import bandwidth as bandwidth_meter
from harness.meters import contention as contention_meter
from harness.meters import make
from harness.meters.base import EnergyMeter
from harness.meters.cpus import effective_cpus
from harness.meters.memory import available_bytes, total_bytes
from harness.meters.nvml import NvmlMeter
from harness.meters.panel import zeus_installed
from harness.run import environment

Status = Literal["ok", "limited", "missing"]
HUB = "https://huggingface.co"
HUB_LIMIT_S = 2.0
WATCH_S = 0.5
GIB = 2**30
_LOWEST_RAM = 4 * GIB
_LOWEST_DISK = 4 * GIB


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the diagnosis.

    Attributes:
        name: What was looked at.
        status: "ok"; "limited": works, with less to trust or to do; "missing": not here.
        found: What was found, for people.
        why: What follows from it.
        remedy: What to do about it, or "".
    """

    name: str
    status: Status
    found: str
    why: str = ""
    remedy: str = ""


def cores() -> Check:
    """CPUs that may be used."""
    all_cores, usable = os.cpu_count() or 1, effective_cpus()
    found = f"{usable} of {all_cores} usable"
    if usable < 2:
        return Check("cores", "limited", found, "anything else that runs disturbs every timing", "use at least 2 cores")
    if usable < all_cores:
        return Check("cores", "limited", found, "affinity or a control group limits us; threads follow the limit")
    return Check("cores", "ok", found)


def memory() -> Check:
    """RAM, total and free."""
    total, free = total_bytes(), available_bytes()
    if total is None or free is None:
        return Check("memory", "missing", "unknown", "the system does not tell; models may not fit")
    found = f"{free / GIB:.1f} GiB free of {total / GIB:.1f}"
    if free < _LOWEST_RAM:
        return Check("memory", "limited", found, "variants are loaded one at a time", "close other programs")
    return Check("memory", "ok", found)


def bandwidth() -> Check:
    """Read bandwidth of main memory."""
    seen = bandwidth_meter.bandwidth(cache_bytes=environment.last_level_cache(environment.caches()))
    found = f"{seen.best / 1e9:.1f} GB/s best, {seen.median / 1e9:.1f} median of {seen.n} ({seen.threads} threads)"
    size = f"array of {seen.array_bytes >> 20} MiB"
    if seen.enough is None:
        return Check("bandwidth", "limited", found, f"{size}; cache size unknown, so it may include cache hits")
    cache = f"a last-level cache of {(seen.cache_bytes or 0) >> 20} MiB"
    if not seen.enough:
        return Check("bandwidth", "limited", found, f"{size}, under 4 x {cache}: may include cache hits")
    return Check("bandwidth", "ok", found, f"{size}, {cache}")


def gpu(meter: NvmlMeter | None = None) -> Check:
    """NVIDIA GPUs."""
    meter = meter or NvmlMeter()
    if not meter.gpus:
        return Check("GPU", "missing", "none visible", meter.why, "not needed: the default engine runs on the CPU")
    names = ", ".join(f"{g.name} ({(g.memory_bytes or 0) / GIB:.0f} GiB)" for g in meter.gpus)
    return Check("GPU", "ok", names, f"driver {meter.driver}")


OWN_METER = (
    "a meter of your own: energy: {meter: command, command: [./my-meter], scope: wall} in variants.yaml; "
    "it prints lines of t_s,watts"
)


def energy(*meters: EnergyMeter) -> Check:
    """Energy counters: what can be read, how, in which steps, and what it covers."""
    rapl, nvml, *others = meters or _meters()
    domains = [
        f"{name} ({meter.method}, steps of {meter.resolution_s:g} s, {words})"
        for meter in (rapl, nvml, *others)
        for name, words in meter.domains.items()
    ]
    whys = "; ".join(meter.why for meter in (rapl, nvml, *others) if meter.why)
    readable = rapl.why.partition("next boot: ")[2]
    if not domains:
        remedy = readable or "run on real hardware, or on a GPU from Volta on"
        why = f"{whys}; energy is a labelled estimate, never ranked"
        return Check("energy", "missing", "no counter", why, f"{remedy}; or {OWN_METER}")
    limited = rapl.why or (isinstance(nvml, NvmlMeter) and nvml.unmeasured)
    return Check("energy", "limited" if limited else "ok", ", ".join(domains), whys if limited else "", readable)


def _meters() -> tuple[EnergyMeter, ...]:
    rapl, nvml = make("rapl"), make("nvml")
    return rapl, nvml, *([make("zeus")] if not nvml.domains and zeus_installed() else [])


def quiet(watch_s: float = WATCH_S, wait: Callable[[float], None] = time.sleep) -> Check:
    """Load of others, now."""
    sampler = contention_meter.Sampler()
    before = sampler.read()
    wait(watch_s)
    return quiet_of(contention_meter.contention(before, sampler.read(), sampler.n_cpus, effective_cpus()))


def quiet_of(seen: dict[str, Any]) -> Check:
    """The verdict on a contention reading."""
    if seen["other_share"] is None and seen["psi_some_share"] is None:
        return Check("contention", "missing", "unknown", "this system shows no load of others; they can't be noticed")
    labels = (("other_share", "others"), ("steal_share", "steal"), ("psi_some_share", "waiting"))
    found = ", ".join(f"{label} {seen[key]:.0%}" for key, label in labels if seen[key] is not None)
    if "contended" in contention_meter.codes(seen):
        return Check("contention", "limited", found, "timings now would be repeated or marked", "stop other programs")
    return Check("contention", "ok", found)


def frequency(root: Path = Path("/")) -> Check:
    """Clock rate and its governor."""
    facts = environment.machine(root, gpus=[])
    now, governor = facts["frequency"]["now_mhz"], facts["governor"]
    found = " ".join(filter(None, [f"{now:.0f} MHz" if now else "", governor or ""])) or "unknown"
    if governor is None:
        where = f"hidden by the virtual machine ({facts['virtual']})" if facts["virtual"] else "not shown by the system"
        return Check("frequency", "limited", found, f"governor and throttling are {where}")
    if governor == "powersave" and "intel" not in facts["cpu"].lower():
        remedy = "sudo cpupower frequency-set -g performance"
        return Check("frequency", "limited", found, "the clock stays low or follows load", remedy)
    return Check("frequency", "ok", found)


def disk(cache: Path) -> Check:
    """Room for models in the cache."""
    folder = next((path for path in (cache, *cache.parents) if path.exists()), Path("/"))
    free = shutil.disk_usage(folder).free
    found = f"{free / GIB:.1f} GiB free for {cache}"
    if not os.access(folder, os.W_OK):
        return Check("disk", "missing", found, f"{folder} is not writable", "set HARNESS_CACHE to a folder of yours")
    if free < _LOWEST_DISK:
        remedy = "free some space or set HARNESS_CACHE"
        return Check("disk", "limited", found, "quantised copies of a large model may not fit", remedy)
    return Check("disk", "ok", found)


def hub(url: str = HUB, limit_s: float = HUB_LIMIT_S) -> Check:
    """Whether the model hub answers."""
    remedy = "not needed for the default model; give local files, or set HARNESS_DATA for data sets"
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=limit_s) as answer:
            return Check("hub", "ok", f"{url} answers {answer.status}")
    except urllib.error.HTTPError as error:  # it answered, if unkindly
        return Check("hub", "ok", f"{url} answers {error.code}")
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        return Check("hub", "missing", "not reachable", f"{url}: {reason}", remedy)


def compiler(which: Callable[[str], str | None] = shutil.which) -> Check:
    """A C++ compiler, which llama-cpp-python needs to install from source."""
    for name in ("c++", "g++", "clang++", "cl"):
        found = which(name)
        if found:
            return Check("compiler", "ok", found)
    remedy = "xcode-select --install" if sys.platform == "darwin" else "install g++ (Debian: build-essential)"
    return Check("compiler", "missing", "no C++ compiler", "llama-cpp-python can't be built from source", remedy)


def sandbox(which: Callable[[str], str | None] = shutil.which) -> Check:
    """Bubblewrap, in which generated programs may be run."""
    found = which("bwrap")
    if found:
        return Check("sandbox", "ok", found)
    return Check(
        "sandbox",
        "missing",
        "bubblewrap (bwrap) not found",
        "generated code is only parsed, never run; parsing needs no sandbox",
        "install bubblewrap (Debian: apt install bubblewrap)",
    )


def engines() -> Check:
    """Engines and their versions."""
    found = {name: version for name, version in environment.versions(environment.PACKAGES).items() if version}
    text = ", ".join(f"{name} {version}" for name, version in found.items())
    if "llama-cpp-python" not in found:
        return Check("engines", "missing", text or "none", "the default engine is not installed", "pip install -e .")
    if fault := amx.installed_fault():
        return Check("engines", "limited", text, f"llama.cpp was {fault}; its AMX stays unused", amx.remedy())
    return Check("engines", "ok", text)


def data(folder: str | None = None) -> Check:
    """The folder of external data sets, HARNESS_DATA."""
    folder = folder if folder is not None else os.environ.get("HARNESS_DATA", "")
    remedy = "set HARNESS_DATA to a folder that holds mmlu/cais_mmlu"
    if not folder:
        return Check("data", "limited", "HARNESS_DATA is not set", "MMLU comes from the hub or the sample", remedy)
    if not Path(folder).is_dir():
        return Check("data", "missing", f"HARNESS_DATA={folder} is no folder", "it is ignored", remedy)
    if not (Path(folder) / "mmlu" / "cais_mmlu").is_dir():
        return Check("data", "limited", f"HARNESS_DATA={folder}", "no mmlu/cais_mmlu in it", remedy)
    return Check("data", "ok", f"HARNESS_DATA={folder}", "with mmlu/cais_mmlu")


def diagnose(cache: Path | None = None) -> list[Check]:
    """All checks, in the order a reader wants them; about 3-5 s, mostly bandwidth and the hub.

    Args:
        cache: The model cache folder; None for HARNESS_CACHE, else the user's cache folder.
    """
    base = os.environ.get("HARNESS_CACHE")
    place = cache or (Path(base) if base else Path.home() / ".cache" / "harness")
    load = quiet()  # before the bandwidth probe makes a load of its own
    return [
        *(cores(), memory(), load, bandwidth(), frequency(), energy(), gpu()),
        *(disk(place), hub(), compiler(), sandbox(), engines(), data()),
    ]


def as_dicts(checks: Iterable[Check]) -> list[dict[str, Any]]:
    """The checks as plain JSON."""
    return [asdict(check) for check in checks]
