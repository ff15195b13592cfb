"""Pairing raw readings into windows."""

from __future__ import annotations

import json

from harness.meters import METERS, make
from harness.meters.base import RawReading, window
from harness.meters.fake import FakeMeter

RANGE = 262143328850
SECOND = 1_000_000_000


def reading(value: float | None, t_s: float = 0.0, **more: object) -> RawReading:
    return RawReading("package-0", "rapl", "uj", int(t_s * SECOND), value, **more)  # type: ignore[arg-type]


def test_window_keeps_raw_values_of_a_wrap() -> None:
    # The maths adds one range to a negative difference: 1671150 + 262143328850 - 262143000000 = 2,000,000 uJ = 2.0 J.
    pair = window([reading(262143000000, range=RANGE)], [reading(1671150, 1, range=RANGE, wraps=1)])[0]
    assert (pair["before"], pair["after"], pair["range"]) == (262143000000, 1671150, RANGE)
    assert pair["after"] + pair["range"] - pair["before"] == 2_000_000
    assert pair["window_s"] == 1.0 and pair["reason"] is None


def test_window_adds_ranges_that_the_ends_do_not_show() -> None:
    # 100 -> 50 (wrap) -> 120 in the middle of the window: the ends look like 20, the truth is 20 + one range.
    pair = window([reading(100, range=1000, wraps=4)], [reading(120, 60, range=1000, wraps=5)])[0]
    assert pair["after"] - pair["before"] == 1020
    # 900 -> wrap -> wrap -> 100: 100 + 2 x 1000 - 900.
    pair = window([reading(900, range=1000)], [reading(100, 60, range=1000, wraps=2)])[0]
    assert pair["after"] - pair["before"] == 1200


def test_failed_and_vanished_readings_carry_their_reason() -> None:
    failed = reading(None, 1, reason="counter_invalid", why="gone: no such file")
    pair = window([reading(5)], [failed])[0]
    assert pair["after"] is None and pair["reason"] == "counter_invalid" and "no such file" in pair["why"]
    pair = window([reading(5)], [])[0]
    assert (pair["after"], pair["window_s"], pair["reason"]) == (None, None, "counter_invalid")
    assert "vanished" in pair["why"]


def test_a_gap_long_enough_to_hide_a_wrap_is_invalid() -> None:
    pair = window([reading(5, range=RANGE, gaps=1)], [reading(6, 900, range=RANGE, gaps=2)])[0]
    assert pair["reason"] == "counter_invalid"
    # A gap before the window does not matter to it.
    assert window([reading(5, range=RANGE, gaps=1)], [reading(6, 9, range=RANGE, gaps=1)])[0]["reason"] is None


def test_bounds_and_reported_energy_are_differences() -> None:
    before = RawReading("cpu", "estimate:ccf-vcpu", "j", 0, 10.0, low=4.0, high=30.0)
    after = RawReading("cpu", "estimate:ccf-vcpu", "j", SECOND, 14.0, low=5.5, high=40.0)
    pair = window([before], [after])[0]
    assert (pair["low_j"], pair["high_j"], pair["reason"]) == (1.5, 10.0, None)
    pair = window([reading(1, power_j=100.0)], [reading(2, 1, power_j=250.0)])[0]
    assert pair["power_j"] == 150.0 and "power_j" not in window([reading(1)], [reading(2, 1)])[0]
    json.dumps(pair, allow_nan=False)


def test_fake_meter_replays_wraps_and_failures() -> None:
    meter = FakeMeter({"a": [900, 100, None]}, range=1000)
    first, second, third = meter.read()[0], meter.read()[0], meter.read()[0]
    assert (first.value, second.value, second.wraps, second.t_ns) == (900, 100, 1, SECOND)
    assert third.value is None and third.reason == "counter_invalid"


def test_every_listed_meter_that_needs_nothing_builds() -> None:
    for name in METERS:
        if name != "command":
            assert make(name).name == name


def test_windows_suit_the_maths() -> None:
    """What the meters hand out is what ``harness.metrics.energy`` understands."""
    from harness.metrics.energy import joules, total_joules

    wrapped = window([reading(262143000000, range=RANGE)], [reading(1671150, 1, range=RANGE, wraps=1)])
    assert total_joules(wrapped) == (2.0, None)
    # A package lost on the way voids the sum; it does not shrink it.
    lost = window([reading(5), reading(5)], [reading(7, 1), reading(7, 1)])
    other = RawReading("package-1", "rapl", "uj", 0, 5)
    lost += window([other], [])
    assert total_joules(lost) == (None, "counter_invalid")
    backwards = window([reading(5000)], [reading(4000, 1)])[0]
    assert joules(backwards) == (None, "counter_invalid")
    before = RawReading("cpu", "estimate:ccf-vcpu", "j", 0, 10.0, low=4.0, high=30.0)
    after = RawReading("cpu", "estimate:ccf-vcpu", "j", SECOND, 14.0, low=5.5, high=40.0)
    assert total_joules(window([before], [after])) == (4.0, None)
