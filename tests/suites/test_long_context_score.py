"""Long-context figures on hand-made rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from harness.metrics.catalog import METRICS
from harness.record import Figure
from harness.stats.interval import wilson
from harness.suites.long_context import at_chance, depth_series, figures
from harness.suites.long_context.degeneration import window_scores
from harness.suites.long_context.score import chosen
from harness.suites.resample import share_draws


def row(fact: str, right: bool, family: str = "ledger", depth: int = 512, asked: int = 0) -> dict[str, Any]:
    logprobs = [-5.0, -5.5, -6.0, -6.5]
    logprobs[2 if right else 1] = -1.0
    where = {"text": "t", "depth": depth, "family": family, "fact": fact, "asked": asked}
    return where | {"gold": 2, "logprobs": logprobs, "finite": True}


def continuation(tokens: list[int], text: str = "t", finish: str = "length") -> dict[str, Any]:
    return {"text": text, "tokens": tokens, "output": "", "finish_reason": finish}


def test_accuracies_by_family():
    rows = [row(f"a{i}", i < 6) for i in range(8)]
    rows += [row("m", True, family="multikey"), row("c", False, family="tracking")]
    found = figures(rows, [continuation(list(range(500)))])
    assert found["ledger_acc"].value == 0.75 and found["ledger_acc"].n == 8
    assert found["tracking_acc"].value == 0.5 and found["tracking_acc"].n == 2
    assert set(found) <= set(METRICS)


@pytest.mark.parametrize(
    ("ledger", "tracking", "tokens", "expected"),
    [
        (8, 4, list(range(500)), 10.0),  # perfect
        (2, 1, [7] * 500, 1 + 9 * 0.25 * (1 / 497) / 0.8125),  # guessing and a forced loop: one 4-gram of 497
        (0, 0, [7] * 500, 1.0),  # below the floor is still 1
        (4, 2, list(range(500)), 1 + 9 * (0.5 * 0.5 + 0.25 * 0.5 + 0.25 - 0.1875) / 0.8125),
    ],
)
def test_coherence_scale(ledger: int, tracking: int, tokens: list[int], expected: float):
    rows = [row(f"a{i}", i < ledger) for i in range(8)]
    rows += [row(f"c{i}", i < tracking, family="tracking") for i in range(4)]
    figure = figures(rows, [continuation(tokens)])["coherence_1_10"]
    assert figure.value == pytest.approx(expected)
    assert figure.low is not None and figure.high is not None and figure.low <= figure.value <= figure.high
    assert figure.conditions["floor"] == 0.1875


def test_missing_part_makes_coherence_missing_not_zero():
    found = figures([row("a", True)], [])
    assert found["coherence_1_10"].value is None
    assert "not_measured" in found["coherence_1_10"].reasons
    assert found["nondegeneration"].reasons == ("not_measured",)
    assert found["nondegeneration"].conditions == {}


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 2, 1, 0]])
def test_nan_scores_are_invalid_wherever_they_stand(order: list[int]):
    scores = [math.nan, -1.0, -2.0, -3.0]
    bad = row("a", True) | {"logprobs": [scores[i] for i in order], "gold": order.index(0), "finite": True}
    found = figures([bad, row("b", True)], [])
    assert found["ledger_acc"].value == 1.0 and found["ledger_acc"].n == 1
    assert "nonfinite" in found["ledger_acc"].reasons and not found["ledger_acc"].ranks


def test_flagged_row_is_left_out_even_with_good_numbers():
    found = figures([row("a", True) | {"finite": False}], [])
    assert found["ledger_acc"].value is None and found["ledger_acc"].reasons == ("nonfinite",)


def test_exact_tie_is_not_an_answer():
    assert chosen({"logprobs": [0.0, 0.0, 0.0, 0.0]}) is None
    assert figures([row("a", True) | {"logprobs": [0.0] * 4, "gold": 0}], [])["ledger_acc"].value == 0.0


def test_inconsistency_counts_facts_per_depth_not_correctness():
    rows = [row("same-wrong", False, asked=k) for k in (0, 1)]
    rows += [row("torn", True, asked=0), row("torn", False, asked=1)]
    rows += [row("torn", True, asked=0, depth=1024), row("torn", True, asked=1, depth=1024)]
    rows += [row("asked-once", True)]
    figure = figures(rows, [])["inconsistency"]
    assert figure.value == pytest.approx(1 / 3) and figure.n == 3


def test_interval_redraws_facts_not_probes():
    """Eight probes of two facts know less than eight probes of eight facts."""
    few = [row(f"a{i % 2}", i % 2 == 0, depth=d) for d in (1, 2, 3, 4) for i in range(2)]
    many = [row(f"a{i}", i % 2 == 0) for i in range(8)]
    wide, narrow = figures(few, [])["ledger_acc"], figures(many, [])["ledger_acc"]
    assert wide.value == narrow.value == 0.5
    assert (wide.low, wide.high) == (0.0, 1.0)
    assert narrow.low is not None and narrow.low > 0.0
    assert "small_n" in wide.reasons


def test_all_right_still_has_a_width():
    figure = figures([row(f"a{i}", True) for i in range(10)], [])["ledger_acc"]
    assert figure.value == 1.0 and figure.high == 1.0
    assert figure.low == pytest.approx(wilson(10, 10).low) and figure.low < 0.75


def test_bootstrap_is_seeded_and_matches_a_loop():
    clusters, hits = ["a", "a", "b", "c"], [1.0, 0.0, 1.0, 1.0]
    draws = share_draws(clusters, hits, 7, draws=500)
    assert np.array_equal(draws, share_draws(clusters, hits, 7, draws=500))
    weights = np.random.default_rng(7).multinomial(3, [1 / 3] * 3, size=500)
    by_hand = [(w[0] * 1 + w[1] + w[2]) / (w[0] * 2 + w[1] + w[2]) for w in weights]
    assert draws == pytest.approx(by_hand)


def test_depth_series():
    rows = [row("a", True), row("b", False), row("a", True, depth=1024)]
    series = depth_series(rows)
    assert [(point["depth"], point["value"], point["n"]) for point in series] == [(512, 0.5, 2), (1024, 1.0, 1)]


def test_windows_and_seq_rep_4():
    assert window_scores([1, 2, 3, 4, 1, 2, 3, 4])[0].seq_rep_4 == pytest.approx(1 - 4 / 5)
    assert window_scores([1, 2, 3]) == ()
    assert [w.n_tokens for w in window_scores(list(range(1100)))] == [500, 500]  # a rest of 100 is too short
    assert [w.n_tokens for w in window_scores(list(range(1250)))] == [500, 500, 250]
    assert [w.n_tokens for w in window_scores(list(range(90)))] == [90]


def test_nondegeneration_is_a_mean_over_windows():
    found = figures([], [continuation(list(range(500)) + [7] * 500)])["nondegeneration"]
    assert found.value == pytest.approx((1 + 1 / 497) / 2) and found.n == 2
    assert found.low is None and "small_n" in found.reasons  # one text has no spread between texts


def test_broken_or_empty_continuations():
    assert figures([], [continuation([1, 2], finish="stop")])["nondegeneration"].reasons == ("undefined",)
    found = figures([], [continuation([], finish="nonfinite"), continuation(list(range(50)))])["nondegeneration"]
    assert found.value == 1.0 and "nonfinite" in found.reasons


def test_at_chance():
    assert at_chance(Figure(0.3, 0.25, 0.4, 50))
    assert not at_chance(Figure(0.5, 0.4, 0.6, 50))
    assert at_chance(Figure(None, reasons=("nonfinite",)))
