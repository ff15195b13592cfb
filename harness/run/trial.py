"""One timed generation in the worker, with everything that was going on around it. Derives no figure."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from statistics import median
from typing import Any

from harness.backends.base import Backend, Emission, GenerateRequest
from harness.meters.base import window
from harness.meters.contention import Sampler, codes, contention
from harness.meters.estimate import EstimateMeter
from harness.meters.memory import peak_rss_bytes, rss_bytes
from harness.run.clock import now_ns
from harness.run.tasks import no_collection, record_of, stream

Send = Callable[[Any], None]
# Pieces of a text that follow one another this many tokens apart; a prime, so that each comes once before any again.
PIECE_STEP = 1009


@cache
def _instruments() -> tuple[EstimateMeter, Sampler]:
    """This process's estimate of its own energy, and its sampler. Counters are read by the parent, over windows."""
    return EstimateMeter(), Sampler()


def trial(backend: Backend, send: Send, prompt: Sequence[int], output_tokens: int, threads: int) -> dict[str, Any]:
    """Generate exactly ``output_tokens`` greedily after ``prompt`` and return the raw payload of a trial.

    The energy, an estimate, is that of the request: from just before it is sent to just after its last token.
    """
    estimate, sampler = _instruments()
    request = GenerateRequest(tuple(prompt), output_tokens, ignore_eos=True)
    before = sampler.read()
    start = estimate.read()
    record = record_of(backend, request)
    energy = window(start, estimate.read())
    seen = contention(before, sampler.read(), sampler.n_cpus, threads)
    record["codes"] = [*record["codes"], *codes(seen)]
    return {"prompt_tokens": len(prompt), "record": record, "contention": seen, "energy": energy}


def depths(
    backend: Backend, send: Send, prompt: Sequence[int], depths: Sequence[int], n_tokens: int, threads: int
) -> dict[str, Any]:
    """Grow one context to each depth and generate ``n_tokens`` there; returns when each token reached the host."""
    _, sampler = _instruments()
    before = sampler.read()
    with no_collection():
        sent_ns = now_ns()
        stamps = [now_ns() for _ in backend.deepen(prompt, depths, n_tokens)]
    seen = contention(before, sampler.read(), sampler.n_cpus, threads)
    if len(stamps) != n_tokens * len(depths):
        raise RuntimeError(f"{len(stamps)} tokens came back; expected {n_tokens} at each of {len(depths)} depths")
    times = [stamps[i : i + n_tokens] for i in range(0, len(stamps), n_tokens)]
    record = {"sent_ns": sent_ns, "depths": list(depths), "t_ns": times, "codes": list(codes(seen))}
    return {"record": record, "contention": seen}


def warm(backend: Backend, send: Send, prompts: Sequence[Sequence[int]], output_tokens: int) -> dict[str, Any]:
    """Discarded generations; returns the seconds each took and the process's memory afterwards, bytes."""
    seconds = []
    for prompt in prompts:
        start = now_ns()
        record_of(backend, GenerateRequest(tuple(prompt), output_tokens, ignore_eos=True))
        seconds.append((now_ns() - start) / 1e9)
    return {"seconds": seconds, "peak_rss_bytes": peak_rss_bytes(), "rss_bytes": rss_bytes()}


def sentinel(backend: Backend, send: Send, prompt: Sequence[int], output_tokens: int) -> float | None:
    """Median gap between the tokens of a short fixed generation without speculation, seconds; None without gaps."""
    request = GenerateRequest(tuple(prompt), output_tokens, ignore_eos=True, speculate=False)
    _, stamps, _, _ = stream(backend, request)
    gaps = [(b - a) / 1e9 for (a, _), (b, _) in pairwise(stamps)]
    return median(gaps) if gaps else None


def idle(backend: Backend, send: Send, seconds: float, threads: int) -> dict[str, Any]:
    """Do nothing for some seconds with the model loaded; returns the estimate of the energy and who else was busy.

    An estimate of a time in which others kept the machine busy carries the reason ``contended``: it is no baseline.
    """
    estimate, sampler = _instruments()
    before, start = sampler.read(), estimate.read()
    time.sleep(seconds)
    pairs = window(start, estimate.read())
    seen = contention(before, sampler.read(), sampler.n_cpus, threads=1)
    found = list(codes(seen))
    if "contended" in found:
        pairs = [{**pair, "reason": pair["reason"] or "contended"} for pair in pairs]
    return {"record": {"codes": found}, "contention": seen, "energy": pairs}


def spend(
    backend: Backend,
    send: Send,
    pool: Sequence[int],
    head: Sequence[int],
    length: int,
    first: int,
    output_tokens: int,
    seconds: float,
    threads: int,
) -> dict[str, Any]:
    """Generate one request after another until ``seconds`` have passed, at least one; returns what was done.

    Every prompt is another piece of ``length`` tokens of ``pool``, ``head`` included, so that no cache can serve it.
    """
    _, sampler = _instruments()
    before, start, done, tokens = sampler.read(), now_ns(), 0, 0
    span = len(pool) - length + len(head) + 1
    while not done or now_ns() - start < seconds * 1e9:
        at = (first + done * PIECE_STEP) % span
        prompt = (*head, *pool[at : at + length - len(head)])
        for part in backend.generate(GenerateRequest(prompt, output_tokens, ignore_eos=True)):
            tokens += len(part.tokens) if isinstance(part, Emission) else 0
        done += 1
    seen = contention(before, sampler.read(), sampler.n_cpus, threads)
    short = ["short_output"] * (tokens < done * output_tokens)
    return {
        "record": {"codes": [*codes(seen), *short]},
        "contention": seen,
        "requests": done,
        "prompt_tokens": done * length,
        "output_tokens": tokens,
    }
