"""The loops on a toy engine whose logits depend on all tokens before: any fault of the cache changes the output."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from harness.backends.base import Emission, GenerateRequest
from harness.backends.llama_cpp.draft import LookupDrafter, ModelDrafter
from harness.backends.llama_cpp.generate import generate_plain, generate_speculative, margins
from harness.backends.llama_cpp.speculate import Shared
from harness.errors import InputError

from .conftest import TOY_VOCAB, ToyContext, ToyVocab, toy_logits

PROMPT = (1, 2, 3, 1, 2, 3, 1, 2)


def similar(history):
    """A draft model that mostly agrees with the target."""
    return toy_logits(history) + 0.5 * toy_logits([*history, 99])


def repetitive(history):
    """A target that mostly repeats what stood three tokens before, so that lookup is often right."""
    return toy_logits(history) + 3.0 * (np.arange(TOY_VOCAB) == history[-3])


def sized(size):
    """A draft model with a vocabulary of another size: it knows no other ids, and likes its own padding best."""

    def logits(history):
        assert max(history) < size, "a draft was fed an id that it does not have"
        row = np.full(size, 9.0, np.float32)
        shared = min(size, TOY_VOCAB)
        row[:shared] = similar(history)[:shared]
        return row

    return logits


SIZES = {"model": TOY_VOCAB, "shorter": TOY_VOCAB - 3, "longer": TOY_VOCAB + 3}


def drafter(kind, k=4):
    if kind == "lookup":
        return LookupDrafter(3, k)
    size = SIZES[kind]
    shared = Shared(min(size, TOY_VOCAB), TOY_VOCAB, stand_in=5)
    return ModelDrafter(ToyContext(similar if kind == "model" else sized(size)), k, shared)


def run(stream):
    *emissions, end = list(stream)
    assert all(isinstance(emission, Emission) and emission.tokens for emission in emissions)
    return [token for emission in emissions for token in emission.tokens], emissions, end


def plain(request, logits=toy_logits, end=None):
    return run(generate_plain(ToyContext(logits), ToyVocab(end), request))


def speculative(kind, request, logits=toy_logits, end=None, k=4, adapt=False):
    return run(generate_speculative(ToyContext(logits), ToyVocab(end), request, drafter(kind, k), adapt=adapt))


@pytest.mark.parametrize("kind", ["lookup", "model", "shorter", "longer"])
@pytest.mark.parametrize("logits", [toy_logits, repetitive])
@pytest.mark.parametrize("n", [1, 2, 3, 7, 40])
@pytest.mark.parametrize("k", [1, 4])
@pytest.mark.parametrize("adapt", [False, True])
def test_greedy_speculation_emits_what_plain_greedy_emits(kind, logits, n, k, adapt):
    request = GenerateRequest(PROMPT, n, margins=True)
    expected, single, _ = plain(request, logits)
    tokens, emissions, end = speculative(kind, request, logits, k=k, adapt=adapt)
    assert tokens == expected and len(tokens) == n and end.finish_reason == "length"
    assert len(emissions[0].tokens) == 1
    assert [m for e in emissions for m in e.margins] == [m for e in single for m in e.margins]


@pytest.mark.parametrize("kind", ["lookup", "model"])
def test_counters_add_up(kind):
    tokens, emissions, end = speculative(kind, GenerateRequest(PROMPT, 40), repetitive)
    assert end.verify_steps == len(emissions) - 1
    assert end.accepted == sum(len(emission.tokens) - 1 for emission in emissions[1:])
    assert 0 < end.accepted <= end.drafted <= 4 * end.verify_steps
    assert len(tokens) == 1 + end.accepted + end.verify_steps
    assert sum(end.drafted_at) == end.drafted and sum(end.accepted_at) == end.accepted
    # a draft's place counts only where all before it were drafted, and accepted
    assert end.drafted_at == sorted(end.drafted_at, reverse=True) and len(end.drafted_at) == 4
    assert end.accepted_at == sorted(end.accepted_at, reverse=True)
    assert all(a <= d for a, d in zip(end.accepted_at, end.drafted_at, strict=True))
    lengths = [len(emission.tokens) - 1 for emission in emissions[1:]]
    assert end.accepted_at == [sum(length > place for length in lengths) for place in range(4)]


class Scripted:
    """A drafter that is right as often as the script says; asks are recorded."""

    limit = 6

    def __init__(self, truth, right):
        self.truth, self.right, self.asked, self.at = truth, list(right), [], 1

    def start(self, prompt, policy):
        self.asked, self.at = [], 1

    def draft(self, token, k):
        self.asked.append(k)
        good = min(self.right[len(self.asked) - 1], k)
        drafts = self.truth[self.at : self.at + good]
        wrong = [(token + 1) % TOY_VOCAB for token in self.truth[self.at + good : self.at + k]]
        return drafts + wrong, [None] * (len(drafts) + len(wrong))

    def accepted(self, emitted):
        self.at += len(emitted)


@pytest.mark.parametrize(
    ("adapt", "lengths"),
    # of 6 drafts 1 is right, of 5 none, of 4 two, all 3, all 5, all 6 (7 would be over the limit), then none
    [(True, [6, 5, 4, 3, 5, 6, 6, 5]), (False, [6] * 8)],
)
def test_the_draft_length_follows_acceptance_and_starts_anew_with_each_request(adapt, lengths):
    truth = plain(GenerateRequest(PROMPT, 55))[0]
    source = Scripted(truth, [1, 0, 2, 9, 9, 9, 0] + [0] * 60)
    for _ in range(2):
        stream = generate_speculative(ToyContext(), ToyVocab(), GenerateRequest(PROMPT, 50), source, adapt=adapt)
        assert run(stream)[0] == truth[:50]
        assert source.asked[:8] == lengths


def test_without_speculation_there_are_no_counters():
    _, emissions, end = plain(GenerateRequest(PROMPT, 5))
    counters = (end.drafted, end.accepted, end.verify_steps, end.drafted_at, end.accepted_at, end.draft_s, end.verify_s)
    assert counters == (None,) * 7
    assert [len(emission.tokens) for emission in emissions] == [1] * 5


@pytest.mark.parametrize("kind", ["lookup", "model", "shorter", "longer"])
def test_sampled_speculation_keeps_the_targets_distribution(kind):
    counts = {name: np.zeros(TOY_VOCAB) for name in ("plain", "speculative")}
    for seed in range(1500):
        request = GenerateRequest(PROMPT, 3, temperature=1.0, seed=seed)
        counts["plain"][plain(request, repetitive)[0][2]] += 1
        counts["speculative"][speculative(kind, request, repetitive)[0][2]] += 1
    assert stats.chi2_contingency(np.stack([*counts.values()])[:, counts["plain"] > 5]).pvalue > 0.01


@pytest.mark.parametrize("kind", ["plain", "lookup", "model"])
def test_an_end_token_ends_the_output_and_is_not_in_it(kind):
    everything = plain(GenerateRequest(PROMPT, 40), repetitive)[0]
    stop_at = 9
    end_token = everything[stop_at]
    expected = everything[: everything.index(end_token)]
    go = plain if kind == "plain" else lambda *a, **k: speculative(kind, *a, **k)
    tokens, _, end = go(GenerateRequest(PROMPT, 40), repetitive, end=end_token)
    assert tokens == expected and end.finish_reason == "stop"
    tokens, _, end = go(GenerateRequest(PROMPT, 40, ignore_eos=True), repetitive, end=end_token)
    assert tokens == everything and end.finish_reason == "length"


@pytest.mark.parametrize("kind", ["plain", "lookup", "model"])
def test_a_stop_text_across_tokens_cuts_the_text_before_it(kind):
    everything = ToyVocab().detokenize(plain(GenerateRequest(PROMPT, 40), repetitive)[0]).decode()
    stop = everything[10:13]
    at = everything.find(stop)
    go = plain if kind == "plain" else lambda *a, **k: speculative(kind, *a, **k)
    tokens, _, end = go(GenerateRequest(PROMPT, 40, stop=(stop, "zzz")), repetitive)
    assert end.finish_reason == "stop" and end.text == everything[:at] and len(tokens) == at + 3


@pytest.mark.parametrize("kind", ["plain", "lookup", "model"])
def test_nonfinite_logits_end_the_generation(kind):
    def poisoned(history):
        return toy_logits(history) * (np.nan if len(history) >= len(PROMPT) + 5 else 1)

    go = plain if kind == "plain" else lambda *a: speculative(kind, *a)
    tokens, _, end = go(GenerateRequest(PROMPT, 40), poisoned)
    assert end.finish_reason == "nonfinite" and len(tokens) <= 5


def test_tokens_are_yielded_before_the_next_decode():
    context = ToyContext()
    stream = generate_plain(context, ToyVocab(), GenerateRequest(PROMPT, 4))
    for step in range(4):
        next(stream)
        assert len(context.evaluated) == len(PROMPT) + step


def test_each_call_starts_from_an_empty_cache():
    context = ToyContext()
    first = run(generate_plain(context, ToyVocab(), GenerateRequest(PROMPT, 6)))[0]
    run(generate_plain(context, ToyVocab(), GenerateRequest((7, 7), 6)))
    assert run(generate_plain(context, ToyVocab(), GenerateRequest(PROMPT, 6)))[0] == first


def test_prompts_longer_than_a_batch_are_cut_without_a_short_tail():
    context = ToyContext(capacity=16)
    run(generate_plain(context, ToyVocab(), GenerateRequest(tuple([1, 2, 3] * 6), 1)))
    assert context.sizes == [10, 8]


def test_requests_that_cannot_be_served_whole_are_refused():
    from harness.backends.llama_cpp.generate import check

    with pytest.raises(InputError, match=r"8 tokens \+ 60 to generate = 68; the context holds 64"):
        check(GenerateRequest(PROMPT, 60), ToyVocab(), 64)
    with pytest.raises(InputError, match="no tokens"):
        check(GenerateRequest((), 1), ToyVocab(), 64)
    with pytest.raises(InputError, match="outside 0 to 11"):
        check(GenerateRequest((12,), 1), ToyVocab(), 64)
    check(GenerateRequest(PROMPT, 56), ToyVocab(), 64)


@pytest.mark.parametrize("batch", [1, 3, 5, 16])
def test_margins_of_a_given_text_are_those_of_its_generation(batch):
    tokens, emissions, _ = plain(GenerateRequest(PROMPT, 12, margins=True))
    context = ToyContext()
    assert margins(context, PROMPT, tokens, batch) == [m for e in emissions for m in e.margins]
    assert context.sizes == [8, *[min(batch, 11 - at) for at in range(0, 11, batch)]]


def test_a_token_behind_another_has_a_negative_margin_and_nan_has_none():
    (first, *_), *_ = plain(GenerateRequest(PROMPT, 1))
    best = np.sort(toy_logits(PROMPT))[-1]
    assert margins(ToyContext(), PROMPT, [(first + 1) % TOY_VOCAB], 1) == [
        pytest.approx(toy_logits(PROMPT)[(first + 1) % TOY_VOCAB] - best)
    ]
    assert margins(ToyContext(lambda history: np.full(TOY_VOCAB, np.nan, np.float32)), PROMPT, [1], 1) == [None]
