"""Real model files at small sizes, and a toy engine whose cache can be looked into."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from harness.backends.llama_cpp.gguf import GGML_TYPES
from harness.errors import InputError

TOY_VOCAB = 12


def toy_logits(history: Sequence[int]) -> np.ndarray:
    """Logits that depend on every token before, so any fault of the cache shows."""
    seed = int.from_bytes(hashlib.sha256(repr([int(token) for token in history]).encode()).digest()[:8], "big")
    return np.random.default_rng(seed).normal(0.0, 1.5, TOY_VOCAB).astype(np.float32)


class ToyContext:
    """What ``Context`` does, over a list of cells: (token, position, sequences)."""

    def __init__(self, logits: Callable = toy_logits, *, capacity: int = 16, n_ctx: int = 64) -> None:
        self.logits, self.capacity, self.n_ctx, self.n_vocab = logits, capacity, n_ctx, TOY_VOCAB
        self.token, self.pos = np.zeros(capacity, np.int32), np.zeros(capacity, np.int32)
        self.n_seq, self.want = np.ones(capacity, np.int32), np.zeros(capacity, np.int8)
        self.first = np.zeros(capacity, np.int32)
        self.cells: list[tuple[int, int, set[int]]] = []
        self.rows: dict[int, np.ndarray] = {}
        self.evaluated: list[int] = []
        self.sizes: list[int] = []

    def put(self, start, tokens, pos, *, first_seq=0, n_seq=1):
        stop = start + len(tokens)
        self.token[start:stop], self.pos[start:stop] = tokens, np.arange(pos, pos + len(tokens))
        self.first[start:stop], self.n_seq[start:stop], self.want[start:stop] = first_seq, n_seq, 0
        return stop

    def fill(self, tokens, pos, first_seq, n_seq, want):
        n = len(tokens)
        self.token[:n], self.pos[:n], self.first[:n], self.n_seq[:n], self.want[:n] = (
            tokens,
            pos,
            first_seq,
            n_seq,
            want,
        )

    def decode(self, n):
        self.rows = {}
        self.sizes.append(n)
        for i in range(n):
            seqs = set(range(self.first[i], self.first[i] + self.n_seq[i]))
            for seq in seqs:
                assert self.history(seq, positions=True) == list(range(self.pos[i])), "positions must be consecutive"
            self.cells.append((int(self.token[i]), int(self.pos[i]), seqs))
            self.evaluated.append(int(self.token[i]))
            assert len(self.cells) <= self.n_ctx, "the cache is full"
            if self.want[i]:
                self.rows[i] = self.logits(self.history(min(seqs)))

    def history(self, seq, positions=False):
        mine = sorted((pos, token) for token, pos, seqs in self.cells if seq in seqs)
        return [pos if positions else token for pos, token in mine]

    def row(self, index):
        return self.rows[index]

    def cut(self, seq, start):
        for _, pos, seqs in self.cells:
            if pos >= start:
                seqs.discard(seq)
        self.cells = [cell for cell in self.cells if cell[2]]
        return True

    def fork(self, source, target):
        for _, _, seqs in self.cells:
            if source in seqs:
                seqs.add(target)

    def clear(self):
        self.cells = []


class ToyVocab:
    """One letter a token; ``end`` ends a generation."""

    size = TOY_VOCAB

    def __init__(self, end: int | None = None) -> None:
        self.end = end

    def is_end(self, token):
        return token == self.end

    def piece(self, token):
        return bytes([97 + token])

    def detokenize(self, tokens):
        return b"".join(map(self.piece, tokens))


def gguf_bytes(
    *, magic=b"GGUF", version=3, tensors=(("token_embd.weight", (4, 8), 0),), metadata=None, data=True
) -> bytes:
    """A small GGUF file: header, and zeros for the tensors. Metadata: texts, counts, and tuples of counts or truths."""
    metadata = {"general.architecture": "llama"} if metadata is None else metadata

    def text(value):
        return struct.pack("<Q", len(value)) + value.encode()

    out = magic + struct.pack("<IQQ", version, len(tensors), len(metadata))
    for key, value in metadata.items():
        out += text(key)
        if isinstance(value, str):
            out += struct.pack("<I", 8) + text(value)
        elif isinstance(value, tuple):
            kind, code = (7, "?") if isinstance(value[0], bool) else (4, "I")
            out += struct.pack(f"<IIQ{len(value)}{code}", 9, kind, len(value), *value)
        else:
            out += struct.pack("<II", 4, value)
    offset = 0
    for name, dims, kind in tensors:
        out += text(name) + struct.pack(f"<I{len(dims)}Q", len(dims), *dims) + struct.pack("<IQ", kind, offset)
        _, block, block_bytes = GGML_TYPES[kind]
        size = int(np.prod(dims)) // block * block_bytes
        offset += -(-size // 32) * 32
    out += b"\0" * (-len(out) % 32)
    return out + b"\0" * offset if data else out


@pytest.fixture
def gguf_file(tmp_path):
    """Write a small GGUF and return its path."""

    def write(name="model.gguf", **settings):
        path = tmp_path / name
        path.write_bytes(gguf_bytes(**settings))
        return path

    return write


@pytest.fixture(scope="session")
def demo_model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the default model as own.gguf (as shipped), f16.gguf, q8_0.gguf and q4_0.gguf."""
    pytest.importorskip("llama_cpp")
    from harness.models import resolve

    folder = tmp_path_factory.mktemp("demo")
    try:
        for weights in ("own", "f16", "q8_0", "q4_0"):
            (folder / f"{weights}.gguf").symlink_to(resolve("demo", weights).path)
    except InputError as error:
        pytest.skip(f"the default model can't be had: {error}")
    return folder
