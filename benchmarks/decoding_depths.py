"""Decode speed and time to first token by depth of the context, cache precision and flash attention; ours alone."""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.ratios import paired_ratio, shown
from harness.backends.llama_cpp.engine import LlamaCppBackend
from harness.backends.llama_cpp.library import Context, spans
from harness.backends.llama_cpp.speculate import greedy
from harness.models import resolve
from harness.suites.speed import prompts

TOKENS = 32  # decoded at each depth


@dataclass(frozen=True, slots=True)
class Combination:
    """Settings whose speed is tabulated."""

    weights: str
    kv: str
    flash_attention: bool

    def __str__(self) -> str:
        return f"{self.weights}, kv {self.kv}, flash attention {'on' if self.flash_attention else 'off'}"


def combinations(weights: Sequence[str], kv: Sequence[str], flash_attention: Sequence[str]) -> list[Combination]:
    """All that the engine allows: a quantised V cache needs flash attention.

    >>> [str(each) for each in combinations(["q8_0"], ["f16", "q4_0"], ["off", "on"])]
    ['q8_0, kv f16, flash attention off', 'q8_0, kv f16, flash attention on', 'q8_0, kv q4_0, flash attention on']
    """
    every = (Combination(w, k, f == "on") for w, k, f in product(weights, kv, flash_attention))
    return [each for each in every if each.flash_attention or each.kv in ("f32", "f16", "bf16")]


def read(context: Context, tokens: np.ndarray[Any, Any], start: int) -> int:
    """Evaluate more of a prompt behind ``start`` tokens, as our generation does. Returns the token that follows."""
    for first, stop in spans(len(tokens), context.capacity):
        n = context.put(0, tokens[first:stop], start + first)
        context.want[n - 1] = stop == len(tokens)
        context.decode(n)
    return greedy(context.row(n - 1))


def grow(context: Context, tokens: Sequence[int], depths: Sequence[int], n_gen: int) -> dict[int, tuple[float, float]]:
    """One context grown to each depth in turn.

    Returns:
        Per depth ``(seconds of reading all tokens up to it, tokens/s of decoding there)``; what was decoded is
        forgotten again.
    """
    prompt, at, seconds = np.asarray(tokens, np.int32), 0, 0.0
    found: dict[int, tuple[float, float]] = {}
    context.clear()
    for depth in sorted(depths):
        start = time.perf_counter()
        token = read(context, prompt[at:depth], at)
        seconds += time.perf_counter() - start
        at = depth
        context.put(0, [0], 0)
        context.want[0] = 1
        start = time.perf_counter()
        for pos in range(depth, depth + n_gen):
            context.token[0], context.pos[0] = token, pos
            context.decode(1)
            token = greedy(context.row(0))
        found[depth] = seconds, n_gen / (time.perf_counter() - start)
        context.cut(0, depth)
    return found


def depths_table(args: argparse.Namespace, opened: Callable[..., LlamaCppBackend], console: Console) -> int:
    """Measure every combination once a round, the order turned about each time, and print the table."""
    todo = combinations(args.weights, args.kv, args.flash_attention)
    depths = sorted(set(args.depths))
    seen: dict[tuple[Combination, int, str], list[float]] = defaultdict(list)
    for number in range(args.rounds):
        for each in todo if number % 2 == 0 else reversed(todo):
            console.print(f"round {number + 1}/{args.rounds} {each}", highlight=False)
            for depth, (ttft, tps) in one_pass(each, depths, args.threads, opened).items():
                seen[each, depth, "ttft_s"].append(ttft)
                seen[each, depth, "decode_tps"].append(tps)
    table = Table("settings", "depth", "decode, tokens/s", "time to first token, s", title_justify="left")
    table.title = f"by depth of the context, {args.threads} threads, {args.rounds} rounds"
    figures: dict[str, Any] = {}
    for each, depth in product(todo, depths):
        row = {what: as_figure(seen[each, depth, what]) for what in ("decode_tps", "ttft_s")}
        figures |= {f"{each}, depth {depth}: {what}": figure for what, figure in row.items()}
        table.add_row(str(each), str(depth), *map(shown, row.values()))
    Console(width=130).print(table)
    print(json.dumps({"benchmark": "decoding.depths", "figures": figures, "goals": {}, "holds": True}))
    return 0


def one_pass(
    each: Combination, depths: Sequence[int], threads: int, opened: Callable[..., LlamaCppBackend]
) -> dict[int, tuple[float, float]]:
    """``grow`` on a freshly loaded engine, warmed up."""
    ctx = depths[-1] + TOKENS
    settings = {"kv": each.kv, "flash_attention": each.flash_attention}
    backend = opened(resolve("demo", each.weights), each.weights, threads, ctx, **settings)
    try:
        (made,) = prompts((depths[-1],), 0, lambda text: backend.tokenize(text, bos=True))
        grow(backend._generating, made, [min(64, depths[0])], 4)
        return grow(backend._generating, made, depths, TOKENS)
    finally:
        backend.close()


def as_figure(values: Sequence[float]) -> dict[str, Any]:
    """Geometric mean with its interval.

    >>> as_figure([2.0, 8.0])["value"]
    4.0
    """
    return paired_ratio(values, [1.0] * len(values))
