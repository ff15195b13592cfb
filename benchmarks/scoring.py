"""Scoring with shared prefixes against one pass per question, on the same engine, alternating.

``python -m benchmarks.scoring`` takes lm-eval's own 5-shot MMLU prompts, scores them both ways in turn, and prints the
ratio of the times beside the ratio of the tokens, which is the most that sharing can give. Both answer every question;
the answers are compared. Needs a quiet machine; about 5 minutes on two cores at the default size.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from harness.backends.base import EngineSpec, ScoreRequest, ScoreResult
from harness.backends.llama_cpp.engine import LlamaCppBackend
from harness.meters.cpus import effective_cpus
from harness.models import resolve
from harness.stats.interval import log_t_factors
from harness.suites.encoding import encode_pair
from harness.suites.lm_eval import build_mmlu, run_mmlu
from harness.suites.mmlu import find_mmlu, load_mmlu, pick

GOAL_SHARE, GOAL_EQUAL = 0.85, 0.99
Document = list[ScoreRequest]


def documents(backend: LlamaCppBackend, subjects: int, items: int, shots: int) -> tuple[list[Document], str]:
    """lm-eval's requests as token ids, four a question, and the name of the data."""
    data = find_mmlu(None, os.environ)
    parts, _ = load_mmlu(data)
    chosen_parts = dict(list(parts.items())[:: max(1, len(parts) // subjects)][:subjects])
    chosen = pick({name: len(part["test"]) for name, part in chosen_parts.items()}, items, 0)
    found: list[Document] = []

    def take(pairs: Sequence[tuple[str, str]], on_result: Callable[[int, Any], None]) -> None:
        for index, (context, option) in enumerate(pairs):
            if index % 4 == 0:
                found.append([])
            head, tail = encode_pair(lambda text: backend.tokenize(text, bos=True), context, option)
            found[-1].append(ScoreRequest(tuple(head), tuple(tail)))
            answer = {"logprob": -1.0 - index % 4, "is_greedy": False, "n_tokens": len(tail), "finite": True}
            on_result(index, answer)

    run_mmlu(build_mmlu(chosen_parts, "letters", shots), chosen, {}, take, lambda *_: None)
    return found, data.label


def score(backend: LlamaCppBackend, batches: Sequence[Document]) -> tuple[float, list[float]]:
    """Seconds, and log-probabilities in order; each batch starts from an empty cache."""
    values: list[float] = []
    start = time.perf_counter()
    for batch in batches:
        found: dict[int, ScoreResult] = {}
        backend.score(batch, found.__setitem__)
        values += [found[index].logprob for index in range(len(batch))]
    return time.perf_counter() - start, values


def evaluated(batches: Sequence[Document]) -> int:
    """Tokens that must be evaluated when prefixes are shared within a batch: nodes of its prefix tree."""
    total = 0
    for batch in batches:
        before: tuple[int, ...] = ()
        for tokens in sorted({(*request.context, *request.continuation[:-1]) for request in batch}):
            shared = next((i for i, (a, b) in enumerate(zip(before, tokens, strict=False)) if a != b), None)
            total += len(tokens) - (min(len(before), len(tokens)) if shared is None else shared)
            before = tokens
    return total


def measure(backend: LlamaCppBackend, found: list[Document], rounds: int, console: Console) -> dict[str, Any]:
    """Both ways in mirrored order, ``rounds`` times."""
    whole = [[request for document in found for request in document]]
    score(backend, found[:2])  # warm
    logs, times = [], {"shared": 0.0, "one by one": 0.0}
    answers: dict[str, list[float]] = {}
    for number in range(rounds):
        spent = {"shared": 0.0, "one by one": 0.0}
        for name in ("shared", "one by one", "one by one", "shared"):
            seconds, answers[name] = score(backend, whole if name == "shared" else found)
            spent[name] += seconds
        logs.append(float(np.log(spent["one by one"] / spent["shared"])))
        times = {name: times[name] + spent[name] for name in times}
        console.print(f"round {number + 1}/{rounds}: {np.exp(logs[-1]):.2f}x", highlight=False)
    ours, theirs = (np.array(answers[name]).reshape(-1, 4) for name in ("shared", "one by one"))
    ratio, factors = float(np.exp(np.mean(logs))), log_t_factors(logs)
    limit = evaluated(found) / evaluated(whole)
    return {
        "items": len(found),
        "items_per_s": len(found) * 2 * rounds / times["shared"],
        "tokens_per_s": evaluated(whole) * 2 * rounds / times["shared"],
        "ratio": ratio,
        "ratio_low": ratio * factors[0] if factors else None,
        "ratio_high": ratio * factors[1] if factors else None,
        "token_ratio": limit,
        "share_of_limit": ratio / limit,
        "equal_choices": float(np.mean(ours.argmax(axis=1) == theirs.argmax(axis=1))),
        "largest_difference": float(np.abs(ours - theirs).max()),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", default="q8_0")
    parser.add_argument("--subjects", type=int, default=3)
    parser.add_argument("--items", type=int, default=8, help="questions a subject")
    parser.add_argument("--shots", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=effective_cpus())
    args = parser.parse_args()
    console = Console(stderr=True)
    model = resolve("demo", args.weights)
    backend = LlamaCppBackend()
    backend.load(EngineSpec("llama_cpp", str(model.path), model.digest, args.weights, threads=args.threads))
    found, label = documents(backend, args.subjects, args.items, args.shots)
    figures = measure(backend, found, args.rounds, console)
    backend.close()
    table = Table(
        "figure", "value", title=f"{label}, {args.shots}-shot letters, {args.weights}, {args.threads} threads"
    )
    for key, value in figures.items():
        table.add_row(key, "-" if value is None else f"{value:.4g}")
    Console().print(table)
    goals = {"share_of_limit": GOAL_SHARE, "equal_choices": GOAL_EQUAL}
    holds = all(figures[key] >= goal for key, goal in goals.items())
    print(json.dumps({"benchmark": "scoring", "figures": figures, "goals": goals, "holds": holds}))
    return 0 if holds else 1


if __name__ == "__main__":
    raise SystemExit(main())
