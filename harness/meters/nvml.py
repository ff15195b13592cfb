"""Energy, power and memory of NVIDIA GPUs through NVML. Knows nothing of what runs on them.

The total-energy counter (Volta and later) is in millijoules since the driver was loaded, steps about every 20-100 ms,
and may start again at 0 with the driver; windows of 5 s or more are wanted. Power usage is a one-second average on most
GPUs, so it is only a cross-check. Sources: NVML API reference, nvmlDeviceGetTotalEnergyConsumption and
nvmlDeviceGetPowerUsage; Yang et al. 2024, arXiv:2312.02741.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.meters.base import Clock, RawReading
from harness.run.clock import now_ns

RESOLUTION_S = 0.1


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU this process may use."""

    handle: Any
    uuid: str
    name: str
    memory_bytes: int | None


class NvmlMeter:
    """Energy counters of the GPUs that CUDA_VISIBLE_DEVICES leaves visible, named by UUID.

    Args:
        lib: The ``pynvml`` module or a stand-in; None imports it.
        env: Environment; None for the process's own.
        clock: Monotonic nanoseconds.
    """

    name = "nvml"
    method = "nvml"
    resolution_s = RESOLUTION_S

    def __init__(self, lib: Any = None, env: Mapping[str, str] | None = None, clock: Clock = now_ns) -> None:
        """Open NVML and try each counter once.

        Where a visible GPU has no counter there are no domains at all: the sum of the others would look frugal.
        """
        self._clock = clock
        self._error: type[Exception] = RuntimeError
        self.gpus: tuple[Gpu, ...] = ()
        self.why = ""
        self.driver: str | None = None
        self._lib = self._open(lib)
        if self._lib is not None:
            self.gpus = self._visible(os.environ if env is None else env)
        counted = all(self._energy(gpu)[0] is not None for gpu in self.gpus)
        self._counted = self.gpus if counted else ()
        self.domains = tuple(f"gpu:{gpu.uuid}" for gpu in self._counted)

    def read(self) -> list[RawReading]:
        """One reading of every GPU with a counter, millijoules, with the power it reports."""
        return [self._reading(gpu) for gpu in self._counted]

    def poll(self) -> None:
        """Nothing to do: the counter has 64 bits."""

    def process_bytes(self, pid: int | None = None) -> tuple[int | None, str]:
        """GPU memory that a process holds now, over all visible GPUs.

        Returns:
            (bytes, "") or (None, why). A process that NVML does not list gives None, not 0: inside a container NVML
            may know it by another number.
        """
        if self._lib is None or not self.gpus:
            return None, self.why or "no GPU"
        wanted = os.getpid() if pid is None else pid
        total: int | None = None
        for gpu in self.gpus:
            try:
                processes = self._lib.nvmlDeviceGetComputeRunningProcesses(gpu.handle)
            except self._error as error:
                return None, f"memory by process: {error}"
            for process in processes:
                if process.pid == wanted:
                    if process.usedGpuMemory is None:
                        return None, "memory by process: NVML does not tell (WDDM driver or MIG)"
                    total = (total or 0) + int(process.usedGpuMemory)
        return total, "" if total is not None else f"NVML lists no process {wanted} on the visible GPUs"

    def temperatures(self) -> dict[str, int | None]:
        """Degrees Celsius by UUID; None where NVML does not tell."""
        lib = self._lib
        return {gpu.uuid: self._ask(lambda g=gpu: int(lib.nvmlDeviceGetTemperature(g.handle, 0))) for gpu in self.gpus}

    def _reading(self, gpu: Gpu) -> RawReading:
        value, why = self._energy(gpu)
        t_ns = self._clock()
        return RawReading(
            domain=f"gpu:{gpu.uuid}",
            method=self.method,
            unit="mj",
            t_ns=t_ns,
            value=value,
            power_w=self._power_w(gpu),
            reason="counter_invalid" if value is None else None,
            why=why,
        )

    def _open(self, lib: Any) -> Any:
        try:
            lib = lib or importlib.import_module("pynvml")
        except ImportError:
            self.why = "the package nvidia-ml-py is not installed"
            return None
        self._error = lib.NVMLError
        try:
            lib.nvmlInit()
        except self._error as error:
            self.why = f"NVML does not start: {error} (no NVIDIA driver here)"
            return None
        self.driver = self._ask(lambda: _text(lib.nvmlSystemGetDriverVersion()))
        return lib

    def _ask(self, call: Any) -> Any:
        """What NVML answers, or None where it does not support the question."""
        try:
            return call()
        except self._error:
            return None

    def _visible(self, env: Mapping[str, str]) -> tuple[Gpu, ...]:
        try:
            every = [self._gpu(self._lib.nvmlDeviceGetHandleByIndex(i)) for i in range(self._lib.nvmlDeviceGetCount())]
        except self._error as error:
            self.why = f"NVML lists no GPU: {error}"
            return ()
        chosen, self.why = _choose(every, env)
        return chosen

    def _gpu(self, handle: Any) -> Gpu:
        lib = self._lib
        memory = self._ask(lambda: int(lib.nvmlDeviceGetMemoryInfo(handle).total))
        return Gpu(handle, _text(lib.nvmlDeviceGetUUID(handle)), _text(lib.nvmlDeviceGetName(handle)), memory)

    def _energy(self, gpu: Gpu) -> tuple[int | None, str]:
        try:
            return int(self._lib.nvmlDeviceGetTotalEnergyConsumption(gpu.handle)), ""
        except self._error as error:
            why = f"{gpu.name}: no energy counter: {error} (Volta or later, and no virtual GPU, is needed)"
            self.why = self.why or why
            return None, why

    def _power_w(self, gpu: Gpu) -> float | None:
        milliwatts = self._ask(lambda: self._lib.nvmlDeviceGetPowerUsage(gpu.handle))
        return None if milliwatts is None else milliwatts / 1000


def _text(value: Any) -> str:
    """NVML's older bindings return bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)


def _choose(every: list[Gpu], env: Mapping[str, str]) -> tuple[tuple[Gpu, ...], str]:
    """The GPUs that CUDA_VISIBLE_DEVICES names, and why there are none.

    CUDA reads the list up to its first invalid entry. Its numbers follow speed unless CUDA_DEVICE_ORDER is PCI_BUS_ID,
    while NVML's follow the bus; where the GPUs differ a number could be another GPU, so it is refused.
    """
    listed = env.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        return tuple(every), "" if every else "no NVIDIA GPU"
    mixed = len({gpu.name for gpu in every}) > 1 and env.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID"
    chosen: list[Gpu] = []
    for entry in (part.strip() for part in listed.split(",")):
        if entry.isdigit():
            if mixed:
                return (), "unlike GPUs, numbered in CUDA_VISIBLE_DEVICES: use UUIDs or CUDA_DEVICE_ORDER=PCI_BUS_ID"
            match = every[int(entry) : int(entry) + 1]
        else:
            match = [gpu for gpu in every if entry and gpu.uuid.startswith(entry)]
        if len(match) != 1 or match[0] in chosen:
            break
        chosen.append(match[0])
    return tuple(chosen), "" if chosen else f"CUDA_VISIBLE_DEVICES={listed!r} leaves no GPU visible"
