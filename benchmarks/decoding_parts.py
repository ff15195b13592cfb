"""What our loop adds to the engine: the parts of a first token, the cost of a stamp, the share of every step."""

from __future__ import annotations

import argparse
import ctypes
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import numpy as np

from benchmarks.ratios import conclude
from harness.backends.base import Emission, GenerateEnd, GenerateRequest
from harness.backends.llama_cpp import generate as _generate
from harness.backends.llama_cpp.engine import LlamaCppBackend
from harness.backends.llama_cpp.library import library
from harness.models import resolve
from harness.run.tasks import stream

STAMPS = 20_000
loop: Any = _generate  # whose names are replaced while it is timed
# Of the time of a token, what may go to anything but the engine.
OUTSIDE_ENGINE = 0.01


class Ttft:
    """Text to first token, through our code and through the engine's C functions alone, in the same context."""

    def __init__(self, backend: LlamaCppBackend, text: str) -> None:
        self._backend, self._text, self._raw = backend, text, text.encode()
        self._low, self._context = library(), backend._generating
        self._tokens = (ctypes.c_int32 * (len(self._raw) + 8))()

    def whole(self) -> float:
        """Seconds of our way."""
        start = time.perf_counter()
        prompt = self._backend.tokenize(self._text, bos=True)
        parts = self._backend.generate(GenerateRequest(tuple(prompt), 1, ignore_eos=True))
        next(parts)
        seconds = time.perf_counter() - start
        for _ in parts:
            pass
        return seconds

    def parts(self) -> float:
        """Seconds of tokenising + llama_decode of the prompt + one argmax, each by itself."""
        low, handle, tokens = self._low, self._context.handle, self._tokens
        low.llama_memory_clear(self._context.memory, False)
        clock = [time.perf_counter()]
        n = low.llama_tokenize(self._backend._vocab.handle, self._raw, len(self._raw), tokens, len(tokens), True, False)
        clock.append(time.perf_counter())
        batch = low.llama_batch_get_one(tokens, n)
        clock.append(time.perf_counter())
        code = low.llama_decode(handle, batch)
        clock.append(time.perf_counter())
        if code or n != len(self._backend.tokenize(self._text, bos=True)):
            raise RuntimeError(f"llama_decode of {n} tokens: code {code}, or other tokens than ours")
        row = np.ctypeslib.as_array(low.llama_get_logits_ith(handle, -1), (self._context.n_vocab,))
        clock.append(time.perf_counter())
        row.argmax()
        clock.append(time.perf_counter())
        spans = np.diff(clock)
        return float(spans[0] + spans[2] + spans[4])


class Canned:
    """A backend without an engine: its tokens are there at once."""

    def __init__(self, n: int) -> None:
        self._parts: list[Emission | GenerateEnd] = [*(Emission([i]) for i in range(n)), GenerateEnd("length", "")]

    def generate(self, request: GenerateRequest) -> Iterator[Emission | GenerateEnd]:
        """All of them."""
        yield from self._parts


def stamping_us(n: int = STAMPS, repeats: int = 5) -> float:
    """Microseconds that ``stream`` adds per token to just taking the tokens: median of the differences, in turn."""
    backend: Any = Canned(n)
    request, added = GenerateRequest((1,), n), []
    for _ in range(repeats):
        start = time.perf_counter_ns()
        for _part in backend.generate(request):
            pass
        alone = time.perf_counter_ns() - start
        sent, stamps, _, _ = stream(backend, request)
        added.append((stamps[-1][0] - sent - alone) / n / 1e3)
    return median(added)


class Shares:
    """Times the steps of the generation loop by wrapping what it calls; the product's code knows nothing of it."""

    def __init__(self, backend: LlamaCppBackend) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._backend, self._context = backend, backend._generating
        context = self._context
        self._before = {name: getattr(context, name) for name in ("_decode", "token", "pos")}
        self._greedy = loop.greedy

    def _timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        seconds, clock = self.seconds, time.perf_counter

        def call(*given: Any) -> Any:
            start = clock()
            result = function(*given)
            seconds[name] += clock() - start
            return result

        return call

    def __enter__(self) -> Shares:
        context: Any = self._context
        context._decode = self._timed("llama_decode", context._decode)
        context.row = self._timed("reading the row", context.row)
        context.put = self._timed("filling the batch", context.put)
        for name in ("token", "pos"):
            setattr(context, name, _Filled(self._before[name], self._timed))
        loop.greedy = self._timed("argmax", self._greedy)
        return self

    def __exit__(self, *_: object) -> None:
        context: Any = self._context
        for name, value in self._before.items():
            setattr(context, name, value)
        del context.row, context.put
        loop.greedy = self._greedy


class _Filled:
    """An array of the batch whose writes are timed."""

    def __init__(self, array: Any, timed: Callable[..., Any]) -> None:
        self._write = timed("filling the batch", array.__setitem__)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._write(key, value)


def shares(backend: LlamaCppBackend, n: int) -> dict[str, float]:
    """Microseconds per token by step, and "everything else" up to the wall time between first and last token."""
    request = GenerateRequest((1,), n + 1, ignore_eos=True)
    stream(backend, request)  # warm
    with Shares(backend) as timed:
        parts = backend.generate(request)
        next(parts)
        timed.seconds.clear()
        start = time.perf_counter()
        for _ in range(n):
            next(parts)
        wall = time.perf_counter() - start
        found = dict(timed.seconds)
        for _ in parts:
            pass
    found["everything else"] = wall - sum(found.values())
    return {name: 1e6 * seconds / n for name, seconds in found.items()}


def profile_table(args: argparse.Namespace, opened: Callable[..., LlamaCppBackend]) -> int:
    """Print where the time of a token goes."""
    found: dict[str, Any] = {}
    limits = {}
    for weights in args.weights:
        backend = opened(resolve("demo", weights), weights, args.threads, args.tokens + 2)
        by_step = shares(backend, args.tokens)
        backend.close()
        total = sum(by_step.values())
        found |= {f"{weights}: {name}, us": microseconds for name, microseconds in by_step.items()}
        found[f"{weights}: outside llama_decode"] = 1 - by_step["llama_decode"] / total
        limits[f"{weights}: outside llama_decode"] = OUTSIDE_ENGINE
    found["stamping_us"] = stamping_us()
    title = f"time per token over {args.tokens} tokens, {args.threads} threads; the wrappers' own time is in it"
    return conclude("decoding.profile", title, found, {}, limits | {"stamping_us": 5.0})
