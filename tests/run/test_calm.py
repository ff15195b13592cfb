"""Waiting for quiet and for cooling: bounded, and over as soon as the machine has calmed down."""

from __future__ import annotations

from collections.abc import Sequence

from harness.meters.sampler import Snapshot
from harness.run.calm import COOL_S, LOOK_S, PAUSE_S, QUIET_S, Calm


class Scripted:
    """A sampler that shows one second's worth of each entry; time runs with every look."""

    n_cpus = 2

    def __init__(self, looks: Sequence[Snapshot]) -> None:
        self.looks = list(looks)

    def read(self) -> Snapshot:
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]


def look(t_s: float, other_s: float = 0.0, throttled: int | None = None, c: float | None = None) -> Snapshot:
    return Snapshot(round(1e9 * t_s), busy_s=other_s, own_s=0.0, throttled=throttled, temperature_c=c)


def calm(*looks: Snapshot) -> Calm:
    return Calm(Scripted(looks), sleep=lambda _: None)  # type: ignore[arg-type]


def test_waits_until_others_are_quiet() -> None:
    waiting = calm(look(0), look(0), look(1, 1.0), look(1, 1.0), look(2, 2.0), look(2, 2.0), look(3, 2.0))
    assert waiting.wait(["contended"], 100.0) == (3 * LOOK_S, True)


def test_gives_up_after_a_while() -> None:
    busy = [look(n // 2 + n % 2, 1.0 * (n // 2 + n % 2)) for n in range(200)]
    assert calm(look(0), *busy).wait(["contended"], 100.0) == (QUIET_S, False)
    assert calm(look(0), *busy).wait(["contended"], 0.6) == (2 * LOOK_S, False)
    assert calm(look(0), *busy).wait(["contended"], -5.0) == (0.0, True)


def test_cools_to_near_the_temperature_of_the_start() -> None:
    hot, warm = look(1, c=80.0), look(2, c=49.0)
    assert calm(look(0, c=40.0), hot, hot, hot, warm).wait(["throttled"], 100.0) == (2 * PAUSE_S, True)
    assert calm(look(0, c=40.0), hot).wait(["throttled"], 100.0) == (COOL_S, False)


def test_without_a_thermometer_one_pause_without_a_throttle_event_must_do() -> None:
    assert calm(look(0), look(1, throttled=3), look(2, throttled=4), look(3, throttled=4)).wait(
        ["throttled"], 100.0
    ) == (2 * PAUSE_S, True)
    assert calm(look(0)).wait(["throttled"], 100.0) == (PAUSE_S, True)
    assert calm(look(0)).wait([], 100.0) == (0.0, True)
