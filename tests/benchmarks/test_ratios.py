from __future__ import annotations

import json
import math

import pytest


@pytest.fixture
def ratios():
    from benchmarks import ratios

    return ratios


def test_a_paired_ratio_is_the_geometric_mean_with_a_t_interval_of_the_logarithms(ratios):
    # logarithms of the ratios: ln 2 and ln 8, so mean ln 4, standard deviation ln 4 / sqrt 2, standard error ln 2
    found = ratios.paired_ratio([2.0, 24.0], [1.0, 3.0])
    half = 12.706205 * math.log(2)
    assert found["value"] == pytest.approx(4.0) and found["n"] == 2
    assert found["low"] == pytest.approx(4.0 * math.exp(-half), rel=1e-6)
    assert found["high"] == pytest.approx(4.0 * math.exp(half), rel=1e-6)


def test_one_round_has_no_interval(ratios):
    assert ratios.paired_ratio([3.0], [2.0]) == {"value": 1.5, "low": None, "high": None, "n": 1}


@pytest.mark.parametrize(
    ("value", "code"), [(0.97, 1), (0.98, 0), (1.02, 0), (1.03, 1), (None, 1)], ids=lambda value: str(value)
)
def test_goals_are_reached_from_below_and_limits_not_passed(ratios, capsys, value, code):
    figures = {"speed": {"value": value, "low": None, "high": None, "n": 1}}
    assert ratios.conclude("x", "", figures, {"speed": 0.98}, {"speed": 1.02}) == code
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert last == {
        "benchmark": "x",
        "figures": figures,
        "goals": {"speed": 0.98},
        "limits": {"speed": 1.02},
        "holds": code == 0,
    }
