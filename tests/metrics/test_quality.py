"""Accuracy and paired comparison, every number worked by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.metrics import quality
from harness.record import Figure


def doc(
    i: int, correct: bool | None, pred: int | None = None, subject: str = "s", finite: bool = True
) -> dict[str, Any]:
    chosen = (0 if correct else 1) if pred is None else pred
    return {
        "subject": subject,
        "doc_id": i,
        "gold": 0,
        "logprobs": [0.0] * 4,
        "n_tokens": [1] * 4,
        "pred": chosen,
        "correct": correct,
        "finite": finite,
    }


def docs(right: list[bool], subjects: int = 1) -> list[dict[str, Any]]:
    return [doc(i, r, subject=f"s{i % subjects}") for i, r in enumerate(right)]


def eight_and_six() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """200 items, 62% against 63%: 8 fixed and 6 broken."""
    reference = [True] * 124 + [False] * 76
    variant = [False] * 6 + [True] * 118 + [True] * 8 + [False] * 68
    return docs(variant), docs(reference)


class TestPick:
    def test_nan_is_no_answer_wherever_it_stands(self) -> None:
        scores = [math.nan, -1.0, -2.0, -3.0]
        for shift in range(4):
            assert quality.pick(scores[shift:] + scores[:shift]) is None
        assert quality.pick([-1.0, math.inf]) is None
        assert quality.pick([-1.0, None]) is None

    def test_highest(self) -> None:
        assert quality.pick([-3.0, -0.2, -2.0]) == 1


class TestAccuracy:
    def test_nonfinite_item_fails_the_variant(self) -> None:
        figure = quality.accuracy([doc(0, True), doc(1, None, finite=False)])
        assert figure.value is None and figure.reasons == ("nonfinite",)
        assert figure.conditions == {"nonfinite": 1}

    def test_clustered_interval(self) -> None:
        # Four subjects of five: all right, all right, all wrong, all wrong: as good as four observations.
        rows = [doc(i, s < 2, subject=f"s{s}") for i, s in enumerate([0, 1, 2, 3] * 5)]
        figure = quality.accuracy(rows)
        # SE² = 3/4 x 4 x (1/6)² = 1/12, worth 0.25 / SE² = 3 values; w = t(3)² / 3 = 3.37598;
        # half = sqrt(w/4 + w²/4) / (1 + w) = 0.43917
        assert figure.value == 0.5
        assert (figure.low, figure.high) == (pytest.approx(0.06083, abs=1e-5), pytest.approx(0.93917, abs=1e-5))

    def test_all_right_is_not_certainty(self) -> None:
        figure = quality.accuracy(docs([True] * 40, 8))
        assert figure.low == pytest.approx(1 / (1 + 2.364624**2 / 40), abs=1e-4)  # t(7), eight subjects

    def test_by_subject(self) -> None:
        rows = [doc(0, True, subject="b"), doc(1, False, subject="b"), doc(2, True, subject="a")]
        assert quality.by_subject(rows) == {"a": (1, 1), "b": (1, 2)}

    def test_sample_is_labelled(self) -> None:
        figures = quality.mmlu_figures(docs([True]), None, ("sample_not_mmlu",))
        assert figures["mmlu_acc"].reasons == ("sample_not_mmlu",)


class TestPaired:
    def test_eight_fixed_six_broken_shows_no_difference(self) -> None:
        pair = quality.paired(*eight_and_six())
        assert pair is not None and (pair.fixed, pair.broken, pair.n) == (8, 6, 200)
        assert pair.p_exact == pytest.approx(0.7905, abs=5e-5)
        assert pair.p == pytest.approx(0.6072, abs=5e-5)
        assert pair.delta.value == pytest.approx(0.01)
        assert pair.se == pytest.approx(math.sqrt((0.07 - 0.0001) / 200))
        assert pair.mde == pytest.approx(2.80 * math.sqrt(0.07 / 200))
        assert pair.delta.low is not None and pair.delta.high is not None
        assert pair.delta.low < 0 < pair.delta.high
        assert not quality.separates({"v": eight_and_six()[0]}, eight_and_six()[1]).separates

    def test_clustered_error_counts_where_larger(self) -> None:
        reference = [doc(i, True, subject=f"s{i % 4}") for i in range(40)]
        variant = [doc(i, i % 4 != 0, subject=f"s{i % 4}") for i in range(40)]
        pair = quality.paired(variant, reference)
        # d: one subject of four all -1; residual sums -7.5, 2.5, 2.5, 2.5; SE = sqrt(4/3 x 75) / 40
        assert pair is not None and pair.se == pytest.approx(math.sqrt(4 / 3 * 75) / 40)

    def test_no_change_is_not_certainty(self) -> None:
        pair = quality.paired(docs([True] * 228), docs([True] * 228))
        assert pair is not None and pair.mde is None and pair.se == 0
        assert pair.delta.high == pytest.approx(1.959964 * math.sqrt(2 / 230 / 230), rel=1e-5)

    def test_ends_stay_between_minus_one_and_one(self) -> None:
        lost, won = (
            quality.paired(docs([False] * 3), docs([True] * 3)),
            quality.paired(docs([True] * 3), docs([False] * 3)),
        )
        assert lost is not None and won is not None
        assert lost.delta.low == -1.0 and won.delta.high == 1.0

    def test_flips_count_changed_answers_even_if_both_wrong(self) -> None:
        variant = [doc(0, False, 2), doc(1, True), doc(2, True), doc(3, True)]
        reference = [doc(0, False, 1), doc(1, True), doc(2, True), doc(3, True)]
        figures = quality.mmlu_figures(variant, reference)
        assert figures["mmlu_flips"].value == 0.25 and figures["mmlu_delta"].value == 0.0

    def test_items_are_matched_not_zipped(self) -> None:
        variant, reference = eight_and_six()
        assert quality.paired(variant[::-1], reference) == quality.paired(variant, reference)
        assert quality.paired([doc(1, True)], [doc(2, True)]) is None

    def test_reference_differs_from_itself_by_nothing(self) -> None:
        delta = quality.mmlu_figures(docs([True, False]), None)["mmlu_delta"]
        assert (delta.value, delta.low, delta.high, delta.reasons) == (0.0, 0.0, 0.0, ("is_reference",))

    @given(st.integers(0, 2000), st.integers(0, 2000))
    def test_mcnemar_is_a_probability_and_symmetric(self, fixed: int, broken: int) -> None:
        p, exact = quality.mcnemar(fixed, broken), quality.mcnemar(fixed, broken, mid=False)
        assert 0 <= p <= exact <= 1
        assert p == quality.mcnemar(broken, fixed)


class TestWhatASuiteCanTell:
    def test_at_chance(self) -> None:
        assert quality.at_chance(Figure(0.28, 0.24, 0.32, 570), 0.25)
        assert not quality.at_chance(Figure(0.40, 0.34, 0.46, 228), 0.25)
        assert quality.at_chance(Figure(None, reasons=("nonfinite",)), 0.25)

    def test_separates(self) -> None:
        reference = docs([True] * 100 + [False] * 100)
        broken = docs([False] * 20 + [True] * 80 + [False] * 100)
        found = quality.separates({"q8": docs([True] * 99 + [False] * 101), "q2": broken}, reference)
        assert found.separates and "q2: 0 fixed, 20 broken" in found.why and "q8" not in found.why

    def test_many_comparisons_need_more(self) -> None:
        reference = docs([True] * 200)
        five = docs([False] * 6 + [True] * 194)
        assert quality.separates({"a": five}, reference).separates  # p = 0.016
        same = {str(k): docs([True] * 200) for k in range(3)}
        assert not quality.separates({"a": five, **same}, reference).separates
        assert not quality.separates({}, reference).separates

    def test_mde(self) -> None:
        assert quality.mde(0.05, 570) == pytest.approx(0.0262, abs=5e-5)


def test_score_matrix() -> None:
    names, scores, subjects = quality.score_matrix({"a": [doc(0, True), doc(1, None)], "b": [doc(1, False)]})
    assert (names, subjects) == (["a", "b"], ["s", "s"])
    np.testing.assert_array_equal(scores, [[1.0, math.nan], [math.nan, 0.0]])
