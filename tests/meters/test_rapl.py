"""RAPL on made-up powercap trees."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.meters.base import window
from harness.meters.rapl import RaplMeter

RANGE = 262143328850


class Tick:
    """A clock that only moves when told."""

    def __init__(self) -> None:
        self.ns = 0

    def __call__(self) -> int:
        return self.ns


def zone(root: Path, path: str, name: str, energy: int, range_uj: int | None = RANGE) -> Path:
    folder = root / path
    folder.mkdir(parents=True)
    (folder / "name").write_text(name + "\n")
    (folder / "energy_uj").write_text(f"{energy}\n")
    if range_uj is not None:
        (folder / "max_energy_range_uj").write_text(f"{range_uj}\n")
    return folder


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A server as the kernel shows it: two sockets, parts of one, psys, and the same packages again over MMIO."""
    (tmp_path / "intel-rapl").mkdir()
    zone(tmp_path, "intel-rapl:0", "package-0", 1000)
    zone(tmp_path, "intel-rapl:0/intel-rapl:0:0", "core", 400)
    zone(tmp_path, "intel-rapl:0/intel-rapl:0:1", "dram", 70, 65712999613)
    zone(tmp_path, "intel-rapl:1", "package-1", 2000)
    zone(tmp_path, "intel-rapl:2", "psys", 9000)
    zone(tmp_path, "intel-rapl-mmio:0", "package-0", 5)
    return tmp_path


def test_packages_and_dram_once_and_never_psys(tree: Path) -> None:
    meter = RaplMeter(tree)
    assert tuple(meter.domains) == (
        "package-0",
        "dram-0",
        "package-1",
    )
    assert [(r.value, r.range) for r in meter.read()] == [(1000, RANGE), (70, 65712999613), (2000, RANGE)]
    assert meter.why == ""


def test_subzones_listed_flat_are_not_counted_twice(tmp_path: Path) -> None:
    # /sys/class/powercap also links every subzone at its top.
    zone(tmp_path, "intel-rapl:0", "package-0", 1000)
    zone(tmp_path, "intel-rapl:0:0", "dram", 70)
    assert tuple(RaplMeter(tmp_path).domains) == ("package-0", "dram-0")


def test_mirrored_dies_count_once_and_different_dies_each(tmp_path: Path) -> None:
    zone(tmp_path, "intel-rapl:0", "package-0-die-0", 123_456_789)
    zone(tmp_path, "intel-rapl:1", "package-0-die-1", 123_456_900)
    zone(tmp_path, "intel-rapl:2", "package-1-die-0", 123_456_800)
    assert tuple(RaplMeter(tmp_path).domains) == ("package-0-die-0", "package-1-die-0")
    other = tmp_path / "other"
    zone(other, "intel-rapl:0", "package-0-die-0", 123_456_789)
    zone(other, "intel-rapl:1", "package-0-die-1", 987_654_321)
    assert tuple(RaplMeter(other).domains) == ("package-0-die-0", "package-0-die-1")


def test_wrap_inside_a_window(tmp_path: Path) -> None:
    folder = zone(tmp_path, "intel-rapl:0", "package-0", 262143000000)
    meter = RaplMeter(tmp_path)
    before = meter.read()
    (folder / "energy_uj").write_text("1671150")
    pair = window(before, meter.read())[0]
    assert pair["after"] + pair["range"] - pair["before"] == 2_000_000 and pair["reason"] is None


def test_polls_find_wraps_that_the_ends_hide(tmp_path: Path) -> None:
    folder = zone(tmp_path, "intel-rapl:0", "package-0", 100, 1000)
    meter = RaplMeter(tmp_path, Tick())
    before = meter.read()
    for value in (900, 50):
        (folder / "energy_uj").write_text(str(value))
        meter.poll()
    (folder / "energy_uj").write_text("120")
    pair = window(before, meter.read())[0]
    assert pair["after"] - pair["before"] == 1020


def test_missing_range_is_none_and_backwards_shows(tmp_path: Path) -> None:
    folder = zone(tmp_path, "intel-rapl:0", "package-0", 5000, None)
    meter = RaplMeter(tmp_path)
    before = meter.read()
    (folder / "energy_uj").write_text("4000")
    pair = window(before, meter.read())[0]
    # Left as it is for the maths, which has no range to add and calls it counter_invalid.
    assert (pair["before"], pair["after"], pair["range"]) == (5000, 4000, None)


def test_a_window_too_long_without_a_poll_is_invalid(tmp_path: Path) -> None:
    zone(tmp_path, "intel-rapl:0", "package-0", 5000, 65_000_000_000)  # 65 kJ: 65 s at 1 kW
    clock = Tick()
    meter = RaplMeter(tmp_path, clock)
    before = meter.read()
    clock.ns = 64_000_000_000
    meter.poll()
    clock.ns = 120_000_000_000
    assert window(before, meter.read())[0]["reason"] is None
    before = meter.read()
    clock.ns += 66_000_000_000
    assert window(before, meter.read())[0]["reason"] == "counter_invalid"


def test_root_only_counter_names_the_remedy(tree: Path) -> None:
    def refuse(path: Path) -> str:
        if path.name == "energy_uj":
            raise PermissionError(13, "Permission denied")
        return path.read_text()

    meter = RaplMeter(tree, read_text=refuse)
    assert not meter.domains and meter.read() == []
    assert "only root may read it" in meter.why and "sudo chmod" in meter.why


def test_counter_that_vanishes_gives_none_not_zero(tmp_path: Path) -> None:
    folder = zone(tmp_path, "intel-rapl:0", "package-0", 5000)
    meter = RaplMeter(tmp_path)
    before = meter.read()
    (folder / "energy_uj").unlink()
    pair = window(before, meter.read())[0]
    assert pair["after"] is None and pair["reason"] == "counter_invalid" and "No such file" in pair["why"]


def test_one_unreadable_package_voids_the_others_and_dram_does_not(tree: Path) -> None:
    def refuse(where: str) -> RaplMeter:
        def read(path: Path) -> str:
            if path == tree / where / "energy_uj":
                raise PermissionError(13, "Permission denied")
            return path.read_text()

        return RaplMeter(tree, read_text=read)

    assert refuse("intel-rapl:1").domains == {} and "intel-rapl:1" in refuse("intel-rapl:1").why
    meter = refuse("intel-rapl:0/intel-rapl:0:1")
    assert (
        tuple(meter.domains)
        == (
            "package-0",
            "package-1",
        )
        and "intel-rapl:0:1" in meter.why
    )


def test_garbage_is_not_a_counter(tmp_path: Path) -> None:
    folder = zone(tmp_path, "intel-rapl:0", "package-0", 0)
    (folder / "energy_uj").write_text("")
    assert not RaplMeter(tmp_path).domains


@pytest.mark.parametrize("make", [False, True])
def test_no_powercap_says_so(tmp_path: Path, make: bool) -> None:
    root = tmp_path / "powercap"
    if make:
        root.mkdir()
    meter = RaplMeter(root)
    assert not meter.domains and ("no intel-rapl" if make else "is missing") in meter.why


def test_amd_has_packages_and_no_memory(tmp_path: Path) -> None:
    """Two EPYC sockets as powercap shows them: the same driver name, core as the only part."""
    for socket in (0, 1):
        zone(tmp_path, f"intel-rapl:{socket}", f"package-{socket}", 1000 + socket, 65532610987)
        zone(tmp_path, f"intel-rapl:{socket}/intel-rapl:{socket}:0", "core", 400, 65532610987)
    meter = RaplMeter(tmp_path)
    assert meter.domains == {"package-0": "processor package-0", "package-1": "processor package-1"}
    assert meter.why == "" and [r.resolution_s for r in meter.read()] == [0.001, 0.001]


def monitor(root: Path, **counters: int) -> Path:
    """The folder of the old amd_energy driver."""
    folder = root / "hwmon2"
    folder.mkdir(parents=True)
    (folder / "name").write_text("amd_energy\n")
    for number, (label, value) in enumerate(counters.items(), 1):
        (folder / f"energy{number}_label").write_text(label + "\n")
        (folder / f"energy{number}_input").write_text(f"{value}\n")
    return folder


def test_sockets_of_the_old_amd_driver_are_read_where_powercap_has_none(tmp_path: Path) -> None:
    folder = monitor(tmp_path / "hwmon", Ecore000=5, Ecore001=6, Esocket0=1_000_000, Esocket1=2_000_000)
    meter = RaplMeter(tmp_path / "none", hwmon=tmp_path / "hwmon")
    assert tuple(meter.domains) == ("package-0", "package-1")
    before = meter.read()
    (folder / "energy3_input").write_text("4000000")
    pairs = window(before, meter.read())
    assert [(pair["after"] - pair["before"], pair["range"]) for pair in pairs] == [(3_000_000, None), (0, None)]
    zone(tmp_path, "intel-rapl:0", "package-0", 7)
    assert [r.value for r in RaplMeter(tmp_path, hwmon=tmp_path / "hwmon").read()] == [7]  # never both


def test_the_remedy_for_the_old_amd_driver_names_its_own_file(tmp_path: Path) -> None:
    folder = monitor(tmp_path / "hwmon", Esocket0=1)

    def refuse(path: Path) -> str:
        if path.name == "energy1_input":
            raise PermissionError(13, "Permission denied")
        return path.read_text()

    meter = RaplMeter(tmp_path / "none", read_text=refuse, hwmon=tmp_path / "hwmon")
    assert not meter.domains and f"sudo chmod a+r {folder / 'energy1_input'}" in meter.why


def test_32_packages_with_their_memory_are_each_read_once(tmp_path: Path) -> None:
    for number in range(32):
        zone(tmp_path, f"intel-rapl:{number}", f"package-{number}", 1000 + number)
        zone(tmp_path, f"intel-rapl:{number}/intel-rapl:{number}:0", "dram", 500 + number)
    meter = RaplMeter(tmp_path)
    assert len(meter.domains) == 64 and {f"package-{n}" for n in range(32)} <= set(meter.domains)
    assert sorted(reading.value for reading in meter.read()) == [*range(500, 532), *range(1000, 1032)]


def test_a_counter_that_is_reset_between_the_ends_voids_the_window(tmp_path: Path) -> None:
    """By a driver loaded anew, or a machine that slept: no whole turn fits into the time since the last look."""
    folder = zone(tmp_path, "intel-rapl:0", "package-0", 5_000_000_000)
    clock = Tick()
    meter = RaplMeter(tmp_path, clock)
    before = meter.read()
    for value in (6_000_000_000, 10, 7_000_000_000):
        clock.ns += 10_000_000_000
        (folder / "energy_uj").write_text(str(value))
        meter.poll()
    # From the ends alone: 2 kJ in 30 s, as if nothing had happened; with a turn of 262 kJ in 300 s it would pass too.
    assert window(before, meter.read())[0]["reason"] == "counter_invalid"


def test_a_counter_without_a_range_that_went_back_between_the_ends_voids_the_window(tmp_path: Path) -> None:
    folder = zone(tmp_path, "intel-rapl:0", "package-0", 5000, None)
    meter = RaplMeter(tmp_path)
    before = meter.read()
    for value in (6000, 10, 7000):
        (folder / "energy_uj").write_text(str(value))
        meter.poll()
    pair = window(before, meter.read())[0]
    assert pair["reason"] == "counter_invalid" and "began anew" in pair["why"]


@pytest.mark.parametrize(
    "text", ["-5", "1_000", "9" * 400, "1e6", "0x10", "nan", "\xb5", "12\n13", "18446744073709551616"]
)
def test_what_is_no_number_of_microjoules_is_no_counter(tmp_path: Path, text: str) -> None:
    folder = zone(tmp_path, "intel-rapl:0", "package-0", 0)
    (folder / "energy_uj").write_bytes(text.encode("latin-1"))
    meter = RaplMeter(tmp_path)
    assert not meter.domains and "energy_uj" in meter.why


@pytest.mark.parametrize("text", ["-5", "0", "many", "\xb5", ""])
def test_a_range_that_is_none_is_unknown(tmp_path: Path, text: str) -> None:
    folder = zone(tmp_path, "intel-rapl:0", "package-0", 5)
    (folder / "max_energy_range_uj").write_bytes(text.encode("latin-1"))
    assert [reading.range for reading in RaplMeter(tmp_path).read()] == [None]


def test_a_name_that_is_no_text_is_no_package(tmp_path: Path) -> None:
    folder = zone(tmp_path, "intel-rapl:0", "package-0", 5)
    (folder / "name").write_bytes(b"\xff\xfe")
    assert not RaplMeter(tmp_path).domains


def test_a_folder_that_may_not_be_looked_into_is_missing(tmp_path: Path) -> None:
    shut, nobody = tmp_path / "shut", 65534
    shut.mkdir(mode=0)
    root = os.geteuid() == 0
    if root:  # who may look everywhere
        os.seteuid(nobody)
    try:
        meter = RaplMeter(shut / "powercap", hwmon=shut / "hwmon")
    finally:
        if root:
            os.seteuid(0)
    assert not meter.domains and "is missing" in meter.why
