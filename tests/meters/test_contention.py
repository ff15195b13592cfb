"""Contention on recorded /proc texts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.meters.contention import codes, contention, thread_warning
from harness.meters.sampler import Sampler, Snapshot, parse_psi, parse_stat

SECOND = 1_000_000_000
STAT = """cpu  57917 0 3722 61976 294 0 96 51 0 0
cpu0 27792 0 1729 32272 155 0 49 26 0 0
cpu1 30125 0 1993 29704 138 0 47 25 0 0
intr 284795 0 0 0
ctxt 325013
"""
QUIET = Snapshot(0, busy_s=100.0, steal_s=1.0, own_s=10.0, psi_some_us=0, wait_s={"7": 0.0}, switched=3)


def after(wall_s: float, own: float = 0.0, other: float = 0.0, steal: float = 0.0, psi_s: float = 0.0) -> Snapshot:
    """QUIET ``wall_s`` later, with that many seconds spent."""
    return replace(
        QUIET,
        t_ns=int(wall_s * SECOND),
        busy_s=100.0 + own + other,
        steal_s=1.0 + steal,
        own_s=10.0 + own,
        psi_some_us=int(psi_s * 1e6),
    )


def test_parse_stat() -> None:
    # 57917 + 0 + 3722 + 0 + 96; idle, iowait and steal apart.
    assert parse_stat(STAT) == (61735, 51)
    assert parse_stat(STAT, frozenset({1})) == (30125 + 1993 + 47, 25)
    # A CPU without a line: the container has its own numbering, so the line of all counts.
    assert parse_stat(STAT, frozenset({40, 41})) == (61735, 51)
    assert parse_stat("") == (None, None) and parse_stat("cpu  1 2 3 4\n") == (None, None)


def test_parse_psi() -> None:
    both = "some avg10=2.72 avg60=2.10 avg300=14.41 total=138143829\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
    assert parse_psi(both) == 138143829
    assert parse_psi("") is None


def test_shares_by_hand() -> None:
    # 10 s on 2 CPUs: 18 s ours, 1 s of others, 0.4 s stolen, 0.3 s of waiting.
    seen = contention(QUIET, after(10, own=18, other=1, steal=0.4, psi_s=0.3), n_cpus=2, threads=2)
    assert seen["wall_s"] == 10.0
    assert seen["other_share"] == pytest.approx(0.05) and seen["steal_share"] == pytest.approx(0.02)
    assert seen["psi_some_share"] == pytest.approx(0.03) and seen["own_share"] == pytest.approx(0.9)
    assert seen["wait_share"] == 0.0 and seen["switched"] == 0
    assert codes(seen) == ()


@pytest.mark.parametrize(
    ("end", "threads", "expected"),
    [
        (after(10, own=18, other=1.2), 2, ("contended",)),
        (after(10, own=18, steal=1.2), 2, ("contended",)),
        (after(10, own=18, psi_s=0.6), 2, ("contended",)),
        (after(10, own=18, psi_s=6.0), 3, ()),  # more threads than CPUs wait for each other
        (after(10, own=18, other=1.2), 3, ("contended",)),  # others' time counts all the same
        (after(0.1, own=0.18, other=0.02), 2, ()),  # 10%, but two ticks prove nothing
        (after(0.1, own=0.15, other=0.03), 2, ("contended",)),  # three do
        (replace(after(10, own=18), wait_s={"7": 0.6}), 2, ("contended",)),
        (replace(after(10, own=18), wait_s={"7": 0.2, "8": 0.4}), 2, ("contended",)),
        (replace(after(10, own=18), wait_s={"7": 0.2}), 2, ()),
    ],
)
def test_contended(end: Snapshot, threads: int, expected: tuple[str, ...]) -> None:
    assert codes(contention(QUIET, end, 2, threads)) == expected


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        ({"frequency_khz": 3e6}, {"frequency_khz": 2.6e6}, ("throttled",)),
        ({"frequency_khz": 3e6}, {"frequency_khz": 2.8e6}, ()),
        ({"frequency_khz": 1e6}, {"frequency_khz": 3e6}, ()),  # it woke up
        ({"temperature_c": 50.0}, {"temperature_c": 66.0}, ("throttled",)),
        ({"temperature_c": 50.0}, {"temperature_c": 60.0}, ()),
        ({"throttled": 4}, {"throttled": 5}, ("throttled",)),
        ({"throttled": 4}, {"throttled": 4}, ()),
    ],
)
def test_throttled(start: dict[str, float], end: dict[str, float], expected: tuple[str, ...]) -> None:
    seen = contention(replace(QUIET, **start), replace(after(10, own=18), **end), 2, 2)  # type: ignore[arg-type]
    assert codes(seen) == expected


def test_what_cannot_be_read_is_none_and_named() -> None:
    seen = contention(Snapshot(0), Snapshot(SECOND), 2, 2)
    assert seen["other_share"] is None and seen["psi_some_share"] is None and seen["steal_share"] is None
    assert {"other_share", "psi_some_share", "steal_share", "frequency_ratio"} <= set(seen["unread"])
    assert codes(seen) == ()


def test_an_empty_window_has_no_shares() -> None:
    assert contention(QUIET, QUIET, 2, 2)["other_share"] is None


@given(own=st.floats(0, 100), other=st.floats(0, 100), wall=st.floats(0.01, 1000))
def test_shares_are_never_negative(own: float, other: float, wall: float) -> None:
    seen = contention(QUIET, after(wall, own, other), 4, 4)
    assert seen["other_share"] >= 0 and seen["own_share"] >= -1e-9


def test_sampler_reads_a_made_up_root(tmp_path: Path) -> None:
    files = {
        "proc/stat": STAT,
        "proc/pressure/cpu": "some avg10=0.00 avg60=0.00 avg300=0.00 total=1234\n",
        "proc/42/stat": "42 (a (b) c) R 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0 1 0 0",
        "proc/42/task/42/schedstat": "97673 3000000000 2\n",
        "proc/42/task/43/schedstat": "1 500000000 2\n",
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": "3000000\n",
        "sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq": "2000000\n",
        "sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count": "17\n",
        "sys/class/thermal/thermal_zone0/type": "acpitz\n",
        "sys/class/thermal/thermal_zone0/temp": "20000\n",
        "sys/class/thermal/thermal_zone1/type": "x86_pkg_temp\n",
        "sys/class/thermal/thermal_zone1/temp": "61000\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    seen = Sampler(42, tmp_path).read()
    assert (seen.own_s, seen.psi_some_us, seen.wait_s) == (2.0, 1234, {"42": 3.0, "43": 0.5})
    assert (seen.frequency_khz, seen.throttled, seen.temperature_c) == (2_500_000, 17, 61.0)
    assert seen.busy_s is not None and seen.busy_s > 0


def test_sampler_without_anything_to_read(tmp_path: Path) -> None:
    seen = Sampler(42, tmp_path).read()
    assert (seen.busy_s, seen.own_s, seen.psi_some_us, seen.wait_s, seen.temperature_c) == (None,) * 5


def test_sampler_on_this_machine() -> None:
    sampler = Sampler()
    first, second = sampler.read(), sampler.read()
    assert second.t_ns > first.t_ns and second.own_s is not None and first.own_s is not None
    assert second.own_s > first.own_s
    assert sampler.n_cpus >= 1


def test_thread_warning() -> None:
    assert thread_warning(4, cpus=4) is None
    line = thread_warning(64, cpus=4)
    assert line is not None and "64 threads on 4 usable CPUs" in line and "\n" not in line
