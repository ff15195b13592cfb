from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from harness.backends.llama_cpp.speculate import (
    NgramIndex,
    NonFinite,
    draw,
    greedy,
    margin,
    probabilities,
    verify_greedy,
    verify_sampled,
)

P = np.array([0.5, 0.2, 0.15, 0.1, 0.05])
Q = np.array([0.1, 0.1, 0.3, 0.5, 0.0])


def first_tokens(q, n=20_000):
    rng = np.random.default_rng(11)
    out = np.zeros(5)
    for _ in range(n):
        draft = 2 if q is None else draw(q, rng)
        out[verify_sampled([draft], [q], lambda i: P, rng)[0]] += 1
    return out


@pytest.mark.parametrize("q", [Q, None], ids=["model draft", "certain draft"])
def test_emitted_token_has_the_targets_distribution(q):
    seen = first_tokens(q)
    assert stats.chisquare(seen, P * seen.sum()).pvalue > 0.01
    # the same test sees a rule that is wrong: drafts taken as they are
    assert stats.chisquare(seen, (Q + 1e-6) / (Q + 1e-6).sum() * seen.sum()).pvalue < 1e-6


def test_second_token_after_an_accepted_draft_has_the_targets_distribution():
    rng, second = np.random.default_rng(6), np.zeros(5)
    for _ in range(20_000):
        drafts = [draw(Q, rng), draw(Q, rng)]
        out = verify_sampled(drafts, [Q, Q], lambda i: P, rng)
        if len(out) > 1:
            second[out[1]] += 1
    assert stats.chisquare(second, P * second.sum()).pvalue > 0.01


def test_acceptance_rate_is_the_overlap_of_both_distributions():
    rng, kept = np.random.default_rng(3), 0
    for _ in range(20_000):
        draft = draw(Q, rng)
        kept += len(verify_sampled([draft], [Q], lambda i: P, rng)) == 2
    overlap = np.minimum(P, Q).sum()  # 0.1 + 0.1 + 0.15 + 0.1 = 0.45
    assert overlap == pytest.approx(0.45)
    assert kept / 20_000 == pytest.approx(overlap, abs=0.015)


def test_equal_distributions_accept_everything():
    rng = np.random.default_rng(0)
    assert all(len(verify_sampled([draw(P, rng)], [P], lambda i: P, rng)) == 2 for _ in range(2_000))


@pytest.mark.parametrize(
    ("drafts", "target", "expected"),
    [
        ([5, 6, 7], [5, 6, 7, 8], [5, 6, 7, 8]),
        ([5, 6, 7], [5, 9, 7, 8], [5, 9]),
        ([5, 6, 7], [4, 6, 7, 8], [4]),
        ([], [3], [3]),
    ],
)
def test_greedy_keeps_the_agreeing_drafts_and_one_more(drafts, target, expected):
    asked = []
    assert verify_greedy(drafts, lambda i: asked.append(i) or target[i]) == expected
    assert asked == list(range(len(expected)))  # no row is looked at that isn't needed


def test_ngram_longest_match_wins_over_a_later_shorter_one():
    index = NgramIndex([1, 2, 3, 7, 9, 3, 8, 1, 2, 3], 3)
    assert index.draft(2) == [7, 9]


def test_ngram_latest_occurrence_wins_and_an_ending_never_finds_itself():
    assert NgramIndex([1, 5, 1, 6, 1], 1).draft(1) == [6]
    assert NgramIndex([1, 2, 3], 3).draft(4) == []
    assert NgramIndex([], 3).draft(4) == []


def test_ngram_a_single_token_is_too_little_to_draft_from():
    assert NgramIndex([1, 2, 9, 2], 3).draft(2) == []
    assert NgramIndex([1, 2, 9, 2], 1).draft(2) == [9, 2]


def test_ngram_goes_on_with_a_period():
    assert NgramIndex([1, 2, 1, 2, 1], 2).draft(5) == [2, 1, 2, 1, 2]


@given(st.lists(st.integers(0, 3), max_size=40), st.integers(1, 4), st.integers(0, 40))
def test_ngram_extending_step_by_step_equals_building_at_once(tokens, longest, cut):
    grown = NgramIndex(tokens[:cut], longest)
    grown.extend(tokens[cut:])
    draft = grown.draft(3)
    assert draft == NgramIndex(tokens, longest).draft(3)
    brute = next(
        (
            tokens[start + n :]
            for n in range(min(longest, len(tokens)), min(1, longest - 1), -1)
            for start in range(len(tokens) - n - 1, -1, -1)
            if tokens[start : start + n] == tokens[len(tokens) - n :]
        ),
        [],
    )
    assert draft[: len(brute)] == brute[:3]


def test_probabilities_temperature_top_k_and_top_p():
    logits = np.log(np.array([0.4, 0.3, 0.2, 0.1], np.float32))
    assert probabilities(logits, 1.0) == pytest.approx([0.4, 0.3, 0.2, 0.1], abs=1e-6)
    assert probabilities(logits, 0.5) == pytest.approx(np.array([16, 9, 4, 1]) / 30, abs=1e-6)
    assert probabilities(logits, 1.0, top_k=3) == pytest.approx(np.array([4, 3, 2, 0]) / 9, abs=1e-6)
    assert probabilities(logits, 1.0, top_p=0.6) == pytest.approx(np.array([4, 3, 0, 0]) / 7, abs=1e-6)
    assert probabilities(logits, 1.0, top_p=0.01) == pytest.approx([1, 0, 0, 0])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_any_nan_or_infinity_is_found(bad, at):
    row = np.array([1.0, 2.0, 3.0], np.float32)
    row[at] = bad
    with pytest.raises(NonFinite):
        greedy(row)
    with pytest.raises(NonFinite):
        probabilities(row, 1.0)


def test_masked_tokens_are_no_fault_but_all_masked_is():
    assert greedy(np.array([-np.inf, 2.0], np.float32)) == 1
    with pytest.raises(NonFinite):
        greedy(np.full(2, -np.inf, np.float32))


@pytest.mark.parametrize(("row", "expected"), [([1, 4, 2.5], 1.5), ([4, 1, 2.5], 1.5), ([1, 2.5, 4], 1.5), ([3, 3], 0)])
def test_margin_is_the_gap_to_the_second(row, expected):
    logits = np.array(row, np.float32)
    assert margin(logits, int(logits.argmax())) == expected
