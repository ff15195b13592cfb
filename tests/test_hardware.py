"""The table of memory systems: the packaged file is whole, and faults in it are named."""

from __future__ import annotations

import pytest

from harness.errors import HarnessError, InputError
from harness.hardware import GIB, choose, parse, table

SMALL = """version: 1
sources:
  v: {title: A vendor, url: "https://example.com/x"}
hardware:
  - {name: one-a, label: One, memory_gb: 80, bandwidth_gb_s: 100, source: v%s}
%s"""


def small(more: str = "", rest: str = "") -> str:
    return SMALL % (more, rest)


def test_the_packaged_table() -> None:
    known = table()
    assert len(known) >= 25
    assert all(one.url.startswith("https://") and one.source for one in known.values())
    assert next(iter(known)) == "b200"


@pytest.mark.parametrize(
    ("name", "gb_s", "gb"),
    [
        ("h100-sxm", 3350, 80), ("h200-sxm", 4800, 141), ("a100-sxm-80", 2039, 80), ("l4", 300, 24), ("t4", 320, 16),
        ("rtx5090", 1792, 32), ("rtx4090", 1008, 24), ("rtx3090", 936, 24), ("rtx3060", 360, 12),
        ("mi300x", 5300, 192), ("rx7900-xtx", 960, 24),
        ("m1", 68.3, 16), ("m1-pro", 200, 32), ("m1-max", 400, 64), ("m1-ultra", 800, 128),
        ("m2", 100, 24), ("m2-pro", 200, 32), ("m2-max", 400, 96), ("m2-ultra", 800, 192),
        ("m3", 100, 24), ("m3-pro", 150, 36), ("m3-max", 400, 128), ("m3-max-30", 300, 96), ("m3-ultra", 819, 512),
        ("m4", 120, 32), ("m4-pro", 273, 64), ("m4-max", 546, 128), ("m4-max-32", 410, 36),
        ("epyc-9004", 460.8, 6144), ("ddr4-3200", 51.2, 128), ("raspberry-pi-5", 17.1, 16),
    ],
)  # fmt: skip
def test_figures_of_devices_in_wide_use(name: str, gb_s: float, gb: float) -> None:
    one = table()[name]
    assert one.bandwidth_bytes_per_s == pytest.approx(gb_s * 1e9) and one.memory_bytes == gb * GIB


def test_names_come_with_commas_again_and_counted_and_case_does_not_matter() -> None:
    found = choose(["h100-sxm, RTX 4090", "4xH100_SXM", "2 x m3-max", "h100-sxm"])
    assert [one.name for one in found] == ["h100-sxm", "rtx4090", "4xh100-sxm", "2xm3-max"]
    assert found[2].bandwidth_bytes_per_s == 4 * 3.35e12 and found[2].memory_bytes == 320 * GIB
    assert (found[2].count, found[2].label) == (4, "4 x NVIDIA H100 SXM")
    assert choose(["1xl4"])[0].name == "l4"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("h100", "unknown 'h100'; .*names all. Did you mean 'h100-sxm' or 'h100-nvl' or 'h100-pcie'"),
        ("rtx490", "Did you mean 'rtx4090'"),
        ("3x rtx490", "unknown '3x rtx490'.*Did you mean 'rtx4090'"),
        ("zzz", "names all$"),
        ("h100-sxm,", "unknown ''"),
        ("0xl4", "0 devices in '0xl4'; expected 1 to 1024"),
        ("9999xl4", "9999 devices"),
    ],
)
def test_unknown_names_are_one_line(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        choose([text])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (small(", bus: {bits: 64, mt_s: 6400}"), "one-a: 100 GB/s, but its bus gives 51.2"),
        (small(", calculated: true"), "one-a: calculated without a bus"),
        (small(", colour: red"), "hardware.0.colour: Extra inputs"),
        (small(rest="  - {name: onea, label: Two, memory_gb: 1, bandwidth_gb_s: 1, source: v}"), "onea: 2 entries"),
        (small(rest="  - {name: two, label: Two, memory_gb: 1, bandwidth_gb_s: 1, source: w}"), "'w' is not among"),
        (small(rest="  - {name: two, label: Two, memory_gb: 0, bandwidth_gb_s: 1, source: v}"), "memory_gb"),
        (small().replace("https", "http"), "sources.v.url"),
        (small().replace("hardware:", "  w: {title: W, url: 'https://w.org/'}\nhardware:"), "nothing names: w"),
        (small(", up_to: yes"), "up_to: Input should be a valid boolean"),
        ("version: [", "not valid YAML"),
        ("version: 1", "sources: Field required"),
    ],
)
def test_faults_of_a_table_are_named(text: str, message: str) -> None:
    with pytest.raises(HarnessError, match=message):
        parse(text)


def test_a_bus_may_round() -> None:
    found = parse(small(", bus: {bits: 128, mt_s: 6250.5}"))
    assert found["one-a"].bandwidth_bytes_per_s == 100e9 and not found["one-a"].calculated
