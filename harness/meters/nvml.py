"""Energy of NVIDIA GPUs through NVML. Knows nothing of what runs on them.

The total-energy counter (Volta and later) is in millijoules since the driver was loaded, steps about every 20-100 ms,
and may start again at 0 with the driver; windows of 5 s or more are wanted. Where a GPU has no counter, the power it
reports is summed up over time. That power is one of the moment where the driver tells it (field 186), else mostly an
average over the last second. Beside a counter the same sum is a cross-check. Sources: NVML API reference,
nvmlDeviceGetTotalEnergyConsumption, nvmlDeviceGetPowerUsage ("on Ampere (except GA100) or newer GPUs, the API returns
power averaged over 1 sec interval") and NVML_FI_DEV_POWER_INSTANT; Yang et al. 2024, arXiv:2312.02741.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from harness.meters.base import Clock, RawReading
from harness.meters.gpus import Gpu, Unmeasured, choose, words_of
from harness.meters.trace import Trace
from harness.run.clock import now_ns

COUNTER_S, UPDATE_S = 0.1, 0.1
AVERAGED_S = 1.0
LEAST_S, LEAST_AVERAGED_S = 5.0, 10.0
POLL_S = 0.05
AMPERE, VGPU, MIG_ON, INSTANT = 7, 2, 1, 186
# GPUs of the Ampere generation that still report the power of the moment (GA100).
GA100 = re.compile(r"\b(A100|A800|A30)\b")


class NvmlMeter:
    """Energy of the GPUs that CUDA_VISIBLE_DEVICES leaves visible, named by UUID.

    Args:
        lib: The ``pynvml`` module or a stand-in; None imports it.
        env: Environment; None for the process's own.
        clock: Monotonic nanoseconds.

    Attributes:
        gpus: Those that are visible.
        unmeasured: Whether a GPU may be used that can't be measured; ``why`` then says why.
    """

    name = "nvml"
    poll_s = POLL_S

    def __init__(self, lib: Any = None, env: Mapping[str, str] | None = None, clock: Clock = now_ns) -> None:
        """Open NVML and try each GPU once.

        Where a visible GPU can't be measured there are no domains at all: the sum of the others would look frugal.
        """
        self._clock = clock
        self._error: tuple[type[Exception], ...] = (RuntimeError,)
        self.gpus: tuple[Gpu, ...] = ()
        self.why = ""
        self.driver: str | None = None
        self._hidden = False
        self._lib = self._open(lib)
        if self._lib is not None:
            self.gpus = self._visible(os.environ if env is None else env)
        self._traces = {gpu.uuid: Trace() for gpu in self.gpus}
        self._instant = {gpu.uuid: self._instant_w(gpu) is not None for gpu in self.gpus}
        self._counters = {gpu.uuid: self._energy(gpu)[0] is not None for gpu in self.gpus}
        refused = next(filter(None, map(self._refusal, self.gpus)), "")
        self.why = self.why or refused
        self.unmeasured = self._hidden or bool(refused)
        self._metered = () if refused else self.gpus
        self.domains = {f"gpu:{gpu.uuid}": words_of(gpu) for gpu in self._metered}

    @property
    def method(self) -> str:
        """By counters, or by power where any GPU has none."""
        return "nvml" if all(self._counters[gpu.uuid] for gpu in self._metered) else "nvml-power"

    @property
    def resolution_s(self) -> float:
        """The coarsest GPU's."""
        return max(map(self._resolution_s, self._metered), default=COUNTER_S)

    @property
    def least_s(self) -> float:
        """Shortest window: longer where power is an average, whose edges are blurred by a second."""
        return LEAST_AVERAGED_S if self.resolution_s >= AVERAGED_S else LEAST_S

    def read(self) -> list[RawReading]:
        """One reading of every GPU: millijoules by its counter, joules by its power where it has none."""
        return [self._reading(gpu) for gpu in self._metered]

    def settled(self, readings: Sequence[RawReading]) -> list[RawReading]:
        """As they were."""
        return list(readings)

    def poll(self) -> None:
        """Take a sample of every GPU's power."""
        for gpu in self._metered:
            self._sample(gpu)

    def close(self) -> None:
        """Nothing was started."""

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
        t_s = self._sample(gpu)
        summed = None if t_s is None else self._traces[gpu.uuid].at(t_s)
        power_j, gaps = summed or (None, 0.0)
        value: float | None = power_j
        why = "" if summed else f"{gpu.name}: it reports no power any more"
        if counted := self._counters[gpu.uuid]:
            value, why = self._energy(gpu)
        return RawReading(
            domain=f"gpu:{gpu.uuid}",
            method="nvml" if counted else "nvml-power",
            unit="mj" if counted else "j",
            t_ns=self._clock() if t_s is None else round(t_s * 1e9),
            value=value,
            gaps=0.0 if counted else gaps,
            resolution_s=self._resolution_s(gpu),
            scope=words_of(gpu),
            power_j=power_j if counted else None,
            reason="counter_invalid" if value is None else None,
            why=why,
        )

    def _sample(self, gpu: Gpu) -> float | None:
        """Add the power of now to the GPU's trace; returns when that was, seconds, or None where it tells none."""
        watts = self._power_w(gpu)
        if watts is None:
            return None
        t_s, trace = self._clock() / 1e9, self._traces[gpu.uuid]
        return t_s if trace.add(t_s, watts) else trace.t_s[-1]

    def _resolution_s(self, gpu: Gpu) -> float:
        if self._counters[gpu.uuid]:
            return COUNTER_S
        update_s = self._traces[gpu.uuid].update_s or UPDATE_S
        return max(update_s, AVERAGED_S) if self._averages(gpu) else max(update_s, POLL_S)

    def _averages(self, gpu: Gpu) -> bool:
        """Whether the power that a GPU reports is the mean of the last second."""
        if self._instant[gpu.uuid]:
            return False
        generation = self._ask(lambda: int(self._lib.nvmlDeviceGetArchitecture(gpu.handle)))
        return generation is None or (generation >= AMPERE and not GA100.search(gpu.name))

    def _refusal(self, gpu: Gpu) -> str:
        """Why the energy of a GPU can't be told, or "".

        With MIG a counter is the whole GPU's, of which others may use a part; a virtual GPU shows its host's, or none.
        """
        lib = self._lib
        if (self._ask(lambda: lib.nvmlDeviceGetMigMode(gpu.handle)) or [0])[0] == MIG_ON:
            return f"{gpu.name}: MIG is on, and NVML counts the energy of the whole GPU only"
        if self._ask(lambda: int(lib.nvmlDeviceGetVirtualizationMode(gpu.handle))) == VGPU:
            return f"{gpu.name}: a virtual GPU, whose energy is not its own"
        if self._counters[gpu.uuid] or self._power_w(gpu) is not None:
            return ""
        return f"{self._energy(gpu)[1]}; and it reports no power"

    def _open(self, lib: Any) -> Any:
        try:
            lib = lib or importlib.import_module("pynvml")
        except ImportError:
            self.why = "the package nvidia-ml-py is not installed"
            return None
        # The second, where a driver is too old for a question, is no kind of the first.
        self._error = (lib.NVMLError, getattr(lib, "NVMLLibraryMismatchError", lib.NVMLError))
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
        try:
            chosen, self.why = choose(every, env)
        except Unmeasured as error:
            self.why, self._hidden = str(error), True
            return ()
        return chosen

    def _gpu(self, handle: Any) -> Gpu:
        lib = self._lib
        memory = self._ask(lambda: int(lib.nvmlDeviceGetMemoryInfo(handle).total))
        return Gpu(handle, _text(lib.nvmlDeviceGetUUID(handle)), _text(lib.nvmlDeviceGetName(handle)), memory)

    def _energy(self, gpu: Gpu) -> tuple[int | None, str]:
        try:
            return int(self._lib.nvmlDeviceGetTotalEnergyConsumption(gpu.handle)), ""
        except self._error as error:
            return None, f"{gpu.name}: no energy counter: {error} (Volta or later, and no virtual GPU, is needed)"

    def _power_w(self, gpu: Gpu) -> float | None:
        if self._instant[gpu.uuid]:
            return self._instant_w(gpu)
        milliwatts = self._ask(lambda: self._lib.nvmlDeviceGetPowerUsage(gpu.handle))
        return None if milliwatts is None else milliwatts / 1000

    def _instant_w(self, gpu: Gpu) -> float | None:
        """Power of the moment, watts; None where this GPU or driver does not tell it."""
        field = self._ask(lambda: self._lib.nvmlDeviceGetFieldValues(gpu.handle, [INSTANT])[0])
        return None if field is None or field.nvmlReturn != 0 else field.value.uiVal / 1000


def _text(value: Any) -> str:
    """NVML's older bindings return bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)
