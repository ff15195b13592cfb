"""Joules from counters, every number worked by hand."""

from __future__ import annotations

from typing import Any

import pytest

from harness.metrics.energy import EnergyTrial, energy_figures, joules, request_joules
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

    def test_gpu_counter_that_went_back_was_reset(self) -> None:
        assert joules(nvml(5000, 100)) == (None, "counter_invalid")

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
        assert request_joules(readings) == (pytest.approx(10.0), None)

    def test_a_part_missing_voids_the_sum(self) -> None:
        assert request_joules([rapl(0, 5_000_000), nvml(9, 1)]) == (None, "counter_invalid")

    def test_an_estimate_never_tops_up_a_counter(self) -> None:
        assert request_joules([nvml(0, 4000), estimate(10, 30)]) == (pytest.approx(4.0), None)
        assert request_joules([rapl(None, None, reason="no_counter"), estimate(10, 30)]) == (20.0, None)

    def test_nothing_readable(self) -> None:
        assert request_joules([]) == (None, "no_counter")


class TestFigures:
    def test_nvml_millijoules(self) -> None:
        figure = energy_figures([row(60, nvml(123456000, 123486000))])["energy_j_per_token"]
        assert figure.value == pytest.approx(0.5)
        assert figure.ranks and figure.conditions["scope"] == ["gpu:GPU-1"]

    def test_gross_and_net_of_the_generation_window_only(self) -> None:
        # Loading (20 s at 150 W) lies outside the window: with it, gross would read 11.
        figures = energy_figures([row(500, nvml(3_000_000, 5_500_000, 10.0))], idle_w=50.0)
        assert figures["energy_j_per_token"].value == pytest.approx(5.0)
        assert figures["energy_net_j_per_token"].value == pytest.approx(4.0)

    def test_net_without_idle_power(self) -> None:
        assert energy_figures([row(60, nvml(0, 30000))])["energy_net_j_per_token"].reasons == ("not_measured",)

    def test_pooled_with_an_interval_over_blocks(self) -> None:
        rows = [row(100, nvml(0, 40000), block=0), row(100, nvml(0, 60000), block=1)]
        figure = energy_figures(rows)["energy_j_per_token"]
        # SE = sqrt(2/1 x (10² + 10²)) / 200 = 0.1; t(1) = 12.706
        assert figure.value == pytest.approx(0.5)
        assert figure.high == pytest.approx(0.5 + 1.2706205, abs=1e-6)

    def test_an_estimate_is_shown_with_its_own_interval_and_never_ranks(self) -> None:
        figure = energy_figures([row(10, estimate(10, 30)), row(10, estimate(10, 30))])["energy_j_per_token"]
        assert (figure.value, figure.low, figure.high) == (2.0, 1.0, 3.0)
        assert figure.reasons == ("estimated_energy",) and not figure.ranks

    def test_unreadable_everywhere_is_none_with_the_reason(self) -> None:
        figure = energy_figures([row(10, rapl(None, None, reason="no_counter"))])["energy_j_per_token"]
        assert figure.value is None and figure.reasons == ("no_counter",)
        assert energy_figures([])["energy_j_per_token"].value is None

    def test_too_short_windows_are_none(self) -> None:
        figure = energy_figures([row(10, nvml(5, 5, 0.03))])["energy_j_per_token"]
        assert figure.reasons == ("below_resolution",)

    def test_failed_requests_spend_no_counted_energy(self) -> None:
        rows = [row(100, nvml(0, 50000), block=0), row(100, nvml(0, 990000), block=1, codes=("error",))]
        assert energy_figures(rows)["energy_j_per_token"].value == pytest.approx(0.5)

    @pytest.mark.parametrize(
        ("powers", "window", "doubted"),
        [
            ([187.0, 187.0], 10.0, True),  # 327 W by the counter
            ([300.0, 340.0], 10.0, False),
            ([70.0, 300.0], 10.0, False),  # it was idle at the start
            ([187.0, 187.0], 1.0, False),  # shorter than what the device averages over
            (None, 10.0, False),
        ],
    )
    def test_a_counter_that_disagrees_with_the_power_reported_beside_it_is_doubted(
        self, powers: list[float] | None, window: float, doubted: bool
    ) -> None:
        reading = {**nvml(0, round(327_000 * window), window), **({"power_range_w": powers} if powers else {})}
        figure = energy_figures([row(60, reading)])["energy_j_per_token"]
        said = figure.conditions.get("disagreement")
        assert said == ("gpu:GPU-1: its counter says 327 W, the device reports 187 W" if doubted else None)
        assert figure.value is not None
