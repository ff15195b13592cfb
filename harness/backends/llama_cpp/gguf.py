"""Reads the header of a GGUF file: metadata and tensor sizes. Knows no engine.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import itertools
import mmap
import struct
from collections import Counter
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from harness.errors import InputError

# ggml type: (name, elements per block, bytes per block)
GGML_TYPES: dict[int, tuple[str, int, int]] = {
    0: ("f32", 1, 4), 1: ("f16", 1, 2), 2: ("q4_0", 32, 18), 3: ("q4_1", 32, 20), 6: ("q5_0", 32, 22),
    7: ("q5_1", 32, 24), 8: ("q8_0", 32, 34), 9: ("q8_1", 32, 36), 10: ("q2_k", 256, 84),
    11: ("q3_k", 256, 110), 12: ("q4_k", 256, 144), 13: ("q5_k", 256, 176), 14: ("q6_k", 256, 210),
    15: ("q8_k", 256, 292), 16: ("iq2_xxs", 256, 66), 17: ("iq2_xs", 256, 74), 18: ("iq3_xxs", 256, 98),
    19: ("iq1_s", 256, 50), 20: ("iq4_nl", 32, 18), 21: ("iq3_s", 256, 110), 22: ("iq2_s", 256, 82),
    23: ("iq4_xs", 256, 136), 24: ("i8", 1, 1), 25: ("i16", 1, 2), 26: ("i32", 1, 4), 27: ("i64", 1, 8),
    28: ("f64", 1, 8), 29: ("iq1_m", 256, 56), 30: ("bf16", 1, 2), 34: ("tq1_0", 256, 54),
    35: ("tq2_0", 256, 66), 39: ("mxfp4", 32, 17), 42: ("q2_0", 64, 18),
}  # fmt: skip
BLOCKS = {name: (block, size) for name, block, size in GGML_TYPES.values()}
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_MAX_NESTING = 4
_KEPT_ARRAY = 4096  # longer arrays (the vocabulary) are skipped


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor: its type's name, elements, bytes, and rows (elements over the first dimension)."""

    name: str
    kind: str
    elements: int
    n_bytes: int
    rows: int = 1


@dataclass(frozen=True, slots=True)
class Header:
    """What a GGUF file says of itself."""

    metadata: dict[str, Any]
    tensors: tuple[Tensor, ...]

    @property
    def architecture(self) -> str:
        """``general.architecture``, or "unknown"."""
        return str(self.metadata.get("general.architecture", "unknown"))

    def arch(self, key: str, default: Any = None) -> Any:
        """Metadata ``{architecture}.{key}``."""
        return self.metadata.get(f"{self.architecture}.{key}", default)

    @property
    def elements(self) -> int:
        """Weights in the file."""
        return sum(tensor.elements for tensor in self.tensors)

    @property
    def main_kind(self) -> str:
        """Type that holds most elements of the matrices."""
        counts: Counter[str] = Counter()
        for tensor in self.tensors:
            counts[tensor.kind] += tensor.elements
        return counts.most_common(1)[0][0] if counts else "unknown"


class _Reader:
    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.at = data, 0

    def take(self, code: str) -> Any:
        (value,) = struct.unpack_from("<" + code, self.data, self.at)
        self.at += struct.calcsize("<" + code)
        return value

    def text(self) -> str:
        n = self.take("Q")
        if n > len(self.data) - self.at:
            raise ValueError(f"a text of {n} bytes at byte {self.at}")
        raw = self.data[self.at : self.at + n]
        self.at += n
        return raw.decode("utf-8", errors="replace")

    def value(self, kind: int, depth: int = 0) -> Any:
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY:
            if depth >= _MAX_NESTING:
                raise ValueError(f"arrays nested deeper than {_MAX_NESTING} at byte {self.at}")
            inner, n = self.take("I"), self.take("Q")
            if n > len(self.data) - self.at:
                raise ValueError(f"an array of {n} values at byte {self.at}")
            return self.array(inner, n, depth + 1)
        if kind not in _SCALARS:
            raise ValueError(f"unknown value type {kind} at byte {self.at}")
        return self.take(_SCALARS[kind])

    def array(self, inner: int, n: int, depth: int) -> Any:
        if inner in _SCALARS:
            start = self.at
            self.at += n * struct.calcsize("<" + _SCALARS[inner])
            return struct.unpack_from(f"<{n}{_SCALARS[inner]}", self.data, start) if n <= _KEPT_ARRAY else None
        values = [self.value(inner, depth) for _ in range(n)]
        return tuple(values) if n <= _KEPT_ARRAY else None


def _tensors(reader: _Reader, n: int) -> list[tuple[Tensor, int]]:
    """Tensors with their offsets. One of an unknown type is as long as the distance to the next."""
    found = []
    for _ in range(n):
        name, n_dims = reader.text(), reader.take("I")
        if n_dims > 8:
            raise ValueError(f"tensor {name[:60]!r} with {n_dims} dimensions")
        dims = [reader.take("Q") for _ in range(n_dims)]
        found.append((name, dims, reader.take("I"), reader.take("Q")))
    offsets = sorted(offset for *_, offset in found)
    following = dict(itertools.pairwise(offsets))
    out = []
    for name, dims, number, offset in found:
        elements = prod(dims)
        kind, block, size = GGML_TYPES.get(number, (f"type{number}", 0, 0))
        n_bytes = elements // block * size if block else following.get(offset, offset) - offset
        out.append((Tensor(name, kind, elements, n_bytes, prod(dims[1:])), offset))
    return out


def _count(metadata: dict[str, Any], key: str, default: int) -> int:
    """A positive whole number; 0 and an absent key mean the default."""
    value = metadata.get(key, default)
    if type(value) is not int or value < 0:
        raise ValueError(f"{key} is no count")
    return value or default


def _parse(data: mmap.mmap) -> tuple[Header, int]:
    """Header and the size in bytes that the file must at least have."""
    reader = _Reader(data)
    reader.at = 4
    version = reader.take("I")
    if version not in (2, 3):
        raise ValueError(f"GGUF version {version}; 2 or 3 can be read")
    n_tensors, n_keys = reader.take("Q"), reader.take("Q")
    if max(n_tensors, n_keys) > len(data):
        raise ValueError(f"{n_tensors} tensors and {n_keys} metadata keys")
    metadata = {}
    for _ in range(n_keys):
        key = reader.text()
        metadata[key] = reader.value(reader.take("I"))
    placed = _tensors(reader, n_tensors)
    align = _count(metadata, "general.alignment", 32)
    start = -(-reader.at // align) * align
    end = max((start + offset + tensor.n_bytes for tensor, offset in placed), default=start)
    return Header(metadata, tuple(tensor for tensor, _ in placed)), end


def read_header(path: str | Path) -> Header:
    """Read and check a GGUF file.

    Raises:
        InputError: If the file is missing, isn't GGUF, is cut short, damaged, or one part of several.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: no such file; expected a GGUF model; check the path")
    size = path.stat().st_size
    with path.open("rb") as file:
        magic = file.read(4)
        if magic != b"GGUF":
            raise InputError(f"{path}: begins with {magic!r}; expected b'GGUF'; give a GGUF model file")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                header, needed = _parse(data)
                parts = _count(header.metadata, "split.count", 1)
            except (ValueError, struct.error, OverflowError, MemoryError) as error:
                raise InputError(
                    f"{path}: damaged GGUF header ({error}); expected a whole GGUF file; fetch it again"
                ) from error
    if size < needed:
        raise InputError(f"{path}: {size} bytes; its header needs {needed}; the file is cut short: fetch it again")
    if parts > 1:
        raise InputError(
            f"{path}: one part of {parts}; expected a single file; join them with llama-gguf-split --merge"
        )
    if not header.tensors:
        raise InputError(f"{path}: no tensors; expected model weights; give a whole model")
    return header
