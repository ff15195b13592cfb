"""Limits of control groups, and memory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.meters import memory
from harness.meters.cpus import Cgroup, affinity, effective_cpus
from harness.meters.files import number, text

GIB = 2**30


def write(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return root


def test_cgroup_v2_takes_the_tightest_ancestor(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/a/b\n",
            "sys/fs/cgroup/a/cpu.max": "150000 100000\n",
            "sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
            "sys/fs/cgroup/a/memory.max": f"{4 * GIB}\n",
            "sys/fs/cgroup/a/b/memory.max": "max\n",
        },
    )
    assert Cgroup(root).cpus() == 1.5 and Cgroup(root).memory_bytes() == 4 * GIB
    assert effective_cpus(root) == 1


def test_cgroup_v2_as_a_container_sees_it(tmp_path: Path) -> None:
    root = write(tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "50000 100000\n"})
    assert Cgroup(root).cpus() == 0.5 and effective_cpus(root) == 1


def test_cgroup_v1(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/box\n1:cpu,cpuacct:/box\n0::/\n",
            "sys/fs/cgroup/cpu/box/cpu.cfs_quota_us": "200000\n",
            "sys/fs/cgroup/cpu/box/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/memory/box/memory.limit_in_bytes": f"{GIB}\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        },
    )
    assert Cgroup(root).cpus() == 2.0 and Cgroup(root).memory_bytes() == GIB


def test_no_limit(tmp_path: Path) -> None:
    assert Cgroup(tmp_path).cpus() is None and Cgroup(tmp_path).memory_bytes() is None
    allowed = affinity()
    assert effective_cpus(tmp_path) == (len(allowed) if allowed else os.cpu_count())


def test_peak_of_a_recorded_process(tmp_path: Path) -> None:
    status = "Name:\tcat\nVmPeak:\t    3060 kB\nVmHWM:\t    1708 kB\nVmRSS:\t    1604 kB\n"
    root = write(tmp_path, {"9/status": status, "meminfo": "MemTotal: 2048 kB\nMemFree: 1 kB\nMemAvailable: 1024 kB\n"})
    assert memory.peak_rss_bytes(9, root) == 1708 * 1024 and memory.rss_bytes(9, root) == 1604 * 1024
    assert memory.peak_rss_bytes(10, root) is None
    assert memory.total_bytes(root) == 2 * 2**20
    assert memory.available_bytes(root, Cgroup(tmp_path)) == 2**20


def test_available_memory_respects_the_control_group(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/\n",
            "sys/fs/cgroup/memory.max": f"{3 * GIB}\n",
            "proc/meminfo": "MemTotal: 67108864 kB\nMemAvailable: 33554432 kB\n",
            "proc/self/status": "VmRSS:\t 1048576 kB\n",
        },
    )
    assert memory.available_bytes(root / "proc", Cgroup(root)) == 2 * GIB


def test_peak_falls_back_to_getrusage(tmp_path: Path) -> None:
    peak = memory.peak_rss_bytes(None, tmp_path)
    assert peak is not None and 2**20 < peak < 2**40


def test_peak_follows_allocation_and_reset() -> None:
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("no /proc/self/clear_refs")
    block = bytearray(b"\1" * (64 << 20))
    high = memory.peak_rss_bytes()
    del block
    if not memory.reset_peak():
        pytest.skip("the kernel refuses to reset the peak")
    low = memory.peak_rss_bytes()
    assert high is not None and low is not None and high - low > 48 << 20


def test_reset_is_refused_for_a_process_that_is_gone(tmp_path: Path) -> None:
    assert memory.reset_peak(9, tmp_path) is False


def test_files(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("12\n")
    (tmp_path / "b").write_text("-\n")
    assert (number(tmp_path / "a"), number(tmp_path / "b"), number(tmp_path / "c"), number(None)) == (12, *[None] * 3)
    assert text(tmp_path) == ""  # a folder
