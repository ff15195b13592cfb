"""Decoding and reading prompts: our loop against llama-bench on the same shared libraries, in turn.

``python -m benchmarks.decoding`` measures in every round us, peer, peer, us (and the other way about in the next):

decode    128 tokens from a near-empty context, against ``llama-bench -n 128``
prefill   512 tokens, from the request to the first token, against ``llama-bench -p 512``
depth     decoding after so many tokens of context, against ``llama-bench -d``
ttft      text in, first token out, over the sum of its parts: tokenising, llama_decode of the prompt, one argmax
stamping  what taking the time of every token adds to it

``--profile`` prints instead where the time of one token goes; ``--kv f16,q8_0,q4_0`` prints instead decode speed and
time to first token by depth, cache precision and flash attention. Both are ours alone and need no peer.

A flame graph, the engine's own frames included (``pip install py-spy``):
``py-spy record --native -r 200 -o flame.svg -- python -m benchmarks.decoding --profile --weights q8_0 --tokens 512``.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from rich.console import Console

from benchmarks import peers
from benchmarks.decoding_depths import depths_table
from benchmarks.decoding_parts import Ttft, profile_table, stamping_us
from benchmarks.ratios import conclude, paired_ratio
from harness.backends.base import EngineSpec, GenerateRequest
from harness.backends.llama_cpp.engine import LlamaCppBackend
from harness.meters.cpus import effective_cpus
from harness.models import ResolvedModel, resolve
from harness.run.tasks import stream
from harness.suites.speed import prompts

GOALS = {"decode": 0.98, "prefill": 0.97}
LIMITS = {"ttft_over_parts": 1.02, "stamping_us": 5.0}
# Rates in tokens/s (or seconds, for the time to first token) by what was measured and by whom, one per round.
Rows = dict[tuple[str, str], list[float]]


def opened(model: ResolvedModel, weights: str, threads: int, ctx: int, **settings: Any) -> LlamaCppBackend:
    """A loaded backend."""
    backend = LlamaCppBackend()
    backend.load(EngineSpec("llama_cpp", str(model.path), model.digest, weights, threads=threads, ctx=ctx, **settings))
    return backend


def speeds(backend: LlamaCppBackend, prompt: Sequence[int], n_gen: int) -> tuple[float, float]:
    """Tokens/s of prompt and of decoding, from the stamps that the harness takes. No decoding: 0."""
    sent, stamps, _, _ = stream(backend, GenerateRequest(tuple(prompt), n_gen + 1, ignore_eos=True))
    first, last = stamps[0][0], stamps[-1][0]
    return len(prompt) / ((first - sent) / 1e9), n_gen / ((last - first) / 1e9) if n_gen else 0.0


class Case:
    """One precision of the weights: both sides of every comparison."""

    def __init__(self, weights: str, args: argparse.Namespace) -> None:
        self.weights, self.args, self.model = weights, args, resolve("demo", weights)
        backend = self._ours(256)
        longest = max(args.prompt, *args.depths, 8)
        (self.tokens,) = prompts((longest,), 0, lambda text: backend.tokenize(text, bos=True))
        self.text = backend.detokenize(self.tokens[: args.prompt]).decode(errors="replace")
        while len(backend.tokenize(self.text, bos=True)) > args.prompt:
            self.text = self.text[:-1]
        backend.close()

    def _ours(self, ctx: int) -> LlamaCppBackend:
        backend = opened(self.model, self.weights, self.args.threads, ctx)
        speeds(backend, [1], 4)  # warm
        return backend

    def near(self, who: str) -> dict[str, float]:
        """Decoding from a near-empty context, and reading a prompt."""
        n, p = self.args.tokens, self.args.prompt
        if who == "peer":
            found = peers.bench(str(self.model.path), threads=self.args.threads, n_prompt=p, n_gen=n)
            return {"prefill": found["prompt"][0], "decode": found["decode"][0]}
        backend = self._ours(n + 2)  # as many cells as llama-bench has
        decode = speeds(backend, self.tokens[:1], n)[1]
        backend.close()
        backend = self._ours(p + 1)
        speeds(backend, self.tokens[:p], 0)  # warm, as llama-bench does
        prefill = speeds(backend, self.tokens[:p], 0)[0]
        backend.close()
        return {"prefill": prefill, "decode": decode}

    def deep(self, depth: int, who: str) -> dict[str, float]:
        """Decoding after ``depth`` tokens."""
        n, name = self.args.tokens, f"decode_at_{depth}"
        if who == "peer":
            found = peers.bench(str(self.model.path), threads=self.args.threads, n_gen=n, depth=depth)
            return {name: found["decode"][0]}
        backend = self._ours(depth + n + 1)
        decode = speeds(backend, self.tokens[:depth], n)[1]
        backend.close()
        return {name: decode}

    def ttft(self) -> dict[str, list[float]]:
        """Seconds from text to first token, and seconds of the parts: whole, parts, parts, whole."""
        backend = self._ours(self.args.prompt + 64)
        measure, found = Ttft(backend, self.text), defaultdict(list)
        measure.whole()  # warm
        for who in ("ours", "peer", "peer", "ours"):
            found[who].append(measure.whole() if who == "ours" else measure.parts())
        backend.close()
        return found


def pooled(rates: Sequence[float]) -> float:
    """One rate for equal amounts of work: the harmonic mean.

    >>> pooled([1.0, 3.0])
    1.5
    """
    return len(rates) / sum(1 / rate for rate in rates)


def one_round(case: Case, number: int, rows: Rows, console: Console) -> None:
    """Everything once at one precision, each comparison as a palindrome."""
    order = ("ours", "peer", "peer", "ours") if number % 2 == 0 else ("peer", "ours", "ours", "peer")
    tests: list[Callable[[str], dict[str, float]]] = [case.near]
    if case.weights in case.args.depth_weights:
        tests += [partial(case.deep, depth) for depth in case.args.depths if depth]
    for test in tests:
        seen: dict[tuple[str, str], list[float]] = defaultdict(list)
        for who in order:
            for name, rate in test(who).items():
                seen[f"{name}_{case.weights}", who].append(rate)
        for key, rates in seen.items():
            rows[key].append(pooled(rates))
        for name in dict.fromkeys(name for name, _ in seen):
            ours, theirs = rows[name, "ours"][-1], rows[name, "peer"][-1]
            console.print(f"  {name}: {ours:.2f} and {theirs:.2f} tokens/s, {ours / theirs:.4f}", highlight=False)
    found = case.ttft()
    name = f"ttft_over_parts_{case.weights}"
    for who, seconds in found.items():
        rows[name, who].append(sum(seconds) / len(seconds))
    whole, parts = rows[name, "ours"][-1], rows[name, "peer"][-1]
    console.print(f"  {name}: {whole:.4f} and {parts:.4f} s, {whole / parts:.4f}", highlight=False)


def figures(rows: Rows) -> dict[str, Any]:
    """A ratio for each comparison, us over the peer, with both sides' means in its row."""
    found: dict[str, Any] = {}
    for name in dict.fromkeys(name for name, _ in rows):
        ours, theirs = rows[name, "ours"], rows[name, "peer"]
        found[name] = paired_ratio(ours, theirs) | {
            "ours": sum(ours) / len(ours),
            "peer": sum(theirs) / len(theirs),
            "unit": "s" if name.startswith("ttft") else "tokens/s",
        }
    return found


def bounds(names: Collection[str]) -> tuple[dict[str, float], dict[str, float]]:
    """Goals and limits of the figures, by how their names begin."""
    goals, limits = (
        {name: bound for name in names for start, bound in table.items() if name.startswith(start)}
        for table in (GOALS, LIMITS)
    )
    return goals, limits


def against_peers(args: argparse.Namespace, console: Console) -> int:
    """The comparison proper."""
    loaded = peers.loaded()
    cases = [Case(weights, args) for weights in args.weights]
    rows: Rows = defaultdict(list)
    start = time.perf_counter()
    for number in range(args.rounds):
        for case in cases:
            minutes = (time.perf_counter() - start) / 60
            console.print(f"round {number + 1}/{args.rounds} {case.weights} ({minutes:.1f} min)", highlight=False)
            one_round(case, number, rows, console)
    same = loaded["same_libraries"]
    found = figures(rows) | {
        "stamping_us": stamping_us(),
        "peer_libraries": "the installed package's own" if same else f"other than ours: {loaded}",
    }
    title = f"us over llama-bench, llama-cpp-python {peers.folder().name}, {args.threads} threads, {args.rounds} rounds"
    return conclude("decoding", title, found, *bounds(found))


def comma(kind: type) -> Any:
    """Reader of a list with commas."""
    return lambda text: [kind(part) for part in text.split(",") if part]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=comma(str), default=["f16", "q8_0", "q4_0"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=128, help="decoded")
    parser.add_argument("--prompt", type=int, default=512, help="tokens of the prompt, at most 512: one batch")
    parser.add_argument("--depths", type=comma(int), help="default: 2048; with --kv 512,1024,2048,4096,8192")
    parser.add_argument("--depth-weights", type=comma(str), default=["q8_0"], help="precisions measured at depth too")
    parser.add_argument("--threads", type=int, default=effective_cpus())
    parser.add_argument("--profile", action="store_true", help="where the time of a token goes; nothing else")
    parser.add_argument("--kv", type=comma(str), help="cache precisions to tabulate by depth; nothing else")
    parser.add_argument("--flash-attention", type=comma(str), default=["on", "off"], help="with --kv")
    args = parser.parse_args()
    if not 4 <= args.prompt <= 512:
        parser.error(f"--prompt {args.prompt}; expected 4 to 512")
    console = Console(stderr=True)
    if args.kv:
        args.depths = args.depths or [512, 1024, 2048, 4096, 8192]
        return depths_table(args, opened, console)
    args.depths = args.depths or [2048]
    return profile_table(args, opened) if args.profile else against_peers(args, console)


if __name__ == "__main__":
    raise SystemExit(main())
