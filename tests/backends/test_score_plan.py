"""Scoring on a toy engine whose logits depend on all tokens before, against brute force."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.backends.base import ScoreRequest
from harness.backends.llama_cpp.score import SEQUENCES, Scorer
from harness.backends.llama_cpp.score_plan import check, gather, groups_at_depths, groups_of
from harness.errors import InputError

from .conftest import ToyContext, toy_logits

tokens = st.lists(st.integers(0, 3), min_size=1, max_size=20).map(tuple)
requests = st.builds(ScoreRequest, context=tokens, continuation=tokens)


def brute(request, before=()):
    history, total, is_greedy = [*before, *request.context], 0.0, True
    for token in request.continuation:
        row = toy_logits(history).astype(np.float64)
        total += row[token] - np.log(np.exp(row).sum())
        is_greedy &= bool(row.argmax() == token)
        history.append(token)
    return pytest.approx(total, abs=1e-5), is_greedy


def run(groups, n, context=None, step=16, can_roll_back=True, together=False):
    context = context or ToyContext(n_ctx=40 + 16)
    found = {}

    def take(i, result):
        assert i not in found, "one result per request"
        found[i] = result

    Scorer(context, step, can_roll_back=can_roll_back, together=together).run(groups, take)
    assert sorted(found) == list(range(n))
    assert all(seqs == {0} for _, _, seqs in context.cells), "branches are dropped"
    return [found[i] for i in range(n)], context


@given(st.lists(requests, min_size=1, max_size=8), st.sampled_from([8, 16, 48]), st.booleans())
def test_scores_equal_brute_force(items, step, together):
    context = ToyContext(capacity=step, n_ctx=40 + step)
    results, _ = run(groups_of(items), len(items), context, step, together=together)
    for request, result in zip(items, results, strict=True):
        assert (result.logprob, result.is_greedy) == brute(request)
        assert result.n_tokens == len(request.continuation) and result.finite


@given(st.lists(requests, min_size=1, max_size=4))
def test_memories_that_cannot_be_cut_are_scored_one_by_one(items):
    context = ToyContext(n_ctx=40)
    context.cut = context.fork = None  # neither may be asked for
    results, _ = run(groups_of(items), len(items), context, can_roll_back=False)
    for request, result in zip(items, results, strict=True):
        assert (result.logprob, result.is_greedy) == brute(request)


@given(st.lists(requests, min_size=2, max_size=8), st.randoms(use_true_random=False))
def test_order_changes_nothing_to_the_bit(items, random):
    order = list(range(len(items)))
    random.shuffle(order)
    straight, _ = run(groups_of(items), len(items))
    shuffled, _ = run(groups_of([items[i] for i in order]), len(items))
    assert [straight[i] for i in order] == shuffled


class Leaking(ToyContext):
    """Logits also depend on how many cells of the cache are in use, as an engine's rounding does."""

    def row(self, index):
        return super().row(index) + np.float32(0.01) * len(self.cells) * np.arange(self.n_vocab, dtype=np.float32)


@given(st.lists(requests, min_size=2, max_size=8), st.randoms(use_true_random=False))
def test_the_cached_length_leaks_into_no_score_when_items_are_shuffled(items, random):
    order = list(range(len(items)))
    random.shuffle(order)
    straight, _ = run(groups_of(items), len(items), Leaking(n_ctx=40 + 16))
    shuffled, _ = run(groups_of([items[i] for i in order]), len(items), Leaking(n_ctx=40 + 16))
    assert [straight[i] for i in order] == shuffled


@given(st.lists(st.integers(0, 3), min_size=1, max_size=18), st.data())
def test_probes_see_only_the_document_before_their_depth(document, data):
    depths = st.integers(0, len(document))
    probes = data.draw(st.lists(st.tuples(depths, requests), min_size=1, max_size=6))
    probes = [(depth, ScoreRequest(probe.context[:9], probe.continuation[:9])) for depth, probe in probes]
    results, _ = run(groups_at_depths(document, probes), len(probes))
    for (depth, probe), result in zip(probes, results, strict=True):
        assert (result.logprob, result.is_greedy) == brute(probe, document[:depth])


def test_a_shared_prefix_is_evaluated_once():
    shared = tuple([1, 2, 3] * 5)
    items = [ScoreRequest((*shared, a, *[5] * 9), (b,)) for a in (6, 7, 8) for b in (9, 10)]
    _, context = run(groups_of(items), len(items))
    assert len(context.evaluated) == len(shared) + 3 * 10


def test_a_document_is_evaluated_once_over_all_depths():
    document = list(range(10)) * 3
    probes = [(depth, ScoreRequest((11,) * 8, (4,))) for depth in (20, 5, 10, 30)]
    _, context = run(groups_at_depths(document, probes), 4)
    assert len(context.evaluated) == 30 + 4 * 8


def test_neighbours_share_a_decode_where_they_may():
    shared = tuple([1, 2, 3] * 5)
    items = [ScoreRequest((*shared, a, 4, 4), options) for a in (5, 6, 7) for options in ((8,), (9, 9, 9))]
    context = ToyContext(capacity=64, n_ctx=100)
    apart, _ = run(groups_of(items), len(items), ToyContext(n_ctx=100))
    together, _ = run(groups_of(items), len(items), context, 64, together=True)
    assert context.sizes == [15 + 3 * (3 + 2)]
    assert [result.logprob for result in together] == pytest.approx([result.logprob for result in apart])


def test_contexts_that_share_little_are_not_gathered():
    def sizes(contexts, room=100, sequences=SEQUENCES):
        items = [ScoreRequest(context, (1,)) for context in contexts]
        return [(len(batch), shared) for batch, shared in gather(groups_of(items), room, sequences)]

    long, other = tuple([1, 2] * 30), tuple([1, 3] * 30)
    assert sizes([(*long, a) for a in range(3, 9)]) == [(6, 60)]
    assert sizes([(*long, a) for a in range(3, 9)], sequences=5) == [(2, 60), (2, 60), (2, 60)]
    assert sizes([(*long, 3), (*other, 3)]) == [(1, 60), (1, 60)]
    # A third that shares one token only would have the first two's 60 evaluated twice.
    assert sizes([(*long, 3), (*long, 4), (1, 3, 3)], room=1000) == [(2, 60), (1, 2)]
    assert sizes([long, (*long, 3)]) == [(2, 59)]  # a context that is another's beginning ends in its own branch


def test_single_token_options_share_one_row():
    context = ToyContext()
    items = [ScoreRequest((1, 2, 3, 4, 5, 6, 7, 8), (token,)) for token in (3, 4, 5, 6)]
    run(groups_of(items), 4, context)
    assert context.sizes == [8]


def test_context_and_options_go_into_one_decode():
    context = ToyContext()
    items = [ScoreRequest((1, 2, 3, 4, 5, 6), (a, 1, 2)) for a in (3, 4, 5)]
    run(groups_of(items), 3, context)
    assert context.sizes == [6 + 3 * 2]


def test_short_rests_are_filled_up_from_the_context():
    context = ToyContext()
    items = [ScoreRequest((*range(11), a), (1,)) for a in (3, 4)]
    run(groups_of(items), 2, context)
    assert context.sizes == [12, 8]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nonfinite_logits_are_marked(bad):
    def poisoned(history):
        row = toy_logits(history)
        if history[-1] == 5:
            row[2] = bad
        return row

    items = [ScoreRequest((1, 5), (3, 4)), ScoreRequest((1, 6), (3, 4))]
    results, _ = run(groups_of(items), 2, ToyContext(poisoned))
    assert [result.finite for result in results] == [False, True]
    assert results[0].logprob == 0.0


def test_toy_case_by_hand():
    """P(b|a) = 0.5 and P(c|ab) = 0.25: ln 0.125 = -2.0794."""
    table = {(0,): {1: 0.5, 3: 0.5}, (0, 1): {2: 0.25, 3: 0.75}}

    def model(history):
        row = np.full(12, -40.0, np.float32)
        for token, p in table.get(tuple(history), {0: 1.0}).items():
            row[token] = np.log(p)
        return row

    results, _ = run(groups_of([ScoreRequest((0,), (1, 2))]), 1, ToyContext(model))
    assert results[0].logprob == pytest.approx(-2.0794, abs=1e-4)
    assert results[0].logprob == pytest.approx(np.log(0.125), abs=1e-6)


def test_requests_are_checked_before_any_work():
    with pytest.raises(InputError, match="request 1: 65 tokens; the context holds 64"):
        check([(0, ScoreRequest((1,), (2,))), (60, ScoreRequest((1, 1), (2, 2, 2)))], 64, 12)
    with pytest.raises(InputError, match="continuation 0; expected both non-empty"):
        check([(0, ScoreRequest((1,), ()))], 64, 12)
    with pytest.raises(InputError, match="context 0 tokens"):
        check([(0, ScoreRequest((), (1,)))], 64, 12)
    with pytest.raises(InputError, match="outside 0 to 11"):
        check([(0, ScoreRequest((1,), (12,)))], 64, 12)
