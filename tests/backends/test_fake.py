from __future__ import annotations

import numpy as np
import pytest

from harness.backends.base import EngineSpec, GenerateEnd, GenerateRequest, ScoreRequest, Speculate
from harness.backends.fake import BOS, EOS, FakeBackend
from harness.errors import InputError


def fake(weights="f16", speculate=None, logits=None, **extra):
    backend = FakeBackend(logits)
    backend.load(EngineSpec("fake", "none", "0", weights, ctx=256, speculate=speculate or Speculate(), extra=extra))
    return backend


def scores(backend, requests):
    found = {}
    backend.score(requests, found.__setitem__)
    return [found[i] for i in range(len(requests))]


def test_text_survives_the_tokenizer():
    backend = fake()
    text = "Answer: A the fox 入 naïve\n    return 1"
    assert backend.detokenize(backend.tokenize(text)).decode() == text


def test_pieces_merge_across_a_join():
    backend = fake(pieces=["Answer", ": A"])
    pieces = [backend.detokenize([token]) for token in backend.tokenize("Answer: A")]
    assert pieces == [b"Answer", b": A"]
    assert [backend.detokenize([token]) for token in backend.tokenize("Answer:")] == [b"Answer", b":"]


@pytest.mark.parametrize("add_bos", [True, False])
@pytest.mark.parametrize("template", [True, False])
def test_exactly_one_bos_where_the_model_wants_one(add_bos, template):
    backend = fake(add_bos=add_bos)
    text = backend.render_chat([{"role": "user", "content": "hi"}]) if template else "hi"
    tokens = backend.tokenize(text, special=template, bos=True)
    assert tokens.count(BOS) == (1 if add_bos or template else 0)  # a template's own BOS stays
    assert backend.tokenize("<s>hi", special=True, bos=True).count(BOS) == 1


def test_a_template_that_is_not_there_is_refused():
    with pytest.raises(InputError, match="chat_template"):
        fake(template=False).render_chat([{"role": "user", "content": "hi"}])


def test_scores_are_deterministic_and_independent_of_order():
    requests = [ScoreRequest((5, 6), (7, 8)), ScoreRequest((5,), (9,)), ScoreRequest((1, 2, 3), (4,))]
    straight = scores(fake(), requests)
    assert straight == list(reversed(scores(fake(), requests[::-1])))
    assert all(result.logprob < 0 and result.finite for result in straight)
    assert straight != scores(fake("q2_k"), requests)


def test_score_equals_the_sum_over_its_logits():
    backend, request = fake(), ScoreRequest((5, 6, 7), (8, 9))
    rows = np.concatenate([rows for _, rows in backend.logits((*request.context, *request.continuation), batch=2)])
    rows = rows.astype(np.float64)
    logprobs = rows - np.log(np.exp(rows).sum(axis=1, keepdims=True))
    assert scores(backend, [request])[0].logprob == pytest.approx(logprobs[2, 8] + logprobs[3, 9])


def test_probes_see_only_their_depth():
    backend, found = fake(), {}
    probe = ScoreRequest((6,), (7,))
    backend.score_at_depths((10, 11, 12), [(1, probe), (3, probe), (0, probe)], found.__setitem__)
    assert found[0] == scores(backend, [ScoreRequest((10, 6), (7,))])[0]
    assert found[2] == scores(backend, [probe])[0]


def test_a_given_model_can_depend_on_anything():
    def model(tokens):
        return np.full(280, float(len(tokens)), np.float32)

    result = scores(fake(logits=model), [ScoreRequest((5,), (6,))])[0]
    assert result.logprob == pytest.approx(-np.log(280))


def test_nonfinite_is_marked_and_ends_generations():
    backend = fake(nonfinite="Q")
    assert not scores(backend, [ScoreRequest(tuple(backend.tokenize("Q")), (5,))])[0].finite
    assert list(backend.generate(GenerateRequest(tuple(backend.tokenize("Q")), 5))) == [GenerateEnd("nonfinite", "")]


def test_script_stop_and_length():
    backend = fake(script="def f(): return 1")
    *emissions, end = backend.generate(GenerateRequest((5,), 50))
    assert end == GenerateEnd("stop", "def f(): return 1")
    assert all(len(emission.tokens) == 1 for emission in emissions)
    *_, end = backend.generate(GenerateRequest((5,), 50, stop=(": ",)))
    assert end == GenerateEnd("stop", "def f()")
    *emissions, end = backend.generate(GenerateRequest((5,), 40, ignore_eos=True))
    assert end.finish_reason == "length" and sum(len(e.tokens) for e in emissions) == 40
    assert EOS in [token for emission in emissions for token in emission.tokens]


def test_speculation_emits_bursts_and_counts_them():
    plain = [t for e in list(fake().generate(GenerateRequest((5,), 30)))[:-1] for t in e.tokens]
    *emissions, end = fake(speculate=Speculate("prompt_lookup", tokens=4)).generate(GenerateRequest((5,), 30))
    assert [token for emission in emissions for token in emission.tokens] == plain
    assert len(emissions[0].tokens) == 1 and max(len(emission.tokens) for emission in emissions) == 3
    assert end.verify_steps == len(emissions) - 1
    assert end.accepted == len(plain) - 1 - end.verify_steps
    assert end.drafted == 4 * end.verify_steps


def texts(backend, n=30):
    """With speculation, and without."""
    for speculate in (True, False):
        *emissions, end = backend.generate(GenerateRequest((5,), n, margins=True, speculate=speculate))
        yield [t for e in emissions for t in e.tokens], [m for e in emissions for m in e.margins], end


def test_counters_by_place_add_up_and_a_request_can_do_without_speculation():
    (tokens, _, end), (plain, _, plain_end) = texts(fake(speculate=Speculate("prompt_lookup", tokens=1)))
    assert tokens == plain and plain_end.drafted is None
    assert (sum(end.drafted_at), sum(end.accepted_at)) == (end.drafted, end.accepted)
    assert end.accepted <= end.drafted == end.verify_steps
    assert end.draft_s / (end.draft_s + end.verify_s) == pytest.approx(0.25)


def test_a_lossy_engine_takes_the_second_best_once_and_only_where_it_speculates():
    backend = fake(speculate=Speculate("prompt_lookup", tokens=4), lossy=7)
    (tokens, _, _), (plain, margins, _) = texts(backend)
    assert tokens[:7] == plain[:7] and tokens[7] != plain[7] and margins[7] > 0
    assert backend.margins((5,), plain, batch=5) == pytest.approx(margins)


def test_rounding_moves_the_margins_of_a_verification_alone():
    backend = fake(speculate=Speculate("prompt_lookup", tokens=4), rounding=0.05)
    (_, _, _), (plain, margins, _) = texts(backend)
    assert backend.margins((5,), plain, batch=1) == margins
    moved = np.abs(np.subtract(backend.margins((5,), plain, batch=5), margins))
    assert moved[0] == 0 and 0 < moved[1:].max() < 1
    assert fake(nonfinite="Q").margins(tuple(fake().tokenize("Q")), [5], batch=1) == [None]


def test_too_long_a_request_is_refused():
    with pytest.raises(InputError, match="300 tokens"):
        scores(fake(), [ScoreRequest((5,) * 299, (6,))])
    with pytest.raises(InputError, match="at most 256"):
        fake().generate(GenerateRequest((5,) * 250, 10))
