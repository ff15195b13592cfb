"""The low-level llama.cpp library: imported on first use, its log routed, its contexts and rows as numpy views.

Knows no request and no suite.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.metadata
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.errors import CellError

LEVEL_INFO, LEVEL_WARN, LEVEL_CONTINUE = 2, 3, 5
RECENT_LOG: deque[str] = deque(maxlen=2000)  # what was placed where is only said in the log
_callbacks: list[Any] = []  # llama.cpp keeps the pointer, so the object must live as long as the library


_muted: list[bool] = []


@contextmanager
def muted() -> Iterator[None]:
    """Keep the engine's warnings from the terminal: quantising warns once for every tensor."""
    _muted.append(True)
    try:
        yield
    finally:
        _muted.pop()


@cache
def library() -> Any:
    """Import llama_cpp's ctypes layer and start its backend. Untyped: every name there is a C symbol."""
    low = importlib.import_module("llama_cpp.llama_cpp")
    level_before = LEVEL_INFO

    def on_log(level: int, text: bytes, _user_data: object) -> None:
        nonlocal level_before
        level_before = level if level != LEVEL_CONTINUE else level_before
        line = text.decode("utf-8", errors="replace")
        if level_before >= LEVEL_WARN and not _muted:
            sys.stderr.write(line)
        elif level == LEVEL_INFO:
            RECENT_LOG.append(line)

    _callbacks.append(low.llama_log_callback(on_log))
    low.llama_log_set(_callbacks[0], ctypes.c_void_p(0))
    low.llama_backend_init()
    return low


def library_path() -> Path:
    """Where the shared library lies."""
    return Path(library()._lib._name)


def engine_version() -> str:
    """Version of llama-cpp-python, which pins the llama.cpp it carries."""
    return importlib.metadata.version("llama-cpp-python")


@cache
def _row_address() -> Any:
    """``llama_get_logits_ith`` returning a plain address: no pointer object is built per token."""
    low = library()
    function = low._lib["llama_get_logits_ith"]
    function.restype, function.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_int32]
    return function


class Context:
    """One llama.cpp context with its own batch, whose arrays are written in place.

    A token of the batch belongs to ``n_seq`` consecutive sequences starting at ``first_seq``.

    Attributes:
        token, pos, n_seq, want: Arrays of the batch, shape (capacity,); ``want`` asks for logits.
    """

    def __init__(self, handle: Any, *, n_vocab: int, capacity: int, n_seq_max: int) -> None:
        low = library()
        self._low, self.handle, self.n_vocab, self.capacity = low, handle, n_vocab, capacity
        self.memory = low.llama_get_memory(handle)
        self._sequences = np.arange(n_seq_max, dtype=np.int32)
        self.token = np.zeros(capacity, np.int32)
        self.pos = np.zeros(capacity, np.int32)
        self.n_seq = np.ones(capacity, np.int32)
        self.want = np.zeros(capacity, np.int8)
        self._seq = np.full(capacity, self._sequences.ctypes.data, np.uint64)
        self._batch = low.llama_batch()
        for name, array in (
            ("token", self.token),
            ("pos", self.pos),
            ("n_seq_id", self.n_seq),
            ("seq_id", self._seq),
            ("logits", self.want),
        ):
            kind = dict(low.llama_batch._fields_)[name]
            setattr(self._batch, name, ctypes.cast(array.ctypes.data, kind))
        self._decode, self._row, self._rows = low.llama_decode, _row_address(), {}

    _rows: dict[int, npt.NDArray[np.float32]]

    @property
    def n_ctx(self) -> int:
        """Cells of the key-value cache."""
        return int(self._low.llama_n_ctx(self.handle))

    def put(
        self, start: int, tokens: npt.NDArray[np.int32] | list[int], pos: int, *, first_seq: int = 0, n_seq: int = 1
    ) -> int:
        """Write tokens at consecutive positions into the batch, without logits. Returns the next free index."""
        stop = start + len(tokens)
        self.token[start:stop] = tokens
        self.pos[start:stop] = np.arange(pos, pos + len(tokens))
        self.n_seq[start:stop] = n_seq
        self._seq[start:stop] = self._sequences.ctypes.data + 4 * first_seq
        self.want[start:stop] = 0
        return stop

    def fill(
        self,
        tokens: npt.NDArray[np.int32],
        pos: npt.NDArray[np.int64],
        first_seq: npt.NDArray[np.int64],
        n_seq: npt.NDArray[np.int64],
        want: npt.NDArray[np.bool_],
    ) -> None:
        """Write a whole batch, from its start."""
        n = len(tokens)
        self.token[:n], self.pos[:n], self.n_seq[:n], self.want[:n] = tokens, pos, n_seq, want
        self._seq[:n] = self._sequences.ctypes.data + 4 * first_seq

    def decode(self, n: int) -> None:
        """Evaluate the first ``n`` tokens of the batch. Raises CellError where the engine refuses."""
        self._batch.n_tokens = n
        code = self._decode(self.handle, self._batch)
        if code != 0:
            why = {1: "no free cells in the key-value cache", -1: "invalid batch", 2: "aborted"}.get(
                code, "engine failure"
            )
            raise CellError(f"llama.cpp: decoding {n} tokens failed: {why} (code {code})")

    def row(self, index: int) -> npt.NDArray[np.float32]:
        """Logits of batch index ``index``, shape (n_vocab,): a view, valid until the next decode."""
        address = self._row(self.handle, index)
        if not address:
            raise CellError(f"llama.cpp: no logits at batch index {index}")
        view = self._rows.get(address)
        if view is None:
            if len(self._rows) > 4096:  # the buffer moved; old views are dead
                self._rows.clear()
            raw = (ctypes.c_float * self.n_vocab).from_address(address)
            view = np.frombuffer(memoryview(raw).cast("B"), np.float32)
            self._rows[address] = view
        return view

    def cut(self, seq: int, start: int) -> bool:
        """Forget a sequence from position ``start`` on. False where this kind of memory cannot."""
        return bool(self._low.llama_memory_seq_rm(self.memory, seq, start, -1))

    def fork(self, source: int, target: int) -> None:
        """Let ``target`` share all cells of ``source``."""
        self._low.llama_memory_seq_cp(self.memory, source, target, -1, -1)

    def clear(self) -> None:
        """Empty the cache."""
        self._low.llama_memory_clear(self.memory, False)

    def close(self) -> None:
        """Free the context."""
        if self.handle:
            self._low.llama_free(self.handle)
            self.handle = None
            self._rows.clear()


def spans(n: int, step: int, smallest: int = 8) -> list[tuple[int, int]]:
    """Cut ``n`` tokens into runs of at most ``step``, the last of at least ``smallest`` where that can be.

    llama.cpp's kernels for a handful of tokens round differently from its prompt kernels, so short tails are avoided.

    >>> spans(20, 16)
    [(0, 12), (12, 20)]
    >>> spans(3, 16)
    [(0, 3)]
    """
    starts = list(range(0, n, step))
    if len(starts) > 1 and step >= 2 * smallest and n - starts[-1] < smallest:
        starts[-1] = n - smallest
    return list(zip(starts, [*starts[1:], n], strict=True))
