"""The engine on the real default model, at small sizes."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from harness.backends.base import EngineSpec, GenerateRequest, ScoreRequest, Speculate
from harness.errors import InputError

pytestmark = pytest.mark.engine
STORY = (
    "Once upon a time there was a fox who lived in a forest. The fox liked apples. "
    "Once upon a time there was a fox who lived"
)


def spec(folder, weights="f16", **settings):
    settings = {"threads": 1, "ctx": 512, "batch": 256, "ubatch": 256} | settings
    return EngineSpec("llama_cpp", str(folder / f"{weights}.gguf"), "0", weights, **settings)


@pytest.fixture(scope="module")
def engine(demo_model_dir):
    """A function that gives a loaded backend per weight precision, one at a time."""
    from harness.backends.llama_cpp.engine import LlamaCppBackend

    loaded = {}

    def get(weights="f16", **settings):
        key = (weights, repr(sorted(settings.items())))
        if key not in loaded:
            for backend in loaded.values():
                backend.close()
            loaded.clear()
            backend = LlamaCppBackend()
            backend.info = backend.load(spec(demo_model_dir, weights, **settings))
            loaded[key] = backend
        return loaded[key]

    yield get
    for backend in loaded.values():
        backend.close()


def run(backend, request):
    *emissions, end = backend.generate(request)
    return [token for emission in emissions for token in emission.tokens], emissions, end


def scores(backend, requests):
    found = {}
    backend.score(requests, found.__setitem__)
    return [found[i] for i in range(len(requests))]


def requests_of(backend):
    questions = ("What do foxes eat", "Where do foxes live", "Who told the story of the fox and the apples")
    options = (" apples", " in a deep forest", " nobody knows", " Paris is the capital of France")
    return [
        ScoreRequest(tuple(backend.tokenize(f"{STORY} apples.\nQuestion: {q}?\nAnswer:")), tuple(backend.tokenize(o)))
        for q in questions
        for o in options
    ]


def by_logits(backend, request, **settings):
    tokens = (*request.context, *request.continuation)
    rows = np.concatenate([rows for _, rows in backend.logits(tokens, **settings)]).astype(np.float64)
    rows -= rows.max(axis=1, keepdims=True)
    rows -= np.log(np.exp(rows).sum(axis=1, keepdims=True))
    first = len(request.context)
    return sum(rows[i - 1, tokens[i]] for i in range(first, len(tokens)))


def test_info_is_read_back(engine, demo_model_dir):
    info = engine("f16").info
    assert (info.architecture, info.n_layers, info.n_vocab, info.n_ctx) == ("llama", 30, 49152, 512)
    assert info.n_params == 134_515_008 and info.threads == 1 and info.has_chat_template and not info.adds_bos
    assert 2 * info.n_params == pytest.approx(info.weight_bytes, rel=0.001)
    assert info.active_bytes_per_token == pytest.approx(info.weight_bytes, rel=0.001)  # tied embedding, counted once
    assert info.kv_bytes_per_token == 30 * 3 * 64 * 2 * 2 and info.kv_bytes == 512 * info.kv_bytes_per_token
    assert info.placement["gpu_layers"] == 0 and info.placement["bits_per_weight"] == pytest.approx(16, rel=0.001)


def test_kv_bytes_equal_what_the_engine_says_it_allocated(engine):
    import re

    from harness.backends.llama_cpp.library import RECENT_LOG

    RECENT_LOG.clear()
    info = engine("f16", ctx=1024).info
    said = re.search(r"KV buffer size =\s*([\d.]+) MiB", "".join(RECENT_LOG))
    assert said and float(said.group(1)) * 2**20 == pytest.approx(info.kv_bytes, rel=0.01)


def test_text_survives_the_tokenizer_and_pieces_may_end_inside_a_character(engine):
    backend, text = engine(), "naïve 入口 😀 fox\n    return 1"
    tokens = backend.tokenize(text)
    assert backend.detokenize(tokens).decode() == text
    assert b"".join(backend.detokenize([token]) for token in tokens).decode() == text


def test_greedy_is_deterministic_from_an_empty_cache(engine):
    backend = engine()
    request = GenerateRequest(tuple(backend.tokenize(STORY)), 12, ignore_eos=True, margins=True)
    first, emissions, end = run(backend, request)
    run(backend, GenerateRequest(tuple(backend.tokenize("Something else entirely")), 5))
    assert run(backend, request)[0] == first and len(first) == 12
    assert end.finish_reason == "length" and end.text == backend.detokenize(first).decode()
    assert all(len(e.tokens) == 1 and e.margins[0] >= 0 for e in emissions)


def test_seeded_sampling_repeats_and_seeds_differ(engine):
    backend = engine()
    prompt = tuple(backend.tokenize("The weather today is"))

    def sample(seed):
        return run(backend, GenerateRequest(prompt, 12, temperature=1.0, top_k=50, top_p=0.95, seed=seed))[0]

    assert sample(1) == sample(1)
    assert len({tuple(sample(seed)) for seed in range(3)}) > 1


def test_stop_text_ends_the_generation(engine):
    backend = engine()
    *_, end = backend.generate(GenerateRequest(tuple(backend.tokenize(STORY)), 30, stop=(".",), ignore_eos=True))
    assert end.finish_reason == "stop" and "." not in end.text and end.text


def test_a_request_that_takes_the_cache_stops_the_one_before(engine):
    backend = engine()
    request = GenerateRequest(tuple(backend.tokenize(STORY)), 5)
    stream = backend.generate(request)
    next(stream)
    run(backend, request)
    with pytest.raises(RuntimeError, match="another request"):
        next(stream)


@pytest.mark.parametrize("kind", ["prompt_lookup", "draft_model"])
def test_speculation_on_f16_emits_the_greedy_tokens(engine, demo_model_dir, kind):
    backend = engine()
    request = GenerateRequest(tuple(backend.tokenize(STORY)), 24, ignore_eos=True, margins=True)
    plain, singles, _ = run(backend, request)
    speculate = Speculate(kind, tokens=4, draft_path=str(demo_model_dir / "q4_0.gguf"))
    backend = engine("f16", speculate=speculate)
    tokens, emissions, end = run(backend, request)
    first = next((i for i, (a, b) in enumerate(zip(plain, tokens, strict=True)) if a != b), None)
    # verification batches round differently, so a divergence is no fault where the top two were nearly tied
    assert first is None or singles[first].margins[0] < 0.02, f"first divergence at token {first}"
    assert len(tokens) == 24 and len(emissions[0].tokens) == 1
    assert end.accepted > 0 and len(tokens) == 1 + end.accepted + end.verify_steps
    assert run(backend, request)[0] == tokens
    if kind == "draft_model":
        assert 0 < backend.info.draft_weight_bytes < backend.info.weight_bytes
        assert end.draft_s > 0 and end.verify_s > 0


@pytest.mark.parametrize("weights", ["f16", "q8_0", "q4_0"])
def test_scores_do_not_depend_on_order_and_equal_scoring_alone(engine, weights):
    backend = engine(weights)
    items = requests_of(backend)
    together = scores(backend, items)
    order = np.random.default_rng(1).permutation(len(items))
    assert [together[i] for i in order] == scores(backend, [items[i] for i in order])  # to the bit
    # groups of one context don't touch each other: left out or not, to the bit
    assert scores(backend, items[4:8]) == together[4:8]
    # an option beside others lies in other cells of the cache and rounds differently there
    alone = [scores(backend, [item])[0] for item in items[:4]]
    for one, many in zip(alone, together, strict=False):
        assert one.logprob == pytest.approx(many.logprob, abs=0.02 if weights == "f16" else 0.4)
    assert all(result.finite and result.logprob < 0 for result in together)


@pytest.mark.parametrize("weights", ["f16", "q8_0"])
def test_contexts_side_by_side_score_as_each_alone(engine, weights):
    from harness.backends.llama_cpp import score, score_plan

    backend, found = engine(weights), {}
    items = requests_of(backend)
    apart = scores(backend, items)
    scorer = score.Scorer(backend._scoring(512).context, 512, can_roll_back=True, together=True)
    scorer.run(score_plan.groups_of(items), found.__setitem__)
    for i, one in enumerate(apart):
        assert found[i].logprob == pytest.approx(one.logprob, abs=0.02 if weights == "f16" else 0.4)
        assert found[i].n_tokens == one.n_tokens and found[i].finite


def test_scores_equal_the_sum_over_full_logits(engine):
    backend = engine("q8_0")
    for request in requests_of(backend)[:8:5]:
        alone = scores(backend, [request])[0]
        assert alone.logprob == pytest.approx(by_logits(backend, request), abs=1e-4)


def test_prompt_kernels_are_stable_over_micro_batches_of_seven_and_more(engine):
    backend = engine("q8_0")
    tokens = backend.tokenize(STORY)
    whole = np.concatenate([rows for _, rows in backend.logits(tokens)])
    parts = np.concatenate([rows for _, rows in backend.logits(tokens, batch=16)])
    assert whole.shape == parts.shape == (len(tokens), 49152)
    assert np.array_equal(whole, parts)


def test_probes_at_depths_equal_whole_contexts(engine):
    backend, found = engine(), {}
    document = backend.tokenize(STORY)
    probe = ScoreRequest(tuple(backend.tokenize("\nQuestion: Who?\nAnswer:")), tuple(backend.tokenize(" the fox")))
    probes = [(depth, probe) for depth in (20, 8, len(document))]
    backend.score_at_depths(document, probes, found.__setitem__)
    whole = scores(
        backend, [ScoreRequest((*document[:depth], *probe.context), probe.continuation) for depth, _ in probes]
    )
    for i, result in enumerate(whole):
        assert found[i].logprob == pytest.approx(result.logprob, abs=0.02)
    assert len({round(result.logprob, 3) for result in whole}) == 3


def test_too_long_requests_are_refused_with_figures(engine):
    backend = engine()
    with pytest.raises(InputError, match="513 tokens; the context holds 512"):
        scores(backend, [ScoreRequest((5,) * 500, (6,) * 13)])
    with pytest.raises(InputError, match="= 513; the context holds 512"):
        backend.generate(GenerateRequest((5,) * 500, 13))
    with pytest.raises(InputError, match="513 tokens"):
        backend.logits((5,) * 513)


def test_the_whole_context_can_be_scored_and_generated(engine):
    backend = engine("q4_0")
    tokens = tuple(range(1000, 1511))
    assert scores(backend, [ScoreRequest(tokens[:300], (*tokens[300:], 5)), ScoreRequest(tokens, (5,))])[0].finite
    assert len(run(backend, GenerateRequest(tokens, 1, ignore_eos=True))[0]) == 1


def test_quantised_kv_needs_flash_attention(demo_model_dir):
    from harness.backends.llama_cpp.engine import LlamaCppBackend

    with pytest.raises(InputError, match="flash_attention: true"):
        LlamaCppBackend().load(spec(demo_model_dir, kv="q8_0"))
    with pytest.raises(InputError, match=r"kv: unknown 'q8'.*Did you mean 'q8_0'"):
        LlamaCppBackend().load(spec(demo_model_dir, kv="q8"))


def test_quantised_kv_with_flash_attention_works_and_is_smaller(engine):
    backend = engine("q4_0", kv="q8_0", flash_attention=True)
    assert backend.info.kv_bytes_per_token == 23040 * 34 // 64
    assert scores(backend, requests_of(backend)[:2])[0].finite


def test_broken_files_are_refused(demo_model_dir, tmp_path):
    from harness.backends.llama_cpp.engine import LlamaCppBackend

    whole = (demo_model_dir / "q4_0.gguf").read_bytes()
    broken = {
        "cut.gguf": whole[: len(whole) // 2],
        "header.gguf": whole[:1000],
        "magic.gguf": b"GGML" + whole[4:2000],
        "noise.gguf": b"GGUF\3\0\0\0" + np.random.default_rng(0).bytes(4096),
    }
    for name, data in broken.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(InputError, match=name):
            LlamaCppBackend().load(spec(tmp_path, name.removesuffix(".gguf")))
    with pytest.raises(InputError, match="no such file"):
        LlamaCppBackend().load(spec(tmp_path, "absent"))


def changed_copy(source, target, old, new):
    """A copy of a GGUF whose header says something else."""
    assert len(old) == len(new)
    shutil.copyfile(source, target)
    with target.open("r+b") as file:
        head = file.read(4_000_000)
        assert old in head
        file.seek(head.index(old))
        file.write(new)
    return target


@pytest.mark.parametrize("template", [True, False])
@pytest.mark.parametrize("add_bos", [True, False])
def test_exactly_one_bos_where_the_model_wants_one(demo_model_dir, tmp_path, add_bos, template):
    from harness.backends.llama_cpp.engine import LlamaCppBackend

    key, flag = b"tokenizer.ggml.add_bos_token", b"\7\0\0\0"
    changed_copy(demo_model_dir / "q4_0.gguf", tmp_path / "bos.gguf", key + flag + b"\0", key + flag + bytes([add_bos]))
    backend = LlamaCppBackend()
    assert backend.load(spec(tmp_path, "bos", ctx=256)).adds_bos is add_bos
    bos = backend._vocab.bos  # <|im_start|>, which opens every turn of this model's template
    text = backend.render_chat([{"role": "user", "content": "hi"}]) if template else "hi"
    tokens = backend.tokenize(text, special=template, bos=True)
    assert (tokens[0] == bos) is (add_bos or template)
    assert tokens[1:2] != [bos]
    assert backend.tokenize("<|im_start|>hi", special=True, bos=True).count(bos) == 1
    assert backend.tokenize("hi", bos=False).count(bos) == 0
    backend.close()


def test_a_template_that_is_not_there_is_refused(demo_model_dir, tmp_path):
    from harness.backends.llama_cpp.engine import LlamaCppBackend

    changed_copy(
        demo_model_dir / "q4_0.gguf", tmp_path / "plain.gguf", b"tokenizer.chat_template", b"tokenizer.chat_templatX"
    )
    backend = LlamaCppBackend()
    assert not backend.load(spec(tmp_path, "plain", ctx=256)).has_chat_template
    with pytest.raises(InputError, match="chat_template: this model carries none"):
        backend.render_chat([{"role": "user", "content": "hi"}])
    backend.close()


def test_the_template_is_applied_with_the_generation_prompt(engine):
    text = engine().render_chat([{"role": "system", "content": "S"}, {"role": "user", "content": "U"}])
    assert text == "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n"


def test_a_draft_of_another_vocabulary_is_refused(demo_model_dir, tmp_path):
    from harness.backends.llama_cpp.engine import LlamaCppBackend

    other = changed_copy(demo_model_dir / "q4_0.gguf", tmp_path / "other.gguf", b"<reponame>", b"<REPONAME>")
    with pytest.raises(InputError, match="token 4 is '<REPONAME>'; expected '<reponame>'"):
        LlamaCppBackend().load(spec(demo_model_dir, "q4_0", speculate=Speculate("draft_model", draft_path=str(other))))


def test_quantising_is_atomic_and_names_its_faults(demo_model_dir, tmp_path):
    from harness.backends.llama_cpp.gguf import read_header
    from harness.backends.llama_cpp.quantize import estimate_bytes, file_type, quantise

    source, target = demo_model_dir / "q4_0.gguf", tmp_path / "out.gguf"
    quantise(source, target, "q5_0", threads=1)
    assert file_type(read_header(target)) == "q5_0"
    assert target.stat().st_size <= estimate_bytes(read_header(source), "q5_0")
    assert [path.name for path in tmp_path.iterdir()] == ["out.gguf"]
    with pytest.raises(InputError, match="importance matrix"):
        quantise(source, tmp_path / "x.gguf", "iq1_s", threads=1)
    (tmp_path / "bad.gguf").write_bytes(b"nothing")
    with pytest.raises(InputError, match=r"bad\.gguf"):
        quantise(tmp_path / "bad.gguf", tmp_path / "x.gguf", "q8_0", threads=1)
    assert not (tmp_path / "x.gguf").exists()


def test_the_noise_floor_is_that_of_the_engine_with_itself(engine, tmp_path):
    """Known of this model: F16 moves by 0.015 and 2e-6 nats, Q8_0 by 0.35 and a thousand times as many nats."""
    from harness.run.scoring import floor
    from harness.suites import fidelity
    from harness.suites import floor as floors

    found = {}
    for weights in ("f16", "q8_0"):
        backend, rows = engine(weights), []
        floor(backend, rows.append, backend.tokenize(fidelity.text(), bos=True)[:48], str(tmp_path / "logits.npy"))
        found[weights] = floors.figures([row["payload"] for row in rows])
    f16, q8 = found["f16"], found["q8_0"]
    assert 0 < f16["kl_floor"].value < 2e-5 and f16["top1_floor"].value == 1.0
    assert 0 < f16["logprob_floor"].value < 0.05 < q8["logprob_floor"].value < 1.5
    assert 5e-4 < q8["kl_floor"].value < 0.02


def test_logits_one_by_one_are_those_that_generating_sees(engine):
    backend = engine("q8_0")
    tokens = backend.tokenize(STORY)
    rows = np.concatenate([chunk for _, chunk in backend.logits(tokens, batch=1)])
    chunks = [len(chunk) for _, chunk in backend.logits(tokens, batch=1)]
    assert chunks == [1] * len(tokens)
    leads = backend.margins(tokens[:1], tokens[1:], batch=1)
    for row, token, lead in zip(rows, tokens[1:], leads, strict=False):
        assert lead == pytest.approx(float(row[token] - np.delete(row, token).max()), abs=1e-4)


def test_a_context_that_grew_gives_at_each_depth_what_a_fresh_one_gives(engine):
    backend = engine()
    tokens = tuple(backend.tokenize(STORY * 4))[:96]
    flat = [emission.tokens[0] for emission in backend.deepen(tokens, (16, 40, 96), 6)]
    fresh = [run(backend, GenerateRequest(tokens[:depth], 6, ignore_eos=True))[0] for depth in (16, 40, 96)]
    assert [flat[:6], flat[6:12], flat[12:]] == fresh
    assert backend.info.can_roll_back
    with pytest.raises(InputError, match="within the text"):
        backend.deepen(tokens, (97,), 1)


@pytest.mark.parametrize("weights", ["f16", "q8_0"])
def test_a_scoring_context_grows_with_the_longest_request_and_scores_the_same_to_the_bit(engine, weights):
    backend = engine(weights, ctx=2048, batch=64, ubatch=64)
    backend.close()
    backend.load(backend._spec)
    items = requests_of(backend)[:4]
    before, long = scores(backend, items), tuple(range(1000, 2200))
    assert backend._scorer.cells == 1024 + 256  # a batch, in llama.cpp's steps of 256
    stream = backend.logits(long[:8])  # not begun: it must not hold on to the context that is replaced
    assert scores(backend, [ScoreRequest(long, (5,))])[0].finite
    assert backend._scorer.cells == 2048 + 256 and len(backend._contexts) == 2
    assert scores(backend, items) == before
    assert [start for start, _ in stream] == [0]


def test_nothing_to_score_makes_no_context(engine):
    backend = engine("f16", ctx=256)
    assert scores(backend, []) == [] and backend._scorer is None


PEAK = """
import sys
from harness.backends.base import EngineSpec, GenerateRequest
from harness.backends.llama_cpp.engine import LlamaCppBackend
from harness.meters.memory import peak_rss_bytes
from harness.run import scoring, tasks, trial, worker
backend = LlamaCppBackend()
backend.load(EngineSpec("llama_cpp", sys.argv[1], "0", sys.argv[2], threads=1, ctx=int(sys.argv[3])))
tokens = tuple(range(1000, 1560))
list(backend.generate(GenerateRequest(tokens, 2, ignore_eos=True)))
scoring.kl_reference(backend, print, tokens, sys.argv[4])
scoring.kl(backend, lambda row: None, tokens, sys.argv[4])
print(peak_rss_bytes())
"""


@pytest.mark.parametrize(("weights", "ctx"), [("f16", 4096), ("q4_0", 8192)])
def test_the_estimate_of_memory_is_near_a_workers_peak(demo_model_dir, tmp_path, weights, ctx):
    import subprocess
    import sys

    from harness.run.fit import footprint
    from harness.suite_plans import FidelityPlan, SuitePlan

    path = str(demo_model_dir / f"{weights}.gguf")
    arguments = [sys.executable, "-c", PEAK, path, weights, str(ctx), str(tmp_path / "logits.npy")]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL)
    plan = SuitePlan("quick", fidelity=FidelityPlan(560, 64, 4, 32, 0))
    estimate = footprint(spec(demo_model_dir, weights, ctx=ctx, batch=512, ubatch=512), plan).total
    assert 0.9 <= estimate / int(done.stdout) <= 1.5
