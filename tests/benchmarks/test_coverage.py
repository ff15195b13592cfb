"""Intervals hold the truth as often as they say, whatever the machine does; those of a sequential schedule do not."""

from __future__ import annotations

import json
import math
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import coverage, drifts

RUNS = 600


class Silent:
    """A generator without noise."""

    def normal(self, mean, spread, n):
        return np.zeros(n)

    def integers(self, most):
        return 0


def held(name, draw):
    """Share of simulated runs under a drift whose interval holds the true ratio."""
    rng, tally = np.random.default_rng([7, list(drifts.DRIFTS).index(name)]), coverage.Tally()
    for _ in range(RUNS):
        figure = draw(drifts.DRIFTS[name], rng)
        tally.add((figure.low, figure.high), coverage.TRUTH)
    return tally.figure()["value"]


@pytest.mark.parametrize("name", drifts.DRIFTS)
def test_paired_rounds_cover_under_drift(name):
    assert held(name, lambda drift, rng: coverage.paired(drift, rng, 3, 10)) >= 0.93


@pytest.mark.parametrize("name", ["walk 5%", "bursts", "rough"])
def test_stopping_when_it_is_narrow_enough_costs_no_coverage(name):
    assert held(name, lambda drift, rng: coverage.stopped(drift, rng)[0]) >= 0.93


def test_stopping_spends_rounds_only_where_it_is_rough():
    rng = np.random.default_rng(1)
    rounds = {name: [coverage.stopped(drifts.DRIFTS[name], rng)[1] for _ in range(50)] for name in ("steady", "rough")}
    assert set(rounds["steady"]) == {15}
    assert np.mean(rounds["rough"]) > 18 and max(rounds["rough"]) == 30


@pytest.mark.parametrize("name", ["walk 5%", "slope", "steps", "AR(1)"])
def test_one_after_the_other_does_not_cover(name):
    rng, tally = np.random.default_rng(3), coverage.Tally()
    for _ in range(200):
        tally.add(coverage.sequential(drifts.DRIFTS[name], rng, 10), coverage.TRUTH)
    assert tally.figure()["value"] < 0.6


def test_the_other_intervals_cover_where_they_claim_to():
    found = {name: tally.figure()["value"] for name, tally in coverage.others(1000, 4).items()}
    claimed, _ = coverage.bounds(list(found))
    assert len(claimed) == len(found) - 2
    assert {name: found[name] for name in claimed if found[name] < 0.93} == {}
    assert found["absolute rate, walk 5%"] < 0.5 and found["absolute rate, AR(1)"] < 0.5


@given(st.floats(-0.01, 0.01), st.integers(2, 8))
def test_a_steady_slope_leaves_a_mirrored_ratio_alone(per_trial, variants):
    levels = [0.1 * variant for variant in range(variants)]
    found = drifts.mirrored(lambda rng, n: per_trial * np.arange(n), Silent(), levels, 4)
    widest = per_trial * (2 * variants - 1) / 2  # from a round's middle to its end
    for level, rates in zip(levels, found, strict=True):
        gaps = [rates[block] - found[0][block] for block in range(4)]
        assert gaps == pytest.approx([level] * 4, abs=math.log(math.cosh(widest)) + 1e-12)


def test_a_rate_of_two_trials_is_tokens_over_seconds():
    """Half as fast in every second turn: 2 / (1 + 2) of the faster rate, not the mean."""
    (rates,) = drifts.mirrored(lambda rng, n: -math.log(2) * (np.arange(n) % 2), Silent(), [0.0], 2)
    assert rates == pytest.approx({0: math.log(2 / 3), 1: math.log(2 / 3)})


def test_the_table_and_the_last_line(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["coverage", "--runs", "30"])
    code = coverage.main()
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert last["benchmark"] == "coverage" and code == (0 if last["holds"] else 1)
    assert last["figures"]["sequential, slope"]["n"] == 30
    assert set(last["goals"]) < set(last["figures"])
