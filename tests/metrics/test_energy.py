"""Joules from counters, every number worked by hand."""

from __future__ import annotations

from typing import Any

import pytest

from harness.metrics.energy import EnergyTrial, disagreement, estimated_figures, joules, total_joules
from harness.metrics.request import Trial
from harness.record import Event, RequestRecord

RANGE = 262143328850


def rapl(
    before: int | None, after: int | None, limit: int | None = RANGE, domain: str = "rapl:package-0", **more: Any
) -> dict[str, Any]:
    return {
        "domain": domain,
        "method": "rapl",
        "unit": "uj",
        "before": before,
        "after": after,
        "range": limit,
        "window_s": 1.0,
        "reason": None,
        **more,
    }


def nvml(before: int, after: int, window: float = 10.0) -> dict[str, Any]:
    return {
        "domain": "gpu:GPU-1",
        "method": "nvml",
        "unit": "mj",
        "before": before,
        "after": after,
        "range": None,
        "window_s": window,
        "reason": None,
    }


def estimate(low: float, high: float) -> dict[str, Any]:
    return {
        "domain": "cpu",
        "method": "estimate:ccf-vcpu",
        "unit": "j",
        "before": None,
        "after": None,
        "range": None,
        "window_s": 1.0,
        "low_j": low,
        "high_j": high,
        "reason": None,
    }


def summed(window: float, power_j: float | None) -> dict[str, Any]:
    """A counter of 327 W beside the energy by the reported power."""
    return {**nvml(0, round(327_000 * window), window), "power_j": power_j}


def row(tokens: int, *readings: dict[str, Any], block: int = 0, codes: tuple[str, ...] = ()) -> EnergyTrial:
    record = RequestRecord(0, (Event(10, 1, 1), Event(20, tokens - 1, 1)), 10, tokens, codes=codes)
    return EnergyTrial(Trial(block, 0, 10, record), readings)


class TestJoules:
    def test_wrap_adds_the_range(self) -> None:
        assert joules(rapl(262143000000, 1671150)) == (pytest.approx(2.0, abs=1e-12), None)

    def test_wrap_without_a_range_is_invalid(self) -> None:
        assert joules(rapl(262143000000, 1671150, None)) == (None, "counter_invalid")

    def test_range_that_does_not_explain_it(self) -> None:
        assert joules(rapl(RANGE + 10, 5)) == (None, "counter_invalid")

    @pytest.mark.parametrize(
        ("method", "unit"), [("nvml", "mj"), ("zeus", "mj"), ("nvml-power", "j"), ("zeus-power", "j")]
    )
    def test_a_leap_that_no_device_could_draw_is_invalid(self, method: str, unit: str) -> None:
        watt_s = {"mj": 1000, "j": 1}[unit]
        leap = {**nvml(5, 5 + 10_001 * 10 * watt_s), "method": method, "unit": unit}
        assert joules(leap) == (None, "counter_invalid")
        assert joules({**leap, "after": 5 + 9_999 * 10 * watt_s})[0] == pytest.approx(99_990)

    def test_a_meter_of_ones_own_may_see_a_whole_hall(self) -> None:
        hall = {**nvml(0, 900_000 * 10), "method": "command", "unit": "j"}
        assert joules(hall) == (9e6, None)

    def test_gpu_counter_that_went_back_was_reset(self) -> None:
        assert joules(nvml(5000, 100)) == (None, "counter_invalid")

    def test_a_package_counter_that_was_reset_did_not_wrap(self) -> None:
        # 200 kJ -> 0 looks like a wrap of 62 kJ: within a second, 62 kW.
        assert joules(rapl(200_000_000_000, 0)) == (None, "counter_invalid")
        assert joules(rapl(200_000_000_000, 0, window_s=100.0))[0] == pytest.approx(62143.32885)

    def test_the_readings_own_resolution_decides(self) -> None:
        assert joules({**nvml(0, 5000, 2.9), "resolution_s": 1.0}) == (None, "below_resolution")
        assert joules({**nvml(0, 5000, 3.0), "resolution_s": 1.0}) == (5.0, None)

    def test_no_change_is_below_resolution_not_zero(self) -> None:
        assert joules(nvml(123456000, 123456000, 0.03)) == (None, "below_resolution")
        assert joules(nvml(123456000, 123456001, 0.03)) == (None, "below_resolution")

    def test_unreadable_counter_keeps_its_reason(self) -> None:
        assert joules(rapl(None, None, reason="no_counter")) == (None, "no_counter")
        assert joules(rapl(None, 5)) == (None, "not_measured")


class TestRequest:
    def test_packages_memory_and_gpu_add_up_but_parts_of_them_do_not(self) -> None:
        readings = [
            rapl(0, 5_000_000),
            rapl(0, 1_000_000, domain="rapl:dram"),
            rapl(0, 9_000_000, domain="rapl:psys"),
            rapl(0, 3_000_000, domain="rapl:core"),
            nvml(0, 4000),
        ]
        assert total_joules(readings) == (pytest.approx(10.0), None)

    def test_a_part_missing_voids_the_sum(self) -> None:
        assert total_joules([rapl(0, 5_000_000), nvml(9, 1)]) == (None, "counter_invalid")

    def test_an_estimate_never_tops_up_a_counter(self) -> None:
        assert total_joules([nvml(0, 4000), estimate(10, 30)]) == (pytest.approx(4.0), None)
        assert total_joules([rapl(None, None, reason="no_counter"), estimate(10, 30)]) == (20.0, None)

    def test_nothing_readable(self) -> None:
        assert total_joules([]) == (None, "no_counter")


class TestDoubt:
    @pytest.mark.parametrize(
        ("window", "power_j", "doubted"),
        [
            (10.0, 1870.0, True),  # 187 W reported
            (10.0, 3000.0, False),
            (10.0, 5000.0, True),
            (2.0, 374.0, False),  # hardly longer than what the device averages over
            (10.0, None, False),
        ],
    )
    def test_a_counter_that_disagrees_with_the_power_reported_beside_it(
        self, window: float, power_j: float | None, doubted: bool
    ) -> None:
        said = disagreement([rapl(0, 5_000_000), summed(window, power_j)])
        watts = round((power_j or 0) / window)
        assert said == (f"gpu:GPU-1: its counter says 327 W, the device reports {watts} W" if doubted else None)


class TestEstimates:
    def test_an_estimate_is_shown_with_its_own_interval_and_never_ranks(self) -> None:
        figures = estimated_figures([row(10, estimate(10, 30)), row(10, estimate(10, 30))], idle_w=5.0)
        figure, net = figures["energy_j_per_token"], figures["energy_net_j_per_token"]
        assert (figure.value, figure.low, figure.high) == (2.0, 1.0, 3.0)
        assert figure.reasons == ("estimated_energy",) and not figure.ranks
        # 40 J less 5 W over twice 1 s, over 20 tokens.
        assert (net.value, net.low, net.high, net.reasons) == (1.5, None, None, ("estimated_energy",))

    def test_net_without_idle_power(self) -> None:
        assert estimated_figures([row(60, estimate(1, 3))])["energy_net_j_per_token"].reasons == ("not_measured",)

    def test_unreadable_everywhere_is_none_with_the_reason(self) -> None:
        figure = estimated_figures([row(10, rapl(None, None, reason="no_counter"))])["energy_j_per_token"]
        assert figure.value is None and figure.reasons == ("no_counter",)
        assert estimated_figures([])["energy_j_per_token"].value is None

    def test_failed_requests_spend_no_counted_energy(self) -> None:
        rows = [row(10, estimate(10, 30), block=0), row(10, estimate(900, 999), block=1, codes=("error",))]
        assert estimated_figures(rows)["energy_j_per_token"].value == pytest.approx(2.0)
