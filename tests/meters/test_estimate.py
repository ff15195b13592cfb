"""The labelled estimate."""

from __future__ import annotations

import os
import subprocess

import pytest

from harness.meters.base import window
from harness.meters.estimate import EstimateMeter, joules, process_cpu_s

SECOND = 1_000_000_000


def test_linear_model_by_hand() -> None:
    # Two vCPUs for 10 s, fully ours: 2 x 3.5 W x 10 s = 70 J; idle: 2 x 0.74 x 10 = 14.8 J.
    assert joules((0.74, 3.5), 2, 10.0, 20.0) == pytest.approx(70.0)
    assert joules((0.74, 3.5), 2, 10.0, 0.0) == pytest.approx(14.8)


def test_window_is_labelled_and_bounded() -> None:
    times = iter([0, 5 * SECOND, 15 * SECOND])
    cpu = iter([3.0, 3.0, 23.0])
    meter = EstimateMeter(why="no counter: KVM", n_cpus=2, clock=lambda: next(times), cpu_s=lambda: next(cpu))
    pair = window(meter.read(), meter.read())[0]
    assert pair["method"] == "estimate:ccf-vcpu" and pair["reason"] is None
    assert pair["unit"] == "j" and pair["why"] == "no counter: KVM" and tuple(meter.domains) == ("cpu",)
    assert pair["after"] - pair["before"] == pytest.approx(70.0)
    assert pair["low_j"] == pytest.approx(2 * 1.69 * 10) and pair["high_j"] == pytest.approx(2 * 8.58 * 10)
    assert meter.idle_w == pytest.approx(1.48)


def test_process_that_is_gone_gives_none() -> None:
    def gone() -> float:
        raise FileNotFoundError(2, "No such file or directory")

    meter = EstimateMeter(n_cpus=1, cpu_s=gone)
    reading = meter.read()[0]
    assert reading.value is None and reading.reason == "counter_invalid" and "No such file" in reading.why


def test_cpu_time_of_this_and_of_another_process() -> None:
    first = process_cpu_s()
    assert sum(range(200_000)) and process_cpu_s(os.getpid()) > first > 0
    if not os.path.exists("/proc/self/stat"):
        pytest.skip("no /proc")
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    try:
        assert 0 <= process_cpu_s(child.pid) < 60
    finally:
        child.communicate()
    with pytest.raises(OSError):
        process_cpu_s(child.pid)
