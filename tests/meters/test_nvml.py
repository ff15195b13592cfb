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
        self.milliwatts = 187_000
        self.instant: int | None = None
        self.architecture = 9
        self.mig, self.virtualization = 0, 0
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
        return self.milliwatts

    def nvmlDeviceGetFieldValues(self, handle: int, fields: list[int]) -> list[Any]:
        assert fields == [186]
        if self.instant is None:
            return [SimpleNamespace(nvmlReturn=3, value=SimpleNamespace(uiVal=0))]
        return [SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(uiVal=self.instant))]

    def nvmlDeviceGetArchitecture(self, handle: int) -> int:
        return self.architecture

    def nvmlDeviceGetMigMode(self, handle: int) -> list[int]:
        self._check("mig")
        return [self.mig, self.mig]

    def nvmlDeviceGetVirtualizationMode(self, handle: int) -> int:
        return self.virtualization

    def nvmlDeviceGetTemperature(self, handle: int, sensor: int) -> int:
        self._check("temperature")
        return 61

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[Any]:
        self._check("processes")
        return self.processes


class Tick:
    """A clock that only moves when told, seconds."""

    s = 100.0

    def __call__(self) -> int:
        return round(self.s * 1e9)


def test_energy_window_in_millijoules_with_the_reported_power_summed_up_beside_it() -> None:
    lib, clock = FakeNvml(), Tick()
    meter = NvmlMeter(lib, env={}, clock=clock)
    before = meter.read()
    clock.s, lib.energy[0] = 110.0, 123_486_000
    pair = window(before, meter.read())[0]
    assert (pair["domain"], pair["method"], pair["unit"], pair["range"]) == ("gpu:GPU-00-x", "nvml", "mj", None)
    assert pair["after"] - pair["before"] == 30_000  # 30 J: 0.5 J/token over 60 tokens
    assert (pair["power_j"], pair["window_s"], pair["resolution_s"]) == (1870.0, 10.0, 0.1)  # 187 W x 10 s
    assert pair["scope"] == "H100, the whole board"
    assert (meter.resolution_s, meter.least_s, meter.driver) == (0.1, 5.0, "570.1")


def test_a_counter_that_lies_is_told_from_the_power() -> None:
    """Recorded: 5 s idle at 187 J by the power and 327 J by the counter."""
    from harness.metrics.energy import disagreement, joules

    lib, clock = FakeNvml(), Tick()
    lib.milliwatts = 37_400
    meter = NvmlMeter(lib, env={}, clock=clock)
    before = meter.read()
    for _ in range(50):
        clock.s += 0.1
        lib.energy[0] += 6540
        meter.poll()
    pair = window(before, meter.read())[0]
    assert joules(pair) == (327.0, None) and pair["power_j"] == pytest.approx(187.0)
    assert disagreement([pair]) == "gpu:GPU-00-x: its counter says 65 W, the device reports 37 W"


def sampled(lib: FakeNvml, watts: list[float], step_s: float = 0.05) -> dict[str, Any]:
    """The window over a trace of power, one sample a step."""
    clock = Tick()
    lib.milliwatts = lib.instant = round(watts[0] * 1000)
    if "instant" in lib.refuse:
        lib.instant = None
    meter = NvmlMeter(lib, env={}, clock=clock)
    before = meter.read()
    for value in watts[1:]:
        clock.s += step_s
        lib.milliwatts = round(value * 1000)
        lib.instant = None if lib.instant is None else lib.milliwatts
        meter.poll()
    return window(before, meter.read())[0] | {"least_s": meter.least_s, "of": meter.method}


def test_without_a_counter_power_is_summed_up_over_time() -> None:
    # 100 W for 1 s, a rise to 300 W within 0.05 s, 300 W for 2 s: 100 + 10 + 600 J.
    pair = sampled(FakeNvml(energy="Not Supported"), [100.0] * 21 + [300.0] * 41)
    assert (pair["method"], pair["of"], pair["unit"], pair["reason"]) == ("nvml-power", "nvml-power", "j", None)
    assert pair["after"] - pair["before"] == pytest.approx(710.0) and pair["window_s"] == pytest.approx(3.05)
    assert (pair["resolution_s"], pair["least_s"]) == (0.1, 5.0) and "power_j" not in pair


def test_an_averaged_power_is_as_coarse_as_its_average() -> None:
    def found(name: str, architecture: int, instant: bool = False) -> tuple[float, float]:
        lib = FakeNvml((name,), energy="Not Supported", **({} if instant else {"instant": "no"}))
        lib.architecture = architecture
        pair = sampled(lib, [100.0] * 30)
        return pair["resolution_s"], pair["least_s"]

    assert found("NVIDIA GeForce RTX 4090", 8) == (1.0, 10.0)
    assert found("NVIDIA GeForce RTX 4090", 8, instant=True) == (0.1, 5.0)
    assert found("NVIDIA A100-SXM4-80GB", 7) == (0.1, 5.0)  # GA100 tells the power of the moment
    assert found("NVIDIA A10", 7) == (1.0, 10.0)
    assert found("Tesla P100", 4) == (0.1, 5.0)


def test_the_update_period_is_found_from_the_samples() -> None:
    pair = sampled(FakeNvml(energy="Not Supported"), [100.0 + n // 5 for n in range(60)])
    assert pair["resolution_s"] == pytest.approx(0.25)


def test_power_that_falls_silent_voids_the_window() -> None:
    lib, clock = FakeNvml(energy="Not Supported"), Tick()
    meter = NvmlMeter(lib, env={}, clock=clock)
    before = meter.read()
    for _ in range(20):
        clock.s += 0.05
        meter.poll()
    clock.s += 4.0  # nobody looked: what was drawn meanwhile is not known
    pair = window(before, meter.read())[0]
    assert pair["reason"] == "counter_invalid" and "energy may have gone unseen" in pair["why"]
    before = meter.read()
    lib.refuse["power"] = "GPU is lost"
    pair = window(before, meter.read())[0]
    assert pair["after"] is None and pair["reason"] == "counter_invalid" and "no power" in pair["why"]


def test_parts_of_a_gpu_and_virtual_ones_are_refused() -> None:
    lib = FakeNvml()
    lib.mig = 1
    assert not NvmlMeter(lib, env={}).domains and "MIG is on" in NvmlMeter(lib, env={}).why
    lib.mig, lib.virtualization = 0, 2
    assert not NvmlMeter(lib, env={}).domains and "virtual GPU" in NvmlMeter(lib, env={}).why
    lib.virtualization = 1  # passed through to a virtual machine whole
    assert NvmlMeter(lib, env={}).domains
    part = NvmlMeter(FakeNvml(), env={"CUDA_VISIBLE_DEVICES": "MIG-11aa/3/0"})
    assert not part.domains and "a part of a GPU" in part.why
    assert NvmlMeter(FakeNvml(mig="Not Supported"), env={}).domains


def test_a_superchip_says_that_its_processor_is_in() -> None:
    meter = NvmlMeter(FakeNvml(("NVIDIA GH200 480GB",)), env={})
    assert list(meter.domains.values()) == ["NVIDIA GH200 480GB, the whole module with its processor"]


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
        ({"energy": "Not Supported", "power": "Not Supported"}, "no energy counter: Not Supported"),
        ({"init": "NVML Shared Library Not Found"}, "does not start"),
        ({"count": "Unknown Error"}, "lists no GPU"),
    ],
)
def test_what_nvml_refuses_becomes_a_reason(refuse: dict[str, str], words: str) -> None:
    meter = NvmlMeter(FakeNvml(("H100",), **refuse), env={})
    assert meter.domains == {} and meter.read() == [] and words in meter.why


def test_counter_lost_in_mid_window_gives_none() -> None:
    lib = FakeNvml()
    meter = NvmlMeter(lib, env={})
    before = meter.read()
    lib.refuse = {"energy": "GPU is lost", "power": "GPU is lost"}
    pair = window(before, meter.read())[0]
    assert pair["after"] is None and pair["reason"] == "counter_invalid" and "GPU is lost" in pair["why"]


def test_power_that_is_not_supported_is_left_out() -> None:
    assert NvmlMeter(FakeNvml(power="Not Supported"), env={}).read()[0].power_j is None


def test_one_gpu_without_counter_or_power_voids_all() -> None:
    class Mixed(FakeNvml):
        def nvmlDeviceGetTotalEnergyConsumption(self, handle: int) -> int:
            if handle:
                raise Refused("Not Supported")
            return 5

        def nvmlDeviceGetPowerUsage(self, handle: int) -> int:
            if handle:
                raise Refused("Not Supported")
            return 5

    assert not NvmlMeter(Mixed(("T4", "T4")), env={}).domains
    assert NvmlMeter(Mixed(("T4", "T4")), env={"CUDA_VISIBLE_DEVICES": "0"}).domains


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
    assert NvmlMeter(lib, env={"CUDA_VISIBLE_DEVICES": "GPU-11-x"}).domains == {"gpu:GPU-11-x": "H100, the whole board"}


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


@pytest.mark.parametrize(
    ("listed", "found"),
    [
        ("\u00b2", []),  # a digit to isdigit, and no number
        ("9" * 5000, []),
        (" 1 , 0 ", ["GPU-11-x", "GPU-00-x"]),
        (",", []),
        ("0,,1", ["GPU-00-x"]),
        ("00", ["GPU-00-x"]),
        ("+1", []),
        ("1.0", []),
        ("NoDevFiles", []),
    ],
)
def test_lists_that_are_hard_to_read(listed: str, found: list[str]) -> None:
    meter = NvmlMeter(FakeNvml(("H100", "H100", "H100")), env={"CUDA_VISIBLE_DEVICES": listed})
    assert [gpu.uuid for gpu in meter.gpus] == found and bool(meter.why) != bool(found)


def test_a_gpu_that_may_be_used_and_not_measured_is_told_from_none() -> None:
    """Beside a processor's counter it must be said that a part of a GPU is not in the sum."""
    assert NvmlMeter(FakeNvml(), env={"CUDA_VISIBLE_DEVICES": "MIG-11aa/3/0"}).unmeasured
    assert NvmlMeter(FakeNvml(("T4", "H100")), env={"CUDA_VISIBLE_DEVICES": "0"}).unmeasured
    assert NvmlMeter(FakeNvml(energy="no", power="no"), env={}).unmeasured
    assert not NvmlMeter(FakeNvml(), env={"CUDA_VISIBLE_DEVICES": ""}).unmeasured
    assert not NvmlMeter(FakeNvml(init="no"), env={}).unmeasured
    assert not NvmlMeter(FakeNvml(), env={}).unmeasured


def test_a_driver_too_old_for_a_question_is_no_error() -> None:
    """As pynvml puts it: an exception of its own, outside its family."""

    class Mismatch(Exception):
        pass

    class Old(FakeNvml):
        NVMLLibraryMismatchError = Mismatch

        def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[Any]:
            raise Mismatch("use a versioned function")

    assert NvmlMeter(Old(), env={}).process_bytes(7) == (None, "memory by process: use a versioned function")
