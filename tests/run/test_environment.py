"""What the machine is."""

from __future__ import annotations

import getpass
import json
import platform
from pathlib import Path

import pytest

from harness.run import environment
from harness.run.clock import now_ns

CPUINFO = """processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 25
model\t\t: 17
model name\t: AMD EPYC 9654
stepping\t: 1
cpu MHz\t\t: 2400.000
flags\t\t: fpu avx avx2 hypervisor avx512f

processor\t: 1
model name\t: other
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    files = {
        "proc/cpuinfo": CPUINFO,
        "proc/meminfo": "MemTotal:       24731708 kB\n",
        "etc/os-release": 'NAME="Debian"\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n',
        "sys/devices/system/cpu/cpu0/cache/index0/level": "1\n",
        "sys/devices/system/cpu/cpu0/cache/index0/type": "Data\n",
        "sys/devices/system/cpu/cpu0/cache/index0/size": "48K\n",
        "sys/devices/system/cpu/cpu0/cache/index1/level": "1\n",
        "sys/devices/system/cpu/cpu0/cache/index1/type": "Instruction\n",
        "sys/devices/system/cpu/cpu0/cache/index1/size": "64K\n",
        "sys/devices/system/cpu/cpu0/cache/index3/level": "3\n",
        "sys/devices/system/cpu/cpu0/cache/index3/type": "Unified\n",
        "sys/devices/system/cpu/cpu0/cache/index3/size": "300M\n",
        "sys/devices/system/clocksource/clocksource0/available_clocksource": "tsc kvm-clock\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.skipif(platform.system() != "Linux", reason="reads Linux files")
def test_machine_from_files(root: Path) -> None:
    seen = environment.machine(root, gpus=[])
    assert seen["cpu"] == "AMD EPYC 9654 (family 25 model 17 stepping 1)"
    assert seen["ram_bytes"] == 24731708 * 1024 and seen["os"] == "Debian GNU/Linux 12 (bookworm)"
    assert seen["caches"] == {"L1d": 48 * 1024, "L3": 300 * 2**20}
    assert environment.last_level_cache(seen["caches"]) == 300 * 2**20
    assert seen["flags"] == ["avx", "avx2", "avx512f"]
    assert seen["virtual"] == "kvm" and seen["container"] is None and seen["governor"] is None
    assert seen["frequency"] == {"now_mhz": 2400.0, "max_mhz": None}
    json.dumps(seen, allow_nan=False)


def test_bare_metal_is_not_virtual(root: Path) -> None:
    assert environment.virtual(root, hypervisor=False) is None


def test_frequency_and_governor_where_shown(root: Path) -> None:
    folder = root / "sys/devices/system/cpu/cpu0/cpufreq"
    folder.mkdir()
    for name, text in {
        "scaling_governor": "performance",
        "scaling_cur_freq": "3100000",
        "cpuinfo_max_freq": "3700000",
    }.items():
        (folder / name).write_text(text + "\n")
    seen = environment.machine(root, gpus=[])
    assert seen["governor"] == "performance" and seen["frequency"] == {"now_mhz": 3100.0, "max_mhz": 3700.0}


def test_fingerprint_follows_hardware_not_packages(root: Path) -> None:
    seen = environment.machine(root, gpus=[])
    assert environment.fingerprint({**seen, "packages": {}, "python": "4"}) == seen["fingerprint"]
    assert environment.fingerprint({**seen, "ram_bytes": seen["ram_bytes"] + 2**20}) == seen["fingerprint"]
    gpu = {"name": "H100", "driver": "1"}
    changes: list[dict[str, object]] = [{"cpu": "x"}, {"cores": 99}, {"gpus": [gpu]}, {"flags": []}, {"kernel": "1"}]
    assert len({environment.fingerprint({**seen, **change}) for change in changes} | {seen["fingerprint"]}) == 6


def test_this_machine_names_nobody() -> None:
    seen = json.dumps(environment.machine())
    host = platform.node()
    assert not host or f'"{host}"' not in seen
    assert f'"{getpass.getuser()}"' not in seen and str(Path.home()) not in seen


def test_versions_without_importing() -> None:
    assert environment.versions(["numpy", "no-such-package-here"])["no-such-package-here"] is None
    assert environment.versions(["numpy"])["numpy"]


def test_clock_is_integer_and_never_goes_back() -> None:
    stamps = [now_ns() for _ in range(100)]
    assert all(isinstance(stamp, int) for stamp in stamps) and stamps == sorted(stamps)
