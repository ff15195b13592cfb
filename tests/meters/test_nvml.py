"""NVML on a stand-in for the library."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from harness.meters.base import window
from harness.meters.nvml import NvmlMeter


class Refused(Exception):
    """Stands for NVMLError."""


class FakeNvml:
    """As much of NVML as the meter asks for."""

    NVMLError = Refused

    def __init__(self, names: tuple[str, ...] = ("H100",), **refuse: str) -> None:
        self.names = names
        self.refuse = refuse
        self.energy = {i: 123_456_000 for i in range(len(names))}
        self.processes: list[Any] = []

    def _check(self, call: str) -> None:
        if call in self.refuse:
            raise Refused(self.refuse[call])

    def nvmlInit(self) -> None:
        self._check("init")

    def nvmlSystemGetDriverVersion(self) -> bytes:
        return b"570.1"

    def nvmlDeviceGetCount(self) -> int:
        self._check("count")
        return len(self.names)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return f"GPU-{handle}{handle}-x"

    def nvmlDeviceGetName(self, handle: int) -> str:
        return self.names[handle]

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        self._check("memory")
        return SimpleNamespace(total=80 << 30)

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: int) -> int:
        self._check("energy")
        return self.energy[handle]

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:
        self._check("power")
        return 187_000

    def nvmlDeviceGetTemperature(self, handle: int, sensor: int) -> int:
        self._check("temperature")
        return 61

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[Any]:
        self._check("processes")
        return self.processes


def test_energy_window_in_millijoules_with_power_beside_it() -> None:
    lib = FakeNvml()
    meter = NvmlMeter(lib, env={})
    before = meter.read()
    lib.energy[0] = 123_486_000
    pair = window(before, meter.read())[0]
    assert (pair["domain"], pair["unit"], pair["range"], pair["power_w"]) == ("gpu:GPU-00-x", "mj", None, 187.0)
    assert pair["after"] - pair["before"] == 30_000  # 30 J: 0.5 J/token over 60 tokens
    assert pair["power_range_w"] == [187.0, 187.0]
    assert meter.resolution_s == 0.1 and meter.driver == "570.1"


def test_reset_stays_visible_for_the_maths() -> None:
    lib = FakeNvml()
    meter = NvmlMeter(lib, env={})
    before = meter.read()
    lib.energy[0] = 12
    pair = window(before, meter.read())[0]
    assert pair["after"] < pair["before"] and pair["range"] is None


@pytest.mark.parametrize(
    ("refuse", "words"),
    [
        ({"energy": "Not Supported"}, "no energy counter: Not Supported"),
        ({"init": "NVML Shared Library Not Found"}, "does not start"),
        ({"count": "Unknown Error"}, "lists no GPU"),
    ],
)
def test_what_nvml_refuses_becomes_a_reason(refuse: dict[str, str], words: str) -> None:
    meter = NvmlMeter(FakeNvml(("H100",), **refuse), env={})
    assert meter.domains == () and meter.read() == [] and words in meter.why


def test_counter_lost_in_mid_window_gives_none() -> None:
    lib = FakeNvml()
    meter = NvmlMeter(lib, env={})
    before = meter.read()
    lib.refuse = {"energy": "GPU is lost", "power": "GPU is lost"}
    pair = window(before, meter.read())[0]
    assert pair["after"] is None and pair["reason"] == "counter_invalid" and "GPU is lost" in pair["why"]


def test_power_that_is_not_supported_is_left_out() -> None:
    assert NvmlMeter(FakeNvml(power="Not Supported"), env={}).read()[0].power_w is None


@pytest.mark.parametrize(
    ("listed", "found"),
    [
        (None, ["GPU-00-x", "GPU-11-x", "GPU-22-x"]),
        ("2,0", ["GPU-22-x", "GPU-00-x"]),
        ("GPU-11", ["GPU-11-x"]),
        ("GPU-", []),  # ambiguous
        ("", []),
        ("-1", []),
        ("1,-1,0", ["GPU-11-x"]),  # the list ends at its first invalid entry
        ("7", []),
        ("0,0", ["GPU-00-x"]),
    ],
)
def test_cuda_visible_devices(listed: str | None, found: list[str]) -> None:
    env = {} if listed is None else {"CUDA_VISIBLE_DEVICES": listed}
    meter = NvmlMeter(FakeNvml(("H100", "H100", "H100")), env=env)
    assert [gpu.uuid for gpu in meter.gpus] == found
    assert bool(meter.why) != bool(found)


def test_numbers_of_unlike_gpus_are_refused_unless_ordered_by_bus() -> None:
    lib = FakeNvml(("T4", "H100"))
    assert "UUID" in NvmlMeter(lib, env={"CUDA_VISIBLE_DEVICES": "0"}).why
    assert NvmlMeter(lib, env={"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}).domains
    assert NvmlMeter(lib, env={"CUDA_VISIBLE_DEVICES": "GPU-11-x"}).domains == ("gpu:GPU-11-x",)


def test_memory_of_a_process() -> None:
    lib = FakeNvml()
    meter = NvmlMeter(lib, env={})
    assert meter.process_bytes(7) == (None, "NVML lists no process 7 on the visible GPUs")
    lib.processes = [SimpleNamespace(pid=7, usedGpuMemory=5 << 20), SimpleNamespace(pid=8, usedGpuMemory=None)]
    assert meter.process_bytes(7) == (5 << 20, "")
    assert meter.process_bytes(8)[0] is None
    lib.refuse = {"processes": "Not Supported"}
    assert meter.process_bytes(7) == (None, "memory by process: Not Supported")
    assert NvmlMeter(FakeNvml(init="no"), env={}).process_bytes(7)[0] is None


def test_temperature() -> None:
    assert NvmlMeter(FakeNvml(), env={}).temperatures() == {"GPU-00-x": 61}
    assert NvmlMeter(FakeNvml(temperature="Not Supported"), env={}).temperatures() == {"GPU-00-x": None}
