"""Figures of tasks by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from harness.metrics.tasks import compare, figure
from harness.stats.interval import wilson


def judged(values: Sequence[Any], key: str = "m,none", finite: bool = True) -> list[dict[str, Any]]:
    return [{"doc_id": n, "values": {key: value}, "finite": finite} for n, value in enumerate(values)]


def metric(how: str, value: float | None = 0.0) -> dict[str, Any]:
    return {"key": "m,none", "value": value, "higher_is_better": True, "aggregation": how}


def test_a_share_has_wilsons_interval() -> None:
    found, by_hand = figure(judged([1, 0, 0, 1]), metric("mean")), wilson(2, 4)
    assert (found.value, found.low, found.high, found.n) == (0.5, by_hand.low, by_hand.high, 4)


def test_other_means_have_students() -> None:
    found = figure(judged([1.0, 2.0, 3.0]), metric("mean"))
    assert (found.value, found.low, found.high) == (
        2.0,
        pytest.approx(-0.4841, abs=1e-4),
        pytest.approx(4.4841, abs=1e-4),
    )


def test_perplexity_of_words_is_that_of_all_words_together() -> None:
    found = figure(judged([[-6.0, 4], [-2.0, 4]]), metric("weighted_perplexity"))
    assert found.value == pytest.approx(math.e)  # exp(8 / 8)
    assert found.low is not None and found.low < math.e < found.high
    bits = figure(judged([[-6.0, 4], [-2.0, 4]]), metric("bits_per_byte"))
    assert bits.value == pytest.approx(1 / math.log(2))


def test_what_cannot_be_put_together_here_is_lm_evals_own_value() -> None:
    found = figure(judged([[1, 2], [3, 4]]), metric("f1", 0.75))
    assert (found.value, found.low, found.high, found.n) == (0.75, None, None, 2)
    assert figure(judged(["a"]), metric("f1", None)).reasons == ("undefined",)


def test_one_infinite_score_fails_the_task() -> None:
    rows = [*judged([1, 0]), {"doc_id": 2, "values": {"m,none": 0}, "finite": False}]
    assert figure(rows, metric("mean")).reasons == ("nonfinite",)
    assert figure([], metric("mean")).reasons == ("not_measured",)


def test_difference_of_shares_counts_what_became_right_and_wrong() -> None:
    found = compare(judged([1, 0, 0, 0]), judged([0, 1, 1, 0]), metric("mean"))
    assert found is not None
    assert (found.delta.value, found.fixed, found.broken, found.relative) == (-0.25, 1, 2, False)
    assert found.p == pytest.approx(0.625 + 0.0, abs=0.2) and found.delta.low < -0.25 < found.delta.high


def test_perplexities_are_compared_as_a_ratio() -> None:
    ours, base = judged([[-8.0, 4], [-4.0, 4]]), judged([[-6.0, 4], [-2.0, 4]])
    found = compare(ours, base, metric("weighted_perplexity"))
    assert found is not None and found.relative
    assert found.delta.value == pytest.approx(math.exp(0.5))  # 4 nats more over 8 words
    assert found.delta.low == pytest.approx(math.exp(0.5)) == found.delta.high  # the same in every document


def test_only_documents_of_both_are_compared() -> None:
    found = compare(judged([1, 1, 1]), judged([1, 0]), metric("mean"))
    assert found is not None and found.delta.n == 2
    assert compare(judged([1]), [], metric("mean")) is None
    assert compare(judged([[1, 2]]), judged([[1, 2]]), metric("f1")) is None
