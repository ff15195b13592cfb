"""Fronts, against tables worked by hand and brute force."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.decide.pareto import LeftOut, dominates, front, joint_draws, p_front, tied

KEYS = ("mmlu_acc", "decode_tps", "energy_j_per_token")
TABLE: dict[str, tuple[float | None, ...]] = {
    "A": (0.70, 50, 2),
    "B": (0.70, 50, 2),
    "C": (0.70, 40, 2),
    "D": (0.65, 80, 1.5),
    "E": (0.72, 20, 3),
    "F": (0.60, 80, 1.5),
}
INCOMPLETE: dict[str, tuple[float | None, ...]] = {
    "G": (0.75, math.nan, 1.0),
    "H": (0.75, math.inf, 1.0),
    "I": (0.71, 60, None),
}


def points(table: dict[str, tuple[float | None, ...]]) -> dict[str, dict[str, float | None]]:
    return {name: dict(zip(KEYS, row, strict=True)) for name, row in table.items()}


def test_three_axes() -> None:
    assert front(points(TABLE), KEYS).members == ("A", "B", "D", "E")


def test_each_view_has_its_own_front() -> None:
    assert front(points(TABLE), ("mmlu_acc", "energy_j_per_token")).members == ("A", "B", "C", "D", "E")


def test_incomplete_points_are_left_out_of_that_view_only() -> None:
    table = points({**TABLE, **INCOMPLETE})
    found = front(table, KEYS)
    assert found.members == ("A", "B", "D", "E")
    assert found.left_out == (
        LeftOut("G", ("decode_tps",)),
        LeftOut("H", ("decode_tps",)),
        LeftOut("I", ("energy_j_per_token",)),
    )
    assert front(table, ("mmlu_acc", "decode_tps")).members == ("D", "E", "I")


def test_lower_is_better_where_the_catalogue_says_so() -> None:
    assert front({"slow": {"ttft_s": 2.0}, "quick": {"ttft_s": 1.0}}, ("ttft_s",)).members == ("quick",)
    with pytest.raises(ValueError, match="direction"):
        front({}, ("mbu",))


CELL = st.one_of(st.integers(0, 3).map(float), st.sampled_from([None, math.nan, math.inf]))


@given(st.lists(st.tuples(CELL, CELL, CELL), max_size=12))
def test_against_brute_force(rows: list[tuple[float | None, float | None, float | None]]) -> None:
    table = {str(i): row for i, row in enumerate(rows)}
    found = front(points(dict(table)), KEYS)
    whole = {n: r for n, r in table.items() if all(v is not None and math.isfinite(v) for v in r)}
    expected = []
    for name, (acc, tps, joules) in whole.items():
        better = [
            o
            for o in whole.values()
            if o[0] >= acc and o[1] >= tps and o[2] <= joules and o != (acc, tps, joules)  # type: ignore[operator]
        ]
        if not better:
            expected.append(name)
    assert list(found.members) == expected
    assert {lo.name for lo in found.left_out} == set(table) - set(whole)
    assert bool(found.members) == bool(whole)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=2, max_size=2))
def test_dominance_goes_one_way(pair: list[tuple[int, int]]) -> None:
    a, b = pair
    assert not (dominates(a, b) and dominates(b, a))
    assert not dominates(a, a)


VIEW = ("mmlu_acc", "decode_tps")


class TestDraws:
    def test_identical_variants_stay_identical_in_every_draw(self) -> None:
        rng = np.random.default_rng(0)
        logs, scores = rng.normal(4, 0.3, (1, 8)), rng.integers(0, 2, (1, 50)).astype(float)
        draws = joint_draws(np.repeat(logs, 2, 0), np.repeat(scores, 2, 0), draws=200)
        np.testing.assert_array_equal(draws[:, 0], draws[:, 1])
        assert p_front(["a", "b"], draws, VIEW) == {"a": 1.0, "b": 1.0}

    def test_shared_drift_is_no_difference(self) -> None:
        drift = np.random.default_rng(1).normal(0, 1.0, 10)
        draws = joint_draws(np.stack([drift, drift + math.log(1.5)]), np.ones((2, 5)), draws=300)
        np.testing.assert_allclose(draws[:, 1, 1] / draws[:, 0, 1], 1.5)
        assert p_front(["slow", "fast"], draws, VIEW) == {"slow": 0.0, "fast": 1.0}

    def test_spread_equals_the_standard_error_widened_as_t(self) -> None:
        logs = np.random.default_rng(2).normal(0, 0.1, (1, 6))
        draws = joint_draws(logs, np.ones((1, 3)), draws=20_000)
        expected = 2.570582 / 1.959964 * float(np.std(logs, ddof=1)) / math.sqrt(6)  # t(5) over z
        assert float(np.std(np.log(draws[:, 0, 1]))) == pytest.approx(expected, rel=0.03)

    def test_missing_blocks_and_clusters(self) -> None:
        logs = np.array([[0.0, math.nan, 0.0], [math.nan, math.nan, math.nan]])
        draws = joint_draws(logs, np.array([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]]), ["x", "x", "y"], draws=100)
        np.testing.assert_allclose(draws[:, 0, 1], 1.0)
        assert bool(np.isnan(draws[:, 1, 1]).all())
        # one of two clusters is drawn: 1 or 0, about the mean of 2/3 by t(1) / z = 12.7062 / 1.95996
        wider = 12.706205 / 1.959964
        assert sorted(set(draws[:, 0, 0])) == pytest.approx([2 / 3 * (1 - wider), 2 / 3 + wider / 3], rel=1e-6)
        assert p_front(["a", "b"], draws, VIEW) == {"a": 1.0}

    @pytest.mark.parametrize("blocks", [10, 15])
    def test_identical_variants_are_hardly_ever_told_apart(self, blocks: int) -> None:
        """On a machine so noisy that the tolerance of 3% excuses nothing."""
        rng, runs = np.random.default_rng(4), 400
        together = 0
        for _ in range(runs):
            draws = joint_draws(rng.normal(0, 0.3, (2, blocks)), np.zeros((2, 1)))
            together += bool(tied(["a", "b"], draws[:, :, 1:], ["decode_tps"]))
        assert together / runs >= 0.97

    def test_seeded(self) -> None:
        logs, items = np.array([[0.0, 1.0, 2.0]]), np.array([[0.0, 1.0, 1.0]])
        np.testing.assert_array_equal(joint_draws(logs, items), joint_draws(logs, items))

    def test_probability_of_a_coin_toss(self) -> None:
        draws = np.zeros((1000, 2, 2))
        draws[:, :, 0] = 0.5
        draws[:, 0, 1], draws[:, 1, 1] = 100, np.where(np.arange(1000) % 4 == 0, 110, 90)
        assert p_front(["a", "b"], draws, VIEW) == {"a": 0.75, "b": 0.25}


class TestTied:
    def constant(self, *rows: tuple[float, float]) -> np.ndarray:
        return np.repeat(np.array([rows]), 50, axis=0)

    def test_within_tolerance(self) -> None:
        draws = self.constant((0.58, 100.0), (0.57, 103.0), (0.55, 100.0))
        assert tied(["a", "b", "c"], draws, VIEW) == [["a", "b"]]

    def test_interval_around_zero(self) -> None:
        draws = self.constant((0.5, 100.0), (0.5, 110.0))
        draws[:25, 1, 1] = 90.0
        assert tied(["a", "b"], draws, VIEW) == [["a", "b"]]

    def test_one_in_two_hundred_on_the_other_side_leaves_two_apart(self) -> None:
        draws = np.repeat(self.constant((0.5, 100.0), (0.5, 110.0)), 20, axis=0)
        draws[:3, 1, 1] = 90.0  # 3 of 1000
        assert tied(["a", "b"], draws, VIEW) == []
        draws[:8, 1, 1] = 90.0
        assert tied(["a", "b"], draws, VIEW) == [["a", "b"]]

    def test_a_chain_is_no_group(self) -> None:
        draws = self.constant((0.5, 100.0), (0.5, 102.5), (0.5, 105.0))
        assert tied(["a", "b", "c"], draws, VIEW) == [["a", "b"]]

    def test_variants_without_a_figure_are_in_no_group(self) -> None:
        draws = self.constant((0.5, 100.0), (0.5, math.nan))
        assert tied(["a", "b"], draws, VIEW) == []
