"""Our speculative decoding against llama-server's own, with the same files and draft length, in turn.

``python -m benchmarks.speculation`` gives both the same prompts, greedily, prompt by prompt in alternating order, and
compares decode tokens/s (ours from the stamps of the tokens' arrival, llama-server's from its ``timings``; both count
the tokens after the first over the time since the first). The target alone is measured on both sides too. Beside them
stands the ceiling that memory bandwidth sets: ``bandwidth x accept_len / (target bytes + draft length x draft bytes)``,
with the acceptance measured here. llama-server is built at benchmark time (``benchmarks.peers``).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.peers import llama_server
from benchmarks.ratios import conclude, paired_ratio
from harness.backends.base import EngineSpec, GenerateRequest, Speculate
from harness.backends.llama_cpp.engine import LlamaCppBackend
from harness.backends.llama_cpp.gguf import read_header
from harness.backends.llama_cpp.traffic import weight_bytes
from harness.meters.bandwidth import bandwidth
from harness.meters.cpus import effective_cpus
from harness.models import resolve
from harness.run.environment import caches, last_level_cache
from harness.run.tasks import record_of
from harness.suites.fidelity import greedy_prompts

GOAL = 0.95
Way = dict[str, Any]


class Ours:
    """The harness's engine."""

    def __init__(self, spec: EngineSpec) -> None:
        self.backend = LlamaCppBackend()
        self.info = self.backend.load(spec)

    def __call__(self, prompt: str, tokens: int) -> Way:
        """One generation, as a sweep records it."""
        ids = tuple(self.backend.tokenize(prompt, bos=True))
        record = record_of(self.backend, GenerateRequest(ids, tokens, ignore_eos=True))
        events = record["events"]
        seconds = (events[-1][0] - events[0][0]) / 1e9
        return {
            "tps": (record["output_tokens"] - events[0][1]) / seconds,
            "drafted": record["drafted"] or 0,
            "accepted": record["accepted"] or 0,
            "steps": record["verify_steps"] or record["output_tokens"] - 1,
            "n": record["output_tokens"],
        }


class Server:
    """llama-server."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __call__(self, prompt: str, tokens: int) -> Way:
        """One generation, by the server's own timings."""
        asked = {
            "prompt": prompt,
            "n_predict": tokens,
            "temperature": 0,
            "top_k": 1,
            "samplers": ["top_k"],
            "ignore_eos": True,
            "cache_prompt": False,
        }
        request = urllib.request.Request(
            f"{self.url}/completion", json.dumps(asked).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=600) as answer:
            timings = json.load(answer)["timings"]
        n = timings["predicted_n"]
        return {
            "tps": (n - 1) / (timings["predicted_ms"] / 1e3),
            "drafted": timings.get("draft_n", 0),
            "accepted": timings.get("draft_n_accepted", 0),
            "steps": n - 1 - timings.get("draft_n_accepted", 0),
            "n": n,
        }


@contextlib.contextmanager
def both(args: argparse.Namespace, target: Path, draft: Path | None) -> Iterator[tuple[Ours, Server]]:
    """Both engines loaded with the same files."""
    speculate = (
        Speculate("draft_model", tokens=args.tokens, draft_path=str(draft), draft_digest="-") if draft else Speculate()
    )
    extra = ["--spec-type", "draft-simple", "--spec-draft-model", str(draft)] if draft else []
    extra += ["--spec-draft-n-max", str(args.tokens), "--spec-draft-threads", str(args.threads)] if draft else []
    ours = Ours(
        EngineSpec("llama_cpp", str(target), "-", args.target, threads=args.threads, ctx=args.ctx, speculate=speculate)
    )
    with llama_server(str(target), threads=args.threads, ctx=args.ctx, extra=extra) as url:
        yield ours, Server(url)
    ours.backend.close()


def compare(
    ours: Ours, server: Server, prompts: Sequence[str], args: argparse.Namespace, console: Console
) -> dict[str, list[Way]]:
    """Everything that was measured, pair by pair; the order turns with every prompt."""
    seen: dict[str, list[Way]] = {"ours": [], "server": []}
    ways: dict[str, Ours | Server] = {"ours": ours, "server": server}
    for way in ways.values():
        way(prompts[0], 8)  # warm
    for number in range(args.rounds):
        for index, prompt in enumerate(prompts):
            for name in ["ours", "server"] if (number + index) % 2 else ["server", "ours"]:
                seen[name].append(ways[name](prompt, args.output))
        so_far = paired_ratio(tps(seen["ours"]), tps(seen["server"]))["value"]
        console.print(f"  round {number + 1}/{args.rounds}: {so_far:.3f}x", highlight=False)
    return seen


def tps(ways: Sequence[Way]) -> list[float]:
    """Tokens per second of each generation."""
    return [way["tps"] for way in ways]


def mean_tps(ways: Sequence[Way]) -> dict[str, Any]:
    """Tokens per second, geometric mean with a t interval."""
    return paired_ratio(tps(ways), [1.0] * len(ways))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="f16", help="weights of the target")
    parser.add_argument("--draft", default="q4_0", help="weights of the draft")
    parser.add_argument("--tokens", type=int, default=4, help="draft length")
    parser.add_argument("--output", type=int, default=96, help="tokens a prompt")
    parser.add_argument("--prompts", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ctx", type=int, default=2048)
    parser.add_argument("--threads", type=int, default=effective_cpus())
    args = parser.parse_args()
    console = Console(stderr=True)
    target, draft = resolve("demo", args.target).path, resolve("demo", args.draft).path
    prompts = [prompt.text for prompt in greedy_prompts(args.prompts)]
    figures: dict[str, Any] = {}
    with both(args, target, None) as (ours, server):
        console.print(f"{args.target} alone", highlight=False)
        plain = compare(ours, server, prompts, args, console)
        figures |= {"alone_ours_tps": mean_tps(plain["ours"]), "alone_server_tps": mean_tps(plain["server"])}
        figures["alone_ours_over_server"] = paired_ratio(tps(plain["ours"]), tps(plain["server"]))
        target_bytes = ours.info.active_bytes_per_token
    with both(args, target, draft) as (ours, server):
        console.print(f"{args.target} with a {args.draft} draft of {args.tokens}", highlight=False)
        drafted = compare(ours, server, prompts, args, console)
        figures |= {"draft_ours_tps": mean_tps(drafted["ours"]), "draft_server_tps": mean_tps(drafted["server"])}
        figures["draft_ours_over_server"] = paired_ratio(tps(drafted["ours"]), tps(drafted["server"]))
    for name, ways in drafted.items():
        accepted, steps = sum(way["accepted"] for way in ways), sum(way["steps"] for way in ways)
        figures[f"{name}_accept_rate"] = accepted / max(1, sum(way["drafted"] for way in ways))
        figures[f"{name}_accept_len"] = 1 + accepted / steps
        figures[f"{name}_speedup"] = paired_ratio(tps(ways), tps(plain[name]))
    seen = bandwidth(cache_bytes=last_level_cache(caches()))
    moved = target_bytes + args.tokens * weight_bytes(read_header(str(draft)))
    figures["ceiling_tps"] = seen.best * figures["ours_accept_len"] / moved
    figures["ceiling_alone_tps"] = seen.best / target_bytes
    title = f"{args.target} with a {args.draft} draft of {args.tokens}, {args.threads} threads, {args.output} tokens"
    return conclude("speculation", title, figures, {"draft_ours_over_server": GOAL})


if __name__ == "__main__":
    raise SystemExit(main())
