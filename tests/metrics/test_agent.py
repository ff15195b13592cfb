"""An agent's sequential calls, worked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from harness.metrics.agent import agent_wait, levelled
from harness.metrics.request import Trial
from harness.record import Event, RequestRecord
from harness.stats.interval import t_interval


def trial(block: int, position: int, seconds: float, prompt: int = 32) -> Trial:
    events = (Event(round(seconds * 5e8), 1, 3), Event(round(seconds * 1e9), 9, 20))
    return Trial(block, position, prompt, RequestRecord(0, events, prompt, 10, finish_reason="length"))


def two_a_block(*pairs: tuple[float, float]) -> list[Trial]:
    return [trial(b, 2 * b + i, seconds) for b, pair in enumerate(pairs) for i, seconds in enumerate(pair)]


def test_the_wait_is_the_sum_of_calls_that_followed_each_other() -> None:
    # Sums of two: 1+2, 2+3, 3+4, 4+1 = 3, 5, 7, 5.
    found = agent_wait(2, 50)(two_a_block((1.0, 2.0), (3.0, 4.0)))
    assert found.value == pytest.approx(5.0) and found.n == 4
    assert agent_wait(2, 75)(two_a_block((1.0, 2.0), (3.0, 4.0))).value == pytest.approx(5.5)


def test_more_calls_than_requests_go_round_again() -> None:
    assert agent_wait(6, 50)(two_a_block((1.0, 2.0), (3.0, 4.0))).value == pytest.approx(15.0)  # 13, 15, 17, 15


def test_a_slow_stretch_makes_all_calls_of_an_agent_slow() -> None:
    slow_last = two_a_block(*[(1.0, 1.0)] * 15, *[(3.0, 3.0)] * 5)
    in_turn = two_a_block(*[(1.0, 1.0), (1.0, 1.0), (1.0, 1.0), (3.0, 3.0)] * 5)
    assert agent_wait(5, 95)(slow_last).value == pytest.approx(15.0)
    # Spread out, two of five consecutive calls at most are slow.
    assert agent_wait(5, 95)(in_turn).value == pytest.approx(9.0)


def test_order_is_that_of_the_run() -> None:
    trials = two_a_block((1.0, 2.0), (3.0, 4.0))
    assert agent_wait(2, 50)(trials[::-1]) == agent_wait(2, 50)(trials)


def test_a_mix_of_lengths_is_no_unsteadiness() -> None:
    """Calls of 1 s and of 3 s, each without any spread: every agent of 5 waits 5 x 2 s."""
    trials = [trial(b, 2 * b + i, 3.0 if b % 2 else 1.0, 512 if b % 2 else 32) for b in range(12) for i in range(2)]
    assert [agent_wait(5, q)(trials).value for q in (5, 50, 95)] == pytest.approx([10.0, 10.0, 10.0])


def test_levels_keep_each_request_s_own_deviation() -> None:
    trials = [trial(0, 2, 1.0), trial(0, 0, 1.2), trial(1, 1, 3.0, 512), trial(1, 3, 2.6, 512)]
    # Means 1.1 and 2.8, in the middle 1.95; in the order of the run.
    assert levelled(trials, [1.0, 1.2, 3.0, 2.6]).tolist() == pytest.approx([2.05, 2.15, 1.85, 1.75])


def test_interval_rests_on_agents_that_share_no_request() -> None:
    # Agents of two calls: 2.0, 2.2, 2.4 twice and so on; Student's t over ten of them.
    pairs = [(1.0, 1.0), (1.0, 1.2), (1.2, 1.2), (1.1, 1.1), (1.1, 1.3)] * 2
    found, wanted = agent_wait(2, 50)(two_a_block(*pairs)), t_interval([a + b for a, b in pairs])
    assert (found.low, found.high) == (pytest.approx(wanted.low), pytest.approx(wanted.high))
    assert found.reasons == ()


def test_codes() -> None:
    steady = agent_wait(5, 50)(two_a_block(*[(1.0, 1.0)] * 12))
    assert (steady.value, steady.low, steady.high, steady.reasons) == (5.0, 5.0, 5.0, ())
    assert agent_wait(5, 50)(two_a_block(*[(1.0, 1.0)] * 9)).reasons == ("small_n",)
    # 20 agents of 5 that share no request take 100 requests.
    assert agent_wait(5, 95)(two_a_block(*[(1.0, 1.0)] * 49)).reasons == ("small_n",)
    assert agent_wait(5, 95)(two_a_block(*[(1.0, 1.0)] * 50)).reasons == ()
    alone = agent_wait(20, 50)(two_a_block(*[(1.0, 1.1)] * 12))
    assert (alone.low, alone.high, alone.reasons) == (None, None, ("small_n",))


def test_intervals_cover_as_often_as_they_say() -> None:
    """Rounds with a state of their own; the 95th percentile of a wait of 5 is that of a normal sum."""
    rng, runs = np.random.default_rng(11), 300
    hits = {50: 0, 95: 0}
    for _ in range(runs):
        seconds = rng.normal(1.0, 0.1, 40)
        for q, truth in ((50, 5.0), (95, 5.0 + 1.6449 * 0.1 * math.sqrt(5))):
            found = agent_wait(5, q)(two_a_block(*zip(seconds[::2], seconds[1::2], strict=True)))
            assert found.low is not None and found.high is not None
            hits[q] += found.low <= truth <= found.high
    assert all(0.92 <= count / runs <= 0.98 for count in hits.values())


def test_one_round_a_length_says_nothing_of_the_spread() -> None:
    trials = [trial(b, 2 * b + i, (1 + b) * (1 + i / 10), 32 * 2**b) for b in range(3) for i in range(2)]
    found = agent_wait(5, 50)(trials)
    assert found.value is not None and (found.low, found.high, found.reasons) == (None, None, ("small_n",))


def test_without_requests() -> None:
    assert agent_wait(5, 50)([]).reasons == ("undefined",)
