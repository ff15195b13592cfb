"""Meters read together, and which are opened."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from harness import meters as opening
from harness.energy_settings import EnergySettings
from harness.meters import open_panel
from harness.meters import panel as panels
from harness.meters.fake import FakeMeter
from harness.meters.panel import Panel


def test_a_window_is_read_at_both_ends_by_every_meter() -> None:
    panel = Panel([FakeMeter({"package-0": [10, 25]}, method="rapl"), FakeMeter({"gpu:x": [1, 4]}, method="nvml")])
    with panel.around() as seen:
        assert seen == {}
    assert [(pair["domain"], pair["after"] - pair["before"]) for pair in seen["energy"]] == [
        ("package-0", 15), ("gpu:x", 3),
    ]  # fmt: skip
    assert panel.counted and panel.describe()["method"] == "rapl+nvml"


def test_meters_that_want_it_are_polled_meanwhile_and_not_afterwards() -> None:
    polled = threading.Event()

    class Polled(FakeMeter):
        def poll(self) -> None:
            polled.set()

    meter = Polled({"a": [0, 1]})
    meter.poll_s = 0.001
    before = threading.active_count()
    with Panel([meter]).around():
        assert polled.wait(10)
    assert threading.active_count() == before


def test_what_fails_inside_leaves_no_thread_and_no_reading() -> None:
    panel = Panel([FakeMeter({"a": [0, 1]})])
    before = threading.active_count()
    with pytest.raises(ZeroDivisionError), panel.around() as seen:
        _ = 1 / 0
    assert seen == {} and threading.active_count() == before


@pytest.mark.parametrize(
    ("asked", "resolution_s", "least_s", "seconds"),
    [
        (None, 0.001, 1.0, 1.0),  # RAPL
        (None, 0.1, 5.0, 5.0),  # NVML
        (None, 5.0, 10.0, 15.0),  # an external meter that prints every 5 s
        (0.5, 0.1, 5.0, 0.5),  # as asked for
        (0.1, 0.1, 5.0, 0.1 * 3),  # but three steps at least
    ],
)
def test_how_long_a_window_is(asked: float | None, resolution_s: float, least_s: float, seconds: float) -> None:
    meter = FakeMeter({"a": [0]}, resolution_s=resolution_s, least_s=least_s)
    assert Panel([meter], least_s=asked).seconds == pytest.approx(seconds)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Lets named meters exist with domains; returns the list of those that were made."""

    def prepare(**readable: dict[str, Any]) -> list[str]:
        built: list[str] = []

        def make(name: str, **options: Any) -> Any:
            built.append(name)
            found = FakeMeter({domain: [0] for domain in readable.get(name, {})}, method=name)
            found.name = name
            found.why = "" if found.domains else f"no {name}"
            return found

        monkeypatch.setattr(opening, "make", make)
        monkeypatch.setattr(panels, "zeus_installed", lambda: "zeus" in readable)
        return built

    return prepare


def test_auto_takes_every_counter_and_else_the_estimate_alone(made: Callable[..., list[str]]) -> None:
    made(rapl={"package-0": 1}, nvml={"gpu:x": 1})
    assert open_panel(EnergySettings()).describe()["scope"] == ["package-0", "gpu:x"]
    made(nvml={"gpu:x": 1})
    only_gpu = open_panel(EnergySettings()).describe()
    assert (only_gpu["method"], only_gpu["why"]) == ("nvml", "no rapl")  # what is missing is said
    built = made()
    panel = open_panel(EnergySettings())
    assert built == ["rapl", "nvml", "estimate"] and not panel.counted
    made(zeus={"soc": 1})
    assert open_panel(EnergySettings()).describe()["method"] == "zeus"


def test_a_meter_that_is_named_is_the_only_one(made: Callable[..., list[str]]) -> None:
    built = made(rapl={"package-0": 1}, nvml={"gpu:x": 1})
    assert open_panel(EnergySettings(meter="nvml")).describe()["scope"] == ["gpu:x"] and built == ["nvml"]
    made()
    panel = open_panel(EnergySettings(meter="rapl"))
    assert not panel.counted and panel.describe()["why"] == "no rapl"
    built = made()
    assert open_panel(EnergySettings(meter="none")).describe()["method"] == "none" and built == []


def test_a_meter_that_comes_to_tell_hardly_anything_does_not_make_endless_windows() -> None:
    # One sample an hour: three steps would be three hours. The window then says below_resolution.
    assert Panel([FakeMeter({"a": [0]}, resolution_s=3600.0)]).seconds == 300.0


def test_a_meter_that_breaks_leaves_no_thread() -> None:
    class Broken(FakeMeter):
        def read(self) -> Any:
            if self.reads:
                raise ZeroDivisionError
            self.reads = 1
            return super().read()

    meter = Broken({"a": [0, 1]})
    meter.reads, meter.poll_s = 0, 0.001  # type: ignore[attr-defined]
    before = threading.active_count()
    with pytest.raises(ZeroDivisionError), Panel([meter]).around():
        pass
    assert threading.active_count() == before
