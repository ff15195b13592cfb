"""Speculation on the real default model: drafts of other vocabulary sizes, and speculation held against none."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from harness.backends.base import EngineSpec, GenerateRequest, Speculate
from harness.backends.llama_cpp.gguf import read_header
from harness.errors import InputError
from harness.run.tasks import audit
from harness.suites import lossless

pytestmark = pytest.mark.engine
STORY = (
    "Once upon a time there was a fox who lived in a forest. The fox liked apples. "
    "Once upon a time there was a fox who lived"
)
SIZE = 49152
NARROW = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
TOKENS, TYPES, UNUSED = "tokenizer.ggml.tokens", "tokenizer.ggml.token_type", 5


class Bytes:
    """Reads a GGUF's header from the front."""

    def __init__(self, raw: bytes) -> None:
        self.raw, self.at = raw, 0

    def number(self, form: str) -> int:
        (value,) = struct.unpack_from(form, self.raw, self.at)
        self.at += struct.calcsize(form)
        return int(value)

    def text(self) -> bytes:
        n = self.number("<Q")
        self.at += n
        return self.raw[self.at - n : self.at]

    def skip(self, kind: int) -> None:
        if kind == 8:
            self.text()
        elif kind == 9:
            inner, count = self.number("<I"), self.number("<Q")
            for _ in range(count):
                self.skip(inner)
        else:
            self.at += NARROW[kind]


def sized_text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def resized(source: Path, target: Path, size: int) -> Path:
    """A copy of a GGUF whose vocabulary ends earlier, or is padded: names, types and rows of the embedding."""
    sizes = {tensor.name: tensor.n_bytes for tensor in read_header(source).tensors}
    read = Bytes(source.read_bytes())
    read.at = 8
    n_tensors, n_values = read.number("<Q"), read.number("<Q")
    out = read.raw[:24]
    for _ in range(n_values):
        start, name = read.at, read.text().decode()
        head, kind = read.raw[start : read.at], read.number("<I")
        if name not in (TOKENS, TYPES):
            read.skip(kind)
            out += read.raw[start : read.at]
            continue
        inner, count = read.number("<I"), read.number("<Q")
        names = name == TOKENS
        items = [read.text() if names else read.number("<i") for _ in range(count)][:size]
        items += [f"[PAD{i}]".encode() if names else UNUSED for i in range(count, size)]
        out += head + struct.pack("<IIQ", kind, inner, size)
        out += b"".join(sized_text(x) if isinstance(x, bytes) else struct.pack("<i", x) for x in items)
    tensors = []
    for _ in range(n_tensors):
        name = read.text()
        dims = [read.number("<Q") for _ in range(read.number("<I"))]
        tensors.append((name.decode(), dims, read.number("<I"), read.number("<Q")))
    data, offset = -(-read.at // 32) * 32, 0
    bodies = []
    for name, dims, kind, place in tensors:
        body = read.raw[data + place : data + place + sizes[name]]
        if name == "token_embd.weight":
            row = len(body) // dims[1]
            body, dims = body[: size * row] + bytes(max(0, size - dims[1]) * row), [dims[0], size]
        body += bytes(-len(body) % 32)
        out += sized_text(name.encode()) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)
        bodies.append(body)
        offset += len(body)
    target.write_bytes(b"".join([out, bytes(-len(out) % 32), *bodies]))
    return target


def spec(folder: Path, weights: str, speculate: Speculate) -> EngineSpec:
    path = str(folder / f"{weights}.gguf")
    return EngineSpec("llama_cpp", path, "0", weights, threads=1, ctx=512, batch=256, ubatch=256, speculate=speculate)


@pytest.fixture
def load(demo_model_dir):
    """A function that loads a backend; all are closed at the end."""
    from harness.backends.llama_cpp.engine import LlamaCppBackend

    loaded = []

    def get(weights, **speculate):
        backend = LlamaCppBackend()
        loaded.append(backend)
        backend.load(spec(demo_model_dir, weights, Speculate(**speculate)))
        return backend

    yield get
    for backend in loaded:
        backend.close()


def run(backend, request):
    *emissions, end = backend.generate(request)
    tokens = [token for emission in emissions for token in emission.tokens]
    return tokens, [margin for emission in emissions for margin in emission.margins or ()], end


@pytest.mark.parametrize("size", [SIZE - 39_000, SIZE - 1, SIZE + 128])
def test_a_draft_whose_vocabulary_ends_elsewhere_drafts_what_both_know(load, demo_model_dir, tmp_path, size):
    """The smallest lacks most of the target's tokens, in the prompt and in the text: it is shown a stand-in."""
    draft = resized(demo_model_dir / "q4_0.gguf", tmp_path / "draft.gguf", size)
    backend = load("q4_0", kind="draft_model", tokens=4, draft_path=str(draft))
    prompt, rows = tuple(backend.tokenize(STORY)), []
    audit(backend, rows.append, [("story", STORY)], 32, batch=5)
    assert lossless.fault(lossless.audit([row["payload"] for row in rows])) is None
    assert (max(prompt) >= size) == (max(rows[0]["payload"]["plain"]) >= size) == (size < SIZE - 1)
    tokens, _, end = run(backend, GenerateRequest(prompt, 32, temperature=1.0, top_k=40, seed=3, ignore_eos=True))
    assert len(tokens) == 32 and end.drafted_at[0] >= end.accepted_at[0] > 0


def changed_copy(source, target, old, new):
    raw = source.read_bytes()
    assert len(old) == len(new) and raw.count(old) >= 1
    target.write_bytes(raw.replace(old, new, 1))
    return str(target)


def test_every_token_that_both_have_must_be_the_same(load, demo_model_dir, tmp_path):
    """A text in the middle, the attributes of one token, and another end token are each named in one line."""
    source = demo_model_dir / "q4_0.gguf"
    raw = source.read_bytes()
    at = raw.index(TYPES.encode()) + len(TYPES) + 4 + 4 + 8 + 4 * 31_415
    assert struct.unpack_from("<i", raw, at) == (1,)
    marked = tmp_path / "marked.gguf"
    marked.write_bytes(raw[:at] + struct.pack("<i", 4) + raw[at + 4 :])
    word = raw.index(sized_text("Ġwatermelon".encode()))
    renamed = tmp_path / "renamed.gguf"
    renamed.write_bytes(raw[:word] + sized_text("Ġwatermelom".encode()) + raw[word + 20 :])
    key = b"tokenizer.ggml.eos_token_id" + struct.pack("<I", 4)
    ended = changed_copy(source, tmp_path / "ended.gguf", key + struct.pack("<I", 2), key + struct.pack("<I", 0))
    for path, wanted in (
        (marked, r"token 31415 is '.*' with attributes 0x\w+; expected '.*' with 0x\w+ as in the target"),
        (renamed, r"token \d+ is 'Ġwatermelom'; expected 'Ġwatermelon' as in the target"),
        (ended, r"EOS token is 0; expected 2 as in the target"),
    ):
        with pytest.raises(InputError, match=wanted) as caught:
            load("q4_0", kind="draft_model", draft_path=str(path))
        assert "\n" not in str(caught.value) and "same family" in str(caught.value)


@pytest.mark.parametrize("weights", ["f16", "q4_0"])
def test_margins_evaluated_singly_are_the_plain_loops_to_the_bit(load, weights):
    backend = load(weights, kind="prompt_lookup", tokens=4)
    prompt = tuple(backend.tokenize(STORY))
    tokens, margins, end = run(backend, GenerateRequest(prompt, 24, ignore_eos=True, margins=True, speculate=False))
    assert end.drafted is None and len(tokens) == 24
    assert backend.margins(prompt, tokens, batch=1) == margins
    together = backend.margins(prompt, tokens, batch=5)
    moved = np.abs(np.subtract(together, margins))
    assert together == backend.margins(prompt, tokens, batch=5)
    assert moved[0] == 0 and 0 < moved.max() < (0.1 if weights == "f16" else 1.5)
    # another token's margin is how far it lies behind
    other = (tokens[0] + 1) % SIZE
    assert backend.margins(prompt, [other], batch=1)[0] < -margins[0] + 1e-6
    with pytest.raises(InputError, match="batch: 6; expected 1 to 5"):
        backend.margins(prompt, tokens, batch=6)


def test_without_speculation_the_speculating_engine_is_the_plain_one(load):
    plain, speculating = load("q8_0"), load("q8_0", kind="prompt_lookup", tokens=8, adapt=True)
    request = GenerateRequest(tuple(plain.tokenize(STORY)), 24, ignore_eos=True, margins=True)
    assert run(plain, request) == run(speculating, replace(request, speculate=False))
    *_, end = run(speculating, request)
    assert end.verify_s > 0 and sum(end.drafted_at) == end.drafted and end.drafted_at[0] <= end.verify_steps


@pytest.mark.parametrize(("weights", "adapt"), [("f16", True), ("q8_0", False), ("q4_0", True)])
def test_speculation_passes_its_audit(load, demo_model_dir, weights, adapt):
    draft = str(demo_model_dir / "q4_0.gguf")
    backend = load(weights, kind="draft_model", tokens=4, adapt=adapt, draft_path=draft)
    rows = []
    prompts = [("story", STORY), ("bread", "To bake bread, first"), ("code", "def fibonacci(n):\n")]
    assert audit(backend, rows.append, prompts, 16, batch=5) == 2 * 3 * 16
    found = lossless.audit([row["payload"] for row in rows])
    assert found is not None and lossless.fault(found) is None and found.finite
    assert len(found.floor) == 48 and 0 < found.floor_max < (0.1 if weights == "f16" else 1.5)
