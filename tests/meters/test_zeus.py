"""Zeus's device layer, as far as the meter uses it, on stand-ins."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from harness.meters.base import window
from harness.meters.zeus import ZeusMeter
from harness.metrics.energy import total_joules


class Tick:
    """A clock that only moves when told, seconds."""

    s = 100.0

    def __call__(self) -> int:
        return round(self.s * 1e9)


class AMDGPUs:
    """GPUs by index: a counter in millijoules, or None for one that has only power (watts)."""

    def __init__(self, *counters: int | None, watts: float | None = 200.0, odd: bool = False) -> None:
        self.counters: list[int | None] = list(counters)
        self.watts = watts
        self.gpus = [SimpleNamespace(_is_dual_die_odd_chiplet=odd and index % 2 == 1) for index in range(len(counters))]

    def get_name(self, index: int) -> str:
        return "MI300X"

    def supports_get_total_energy_consumption(self, index: int) -> bool:
        return self.counters[index] is not None

    def get_total_energy_consumption(self, index: int) -> int:
        found = self.counters[index]
        if found is None:
            raise OSError("not supported")
        return found

    def get_instant_power_usage(self, index: int) -> int:
        raise OSError("no instant power")

    def get_average_power_usage(self, index: int) -> int:
        if self.watts is None:
            raise OSError("no power")
        return round(self.watts * 1000)


def device(gpus: Any = None, soc: Any = None) -> Any:
    def given(value: Any, why: str) -> Any:
        def get() -> Any:
            if value is None:
                raise RuntimeError(why)
            return value

        return get

    return SimpleNamespace(get_gpus=given(gpus, "no GPU library"), get_soc=given(soc, "no SoC"))


def test_amd_counters_in_millijoules() -> None:
    gpus, clock = AMDGPUs(5_000, 7_000), Tick()
    meter = ZeusMeter(device(gpus), clock)
    assert meter.domains == dict.fromkeys(("gpu:0", "gpu:1"), "MI300X, the whole board") and meter.method == "zeus"
    before = meter.read()
    clock.s, gpus.counters = 105.0, [9_000, 13_000]
    assert total_joules(window(before, meter.read())) == (10.0, None)
    gpus.counters = [10, 13_000]  # reset
    assert total_joules(window(before, meter.read())) == (None, "counter_invalid")


def test_power_is_summed_up_where_a_counter_is_not_to_be_trusted() -> None:
    gpus, clock = AMDGPUs(None), Tick()
    meter = ZeusMeter(device(gpus), clock)
    assert meter.method == "zeus-power"
    before = meter.read()
    for _ in range(20):
        clock.s += 0.05
        meter.poll()
    pair = window(before, meter.read())[0]
    assert (pair["method"], pair["unit"]) == ("zeus-power", "j") and total_joules([pair])[0] == pytest.approx(200.0)
    gpus.watts = None
    assert window(before, meter.read())[0]["reason"] == "counter_invalid"


def test_the_second_half_of_a_dual_die_gpu_is_in_the_first() -> None:
    assert tuple(ZeusMeter(device(AMDGPUs(5, None, 7, None, odd=True)), Tick()).domains) == ("gpu:0", "gpu:2")


def test_a_gpu_that_tells_nothing_voids_the_others() -> None:
    meter = ZeusMeter(device(AMDGPUs(5, None, watts=None)), Tick())
    assert not meter.domains and not meter.read() and "GPU 1 (MI300X)" in meter.why


def test_apple_counts_wholes_and_no_parts_of_them() -> None:
    told = SimpleNamespace(
        cpu_total_mj=100, performance_cores_mj=[40, 40], gpu_mj=50, gpu_sram_mj=5, dram_mj=10, ane_mj=0
    )
    clock = Tick()
    meter = ZeusMeter(device(soc=SimpleNamespace(get_total_energy_consumption=lambda: told)), clock)
    assert meter.domains == {"soc": "processor cores, GPU, memory, neural engine"}
    before = meter.read()
    clock.s = 105.0
    told = SimpleNamespace(
        cpu_total_mj=1100, performance_cores_mj=[900, 40], gpu_mj=2050, gpu_sram_mj=9, dram_mj=510, ane_mj=0
    )
    assert total_joules(window(before, meter.read())) == (pytest.approx(3.5), None)
    told = SimpleNamespace(cpu_total_mj=None)
    (pair,) = window(before, meter.read())
    assert pair["reason"] == "counter_invalid" and "tells no cpu_total_mj any more" in pair["why"]


def test_a_jetson_board_is_counted_once() -> None:
    told = SimpleNamespace(cpu_energy_mj=10.0, gpu_energy_mj=20.0, total_energy_mj=90.0)
    soc = SimpleNamespace(get_total_energy_consumption=lambda: told)
    assert ZeusMeter(device(soc=soc), Tick()).domains == {"soc": "the whole board"}
    told.total_energy_mj = None
    assert ZeusMeter(device(soc=soc), Tick()).domains == {"soc": "processor cores, GPU"}


def test_nvidia_is_left_to_nvml_and_nothing_gives_the_reasons() -> None:
    nvidia = type("NVIDIAGPUs", (AMDGPUs,), {})(5)
    meter = ZeusMeter(device(nvidia), Tick())
    assert not meter.domains and "read through NVML" in meter.why
    meter = ZeusMeter(device(), Tick())
    assert not meter.domains and "no SoC" in meter.why and "no GPU library" in meter.why


def test_without_zeus_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zeus", None)
    monkeypatch.setitem(sys.modules, "zeus.device", None)
    assert "pip install 'variant-harness[zeus]'" in ZeusMeter().why


def test_what_zeus_raises_is_a_reason_wherever_it_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    class Torn(AMDGPUs):
        def supports_get_total_energy_consumption(self, index: int) -> bool:
            raise RuntimeError("amdsmi is gone")

    meter = ZeusMeter(device(Torn(5, watts=None)), Tick())
    assert not meter.domains and "neither an energy counter nor a power" in meter.why
    monkeypatch.setitem(sys.modules, "zeus", None)

    def broken(name: str) -> Any:
        raise OSError("libamd_smi.so: cannot open")

    monkeypatch.setattr("importlib.import_module", broken)
    assert "libamd_smi.so" in ZeusMeter().why


@pytest.mark.parametrize("milliwatts", [float("nan"), float("inf"), -5.0, "much"])
def test_a_power_that_is_none_leaves_no_domain(milliwatts: Any) -> None:
    gpus = AMDGPUs(None)
    gpus.get_average_power_usage = lambda index: milliwatts  # type: ignore[method-assign]
    assert not ZeusMeter(device(gpus), Tick()).domains


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -5.0, "much", None])
def test_a_counter_that_is_no_number_voids_the_window(value: Any) -> None:
    gpus, clock = AMDGPUs(5_000), Tick()
    meter = ZeusMeter(device(gpus), clock)
    before = meter.read()
    clock.s = 105.0
    gpus.get_total_energy_consumption = lambda index: value  # type: ignore[method-assign]
    assert total_joules(window(before, meter.read())) == (None, "counter_invalid")
    told = SimpleNamespace(total_energy_mj=10.0)
    meter = ZeusMeter(device(soc=SimpleNamespace(get_total_energy_consumption=lambda: told)), clock)
    before = meter.read()
    clock.s, told.total_energy_mj = 110.0, value
    assert total_joules(window(before, meter.read())) == (None, "counter_invalid")
