"""The energy under samples of power, worked by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.meters import trace as tracing
from harness.meters.trace import Trace


def traced(*samples: tuple[float, float]) -> Trace:
    trace = Trace()
    assert all(trace.add(*sample) for sample in samples)
    return trace


def test_trapezoids_by_time_stamps() -> None:
    # 10 W -> 30 W over 2 s: 40 J; 30 W -> 30 W over 0.5 s: 15 J.
    trace = traced((0, 10), (2, 30), (2.5, 30))
    assert trace.joules == [0, 40, 55]
    # At 1 s the line is at 20 W: (10 + 20) / 2 x 1 = 15 J.
    assert trace.at(1.0) == (15.0, 0.0) and trace.at(2.0) == (40.0, 0)
    assert trace.at(-0.1) is None and trace.at(2.6) is None and Trace().at(0.0) is None


def test_a_sample_that_is_not_later_is_refused() -> None:
    trace = traced((5, 10))
    assert not trace.add(5, 99) and not trace.add(4, 99) and trace.joules == [0]


@given(st.lists(st.floats(0.01, 3.0), min_size=1, max_size=30), st.floats(0, 1), st.floats(0, 1))
def test_constant_power_gives_power_times_time_between_any_two_moments(
    steps: list[float], first: float, last: float
) -> None:
    times = [sum(steps[:n]) for n in range(len(steps) + 1)]
    trace = traced(*((t, 7.0) for t in times))
    one, two = sorted((first * times[-1], last * times[-1]))
    before, after = trace.at(one), trace.at(min(two, times[-1]))
    assert before and after
    assert after[0] - before[0] == pytest.approx(7.0 * (two - one), abs=1e-6)


def test_a_gap_is_seen_from_a_window_that_meets_it_anywhere() -> None:
    trace = traced(*((0.1 * n, 10.0) for n in range(11)), (11.0, 10.0), (11.1, 10.0))

    def gaps(start: float, end: float) -> bool:
        before, after = trace.at(start), trace.at(end)
        assert before and after
        return after[1] > before[1]

    assert not gaps(0.2, 0.9) and not gaps(11.02, 11.08)
    assert gaps(0.5, 5.0) and gaps(5.0, 11.05) and gaps(5.0, 6.0) and gaps(0.5, 11.05)


def test_how_often_it_is_read_and_how_often_it_changes() -> None:
    # Read 20 times a second, updated 10 times a second.
    trace = traced(*((0.05 * n, float(n // 2)) for n in range(40)))
    assert trace.interval_s == pytest.approx(0.05) and trace.update_s == pytest.approx(0.1)
    assert traced((0, 1), (1, 1)).update_s is None


def test_old_samples_are_forgotten_and_the_sum_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "MOST", 4)
    trace = traced(*((float(n), 10.0) for n in range(9)))
    assert trace.t_s == [4, 5, 6, 7, 8] and trace.joules[-1] == 80 and trace.at(3.0) is None


def test_a_gap_among_the_first_samples_is_seen_too() -> None:
    trace = traced((0, 10), (0.1, 10), (0.2, 10), (20, 500), (20.1, 500))
    before, after = trace.at(5.0), trace.at(15.0)
    assert before and after and after[1] > before[1]


@pytest.mark.parametrize("watts", [-1.0, float("nan"), float("inf")])
def test_what_is_no_power_is_refused(watts: float) -> None:
    trace = traced((0, 10))
    assert not trace.add(1, watts) and trace.watts == [10]
