"""Fidelity figures on hand-worked rows."""

from __future__ import annotations

import json
from math import log
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from harness.metrics.catalog import METRICS
from harness.suites import fidelity
from harness.suites.fidelity import divergences, figures, kl_payload, kl_rows


def kl_row(start: int, kl: list[float], top1: list[int] | None = None, finite: bool = True) -> dict[str, Any]:
    return {"start": start, "kl": kl, "top1": top1 if top1 is not None else [1] * len(kl), "finite": finite}


def greedy(prompt: str, tokens: list[int], margins: list[float] | None = None) -> dict[str, Any]:
    return {"prompt": prompt, "tokens": tokens, "margins": margins if margins is not None else [0.5] * len(tokens)}


def test_kl_by_hand():
    """P = (1/2, 1/2), Q = (1/4, 3/4): KL = 1/2 ln 2 + 1/2 ln(2/3) = 1/2 ln(4/3)."""
    rows = kl_rows(np.log([[0.5, 0.5], [0.1, 0.9]]), np.log([[0.25, 0.75], [0.9, 0.1]]))
    assert rows.kl[0] == pytest.approx(0.5 * log(4 / 3))
    assert rows.kl[1] == pytest.approx(0.1 * log(1 / 9) + 0.9 * log(9))
    assert rows.top1.tolist() == [False, False]
    assert kl_rows([[0.0, 2.0]], [[1.0, 1.5]]).top1.tolist() == [True]
    assert rows.finite.all()


def test_kl_ignores_a_shift_of_the_logits_and_stays_exact_for_large_ones():
    ref, var = np.array([[1.0, 2.0, 3.0]]), np.array([[3.0, 1.0, 2.0]])
    assert kl_rows(ref + 1e4, var - 1e4).kl[0] == pytest.approx(kl_rows(ref, var).kl[0], rel=1e-9)
    assert kl_rows(np.array([[1000.0, -1000.0]]), np.array([[0.0, 0.0]])).kl[0] == pytest.approx(log(2))
    assert kl_rows(np.array([[0.0, 0.0]]), np.array([[1000.0, -1000.0]])).kl[0] == pytest.approx(1000 - log(2))


LOGITS = arrays(np.float32, (70, 5), elements=st.floats(-30, 30, width=32))


@given(LOGITS, LOGITS)
def test_kl_is_never_negative_and_zero_for_equals(ref: Any, var: Any):
    assert (kl_rows(ref, var).kl >= 0).all()
    same = kl_rows(ref, ref)
    assert (same.kl == 0).all() and same.top1.all() and len(same.kl) == 70


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nonfinite_logits_are_flagged_not_scored(bad: float):
    logits = np.zeros((3, 4))
    logits[1, 2] = bad
    rows = kl_rows(np.zeros((3, 4)), logits)
    assert rows.finite.tolist() == [True, False, True]
    payload = kl_payload(5, rows)
    assert payload == {"start": 5, "kl": [], "top1": [], "finite": False}
    good = kl_payload(0, kl_rows(np.zeros((2, 3)), np.zeros((2, 3))))
    assert json.loads(json.dumps(good, allow_nan=False))["kl"] == [0.0, 0.0]


@pytest.mark.parametrize(("a", "b"), [((2, 3), (2, 4)), ((2, 3), (3, 3)), ((3,), (3,))])
def test_shapes_must_agree(a: tuple[int, ...], b: tuple[int, ...]):
    with pytest.raises(ValueError, match="positions, vocabulary"):
        kl_rows(np.zeros(a), np.zeros(b))


def test_means_with_block_intervals():
    """Two blocks of 32 with means 0.1 and 0.3: mean 0.2, SE 0.1, t(1) = 12.706."""
    found = figures([kl_row(32, [0.3] * 32, [1, 0] * 16), kl_row(0, [0.1] * 32)], [], [])
    assert found["kl_mean"].value == pytest.approx(0.2)
    assert found["kl_mean"].low == 0.0 and found["kl_mean"].high == pytest.approx(0.2 + 12.7062 * 0.1, rel=1e-4)
    assert found["top1_agreement"].value == 0.75 and found["top1_agreement"].high == 1.0
    assert found["kl_mean"].n == 64
    assert set(found) <= set(METRICS)


def test_a_short_rest_joins_the_last_block():
    sizes = lambda n: [len(block) for block in fidelity._blocks(np.zeros(n), 32)]  # noqa: E731
    assert sizes(64) == [32, 32] and sizes(70) == [32, 38] and sizes(80) == [32, 32, 16] and sizes(10) == [10]


def test_p99_needs_100_positions():
    assert figures([kl_row(0, [0.1] * 99)], [], [])["kl_p99"].reasons == ("small_n",)
    assert figures([kl_row(0, [0.1] * 99)], [], [])["kl_p99"].value is None
    figure = figures([kl_row(0, [float(i) for i in range(101)])], [], [])["kl_p99"]
    assert figure.value == pytest.approx(99.0) and figure.low is not None and figure.low <= 99.0 <= (figure.high or 0)


def test_nonfinite_row_is_left_out_and_named():
    found = figures([kl_row(0, [0.1] * 64), kl_row(64, [], [], finite=False)], [], [])
    assert found["kl_mean"].value == pytest.approx(0.1) and found["kl_mean"].reasons == ("nonfinite",)
    assert not found["top1_agreement"].ranks
    assert figures([kl_row(0, [], [], finite=False)], [], [])["kl_mean"].reasons == ("nonfinite",)


def test_full_agreement_keeps_an_honest_low_end():
    figure = figures([kl_row(0, [0.0] * 320)], [], [])["top1_agreement"]
    assert (figure.value, figure.high) == (1.0, 1.0)
    assert figure.low == pytest.approx(320 / (320 + 1.959964**2))  # Wilson with no failure: n / (n + z^2)


def test_one_block_has_no_interval():
    figure = figures([kl_row(0, [0.1] * 20)], [], [])["kl_mean"]
    assert (figure.value, figure.low, figure.reasons) == (pytest.approx(0.1), None, ("small_n",))


def test_no_rows_is_not_measured():
    assert {figure.reasons for figure in figures([], [], []).values()} == {("not_measured",)}


def test_reference_holds_by_definition_and_ranks():
    found = figures([], [greedy("a", [1, 2, 3])], [], is_reference=True)
    values = {key: figure.value for key, figure in found.items()}
    assert values == {"kl_mean": 0.0, "kl_p99": 0.0, "top1_agreement": 1.0, "greedy_agree_tokens": 3.0}
    assert all(figure.reasons == ("is_reference",) and figure.ranks for figure in found.values())


def test_first_divergence_at_57_of_200():
    ours = list(range(57)) + [-1] * 143
    margins = [float(i) for i in range(200)]
    (found,) = divergences([greedy("p", ours)], [greedy("p", list(range(200)), margins)])
    assert (found.index, found.equal, found.reference_margin) == (57, False, 57.0)


def test_greedy_agreement_is_a_mean_over_prompts():
    references = [greedy("a", [1, 2, 3, 4]), greedy("b", [5, 6, 7, 8]), greedy("c", [9, 9])]
    ours = [greedy("a", [1, 2, 3, 4]), greedy("b", [5, 0, 7, 8]), greedy("unknown", [1])]
    assert [(d.prompt, d.index, d.equal) for d in divergences(ours, references)] == [("a", 4, True), ("b", 1, False)]
    figure = figures([], ours, references)["greedy_agree_tokens"]
    assert figure.value == 2.5 and figure.n == 2 and figure.low == 0.0 and figure.conditions["identical"] == 1


def test_a_text_that_ends_early_parts_at_its_end():
    (found,) = divergences([greedy("a", [1, 2])], [greedy("a", [1, 2, 3], [0.1, 0.2, 0.3])])
    assert (found.index, found.equal, found.reference_margin) == (2, False, 0.3)
    (found,) = divergences([greedy("a", [1, 2, 3])], [greedy("a", [1, 2], [0.1, 0.2])])
    assert (found.index, found.equal, found.reference_margin) == (2, False, None)


def test_text_and_prompts():
    text = fidelity.text()
    assert 9_000 < len(text) < 13_000 and "书店" in text and "def totals_by_city" in text and "épluchait" in text
    prompts = fidelity.greedy_prompts()
    assert len(prompts) == len({prompt.id for prompt in prompts}) == 16
    assert fidelity.greedy_prompts(4) == prompts[:4]
    assert all(prompt.text == prompt.text.rstrip() for prompt in prompts)
