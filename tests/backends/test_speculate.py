from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from harness.backends.llama_cpp.speculate import (
    NgramIndex,
    NonFinite,
    Shared,
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


class Branches:
    """Every way that drawing and accepting can go, with its probability: exact sums in place of samples.

    Stands for ``draw`` and for the random generator: each choice follows a script, and where that ends, the first way;
    ``every`` then goes through all scripts.
    """

    def __init__(self):
        self.script, self.at, self.open, self.weight = [], 0, [], 1.0

    def pick(self, weights):
        ways = [i for i, w in enumerate(weights) if w > 0]
        if self.at == len(self.script):
            self.script.append(0)
            self.open.append(len(ways))
        way = ways[self.script[self.at]]
        self.at += 1
        self.weight *= weights[way]
        return way

    def draw(self, p, rng=None):
        return self.pick((p / p.sum()).tolist())

    def random(self):
        return Chance(self)

    def every(self, run):
        while True:
            self.at, self.weight = 0, 1.0
            yield run(), self.weight
            while self.script and self.script[-1] == self.open[-1] - 1:
                self.script.pop()
                self.open.pop()
            if not self.script:
                return
            self.script[-1] += 1


class Chance:
    """A uniform number times ``scale``; whether it is below a limit is a choice of its own."""

    def __init__(self, branches, scale=1.0):
        self.branches, self.scale = branches, scale

    def __mul__(self, scale):
        return Chance(self.branches, scale)

    def __lt__(self, limit):
        below = min(1.0, limit / self.scale)
        return self.branches.pick([1 - below, below]) == 1


def log(*values):
    with np.errstate(divide="ignore"):
        return np.log(np.array(values, np.float64)).astype(np.float32)


LOGITS = {
    "apart": (log(0.5, 0.2, 0.15, 0.1, 0.05), log(0.1, 0.1, 0.3, 0.5, 0.0)),
    "equal": (log(0.4, 0.3, 0.2, 0.1), log(0.4, 0.3, 0.2, 0.1)),
    "disjoint": (log(0.5, 0.5, 0, 0), log(0, 0, 0.7, 0.3)),
    "one certain": (log(0, 0, 1, 0), log(0.3, 0.3, 0.2, 0.2)),
}
LIMITS = {"whole": (1.0, 0, 1.0), "top-k": (0.7, 2, 1.0), "top-p": (1.3, 0, 0.6), "both": (1.0, 3, 0.8)}


def joint(monkeypatch, p, q, draft=None):
    """Exact distribution of the first two tokens that speculation with two drafts emits.

    ``p[i]``, ``q[i]``: target and draft before token i (p[1] differs from p[0], as after another history). ``draft``: a
    fixed draft, certain as prompt lookup's is.
    """
    branches = Branches()
    monkeypatch.setattr("harness.backends.llama_cpp.speculate.draw", branches.draw)

    def two_tokens():
        drafts = draft or [branches.draw(q[0]), branches.draw(q[1])]
        out = verify_sampled(drafts, [None, None] if draft else q, lambda i: p[min(i, 1)], branches)
        return (out[0], out[1] if len(out) > 1 else branches.draw(p[1]))  # the next step's first token

    found = np.zeros((len(p[0]), len(p[1])))
    for pair, weight in branches.every(two_tokens):
        found[pair] += weight
    return found


@pytest.mark.parametrize("logits", LOGITS.values(), ids=LOGITS)
@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
def test_summed_over_all_drafts_the_output_is_exactly_the_targets(monkeypatch, logits, limits):
    p0, q0 = (probabilities(row, *limits) for row in logits)
    p = [p0, p0[::-1].copy()]
    for q in ([q0, q0], [q0, p[1]], [q0, q0[::-1].copy()]):
        assert np.abs(joint(monkeypatch, p, q) - np.outer(*p)).max() < 1e-12


@pytest.mark.parametrize("draft", [[0, 0], [0, 3], [3, 1], [2, 2]])
@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
def test_summed_after_certain_drafts_the_output_is_exactly_the_targets(monkeypatch, draft, limits):
    p0 = probabilities(LOGITS["apart"][0], *limits)
    p = [p0, p0[::-1].copy()]
    assert np.abs(joint(monkeypatch, p, [], draft) - np.outer(*p)).max() < 1e-12


@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize("size", [3, 5, 8], ids=["shorter draft", "same size", "longer draft"])
def test_a_draft_with_padding_of_its_own_leaves_the_output_exactly_the_targets(monkeypatch, limits, size):
    target = LOGITS["apart"][0]
    shared = Shared(min(size, len(target)), len(target))
    own = np.array([0.1, 0.9, 0.4, 0.2, 0.3, 5.0, 6.0, 7.0], np.float32)[:size]  # it likes its padding best
    q = shared.pad(probabilities(shared.cut(own), *limits))
    assert q.shape == target.shape and q.sum() == pytest.approx(1) and not q[shared.size :].any()
    p0 = probabilities(target, *limits)
    p = [p0, p0[::-1].copy()]
    assert np.abs(joint(monkeypatch, p, [q, q]) - np.outer(*p)).max() < 1e-12


def test_the_sum_sees_a_wrong_rule(monkeypatch):
    """Residuals that are not cut at the draft's probability are off by far more than rounding."""
    monkeypatch.setattr("harness.backends.llama_cpp.speculate.np.maximum", lambda rest, zero: P.copy())
    assert np.abs(joint(monkeypatch, [P, P], [Q, Q]) - np.outer(P, P)).max() > 0.01


def test_ids_that_only_the_target_knows_are_fed_as_the_stand_in():
    assert Shared(4, 6, stand_in=2).readable([0, 3, 4, 5, 1]) == [0, 3, 2, 2, 1]
    assert Shared(4, 6).cut(np.arange(9, dtype=np.float32)).tolist() == [0, 1, 2, 3]


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
