"""One timed generation in the worker, with everything that was going on around it. Derives no figure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from harness.backends.base import Backend, GenerateRequest
from harness.meters import open_meters
from harness.meters.base import EnergyMeter, window
from harness.meters.contention import Sampler, codes, contention
from harness.meters.memory import peak_rss_bytes, rss_bytes
from harness.run.clock import now_ns
from harness.run.tasks import no_collection, record_of

Send = Callable[[Any], None]


@cache
def _instruments() -> tuple[list[EnergyMeter], Sampler]:
    """This process's meters, opened once."""
    return open_meters(), Sampler()


def trial(backend: Backend, send: Send, prompt: Sequence[int], output_tokens: int, threads: int) -> dict[str, Any]:
    """Generate exactly ``output_tokens`` greedily after ``prompt`` and return the raw payload of a trial.

    The energy window is the request: from just before it is sent to just after its last token.
    """
    meters, sampler = _instruments()
    request = GenerateRequest(tuple(prompt), output_tokens, ignore_eos=True)
    before = sampler.read()
    readings = [meter.read() for meter in meters]
    record = record_of(backend, request)
    energy = [pair for meter, start in zip(meters, readings, strict=True) for pair in window(start, meter.read())]
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
    """Warm the engine with discarded generations; returns the process's memory afterwards, bytes."""
    for prompt in prompts:
        record_of(backend, GenerateRequest(tuple(prompt), output_tokens, ignore_eos=True))
    return {"peak_rss_bytes": peak_rss_bytes(), "rss_bytes": rss_bytes()}


def idle(backend: Backend, send: Send, seconds: float) -> list[dict[str, Any]]:
    """Energy readings over ``seconds`` with the model loaded and nothing to do; an estimate takes a moment only.

    Readings of a time in which others kept the machine busy carry the reason ``contended``: they are no baseline.
    """
    import time

    from harness.meters.base import idle_window

    meters, sampler = _instruments()
    counted = [meter for meter in meters if not meter.method.startswith("estimate")]
    wait_s = seconds if counted else 0.1
    before = sampler.read()
    pairs = [pair for meter in meters for pair in idle_window(meter, wait_s, time.sleep)]
    busy = "contended" in codes(contention(before, sampler.read(), sampler.n_cpus, threads=1))
    return [{**pair, "reason": "contended"} if busy and not pair["reason"] else pair for pair in pairs]
