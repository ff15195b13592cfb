"""Scoring with shared prefixes against one pass a question, on the same engine, in turn, and the answers compared.

``python -m benchmarks.scoring`` takes lm-eval's own MMLU prompts. Subject by subject it scores them with the scorer,
and then (or first: the order alternates) each question alone, from an empty cache and without any of the scorer's
code. It prints the ratio of the times beside the ratio of the tokens, which is the most that sharing can give, and
every question whose answer differs. With ``--pp512`` llama-bench measures in between how fast the engine itself reads
512 tokens, and a question of the subject's length after a prefix of its length: attention over the prefix costs time
that 512 tokens from nothing do not.

``--rows FILE`` keeps what was measured: a second run goes on where the first ended. Times need a quiet machine; the
answers do not depend on it.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from benchmarks import peers
from benchmarks.mmlu_requests import Alone, MmluRequests, Question, tokens_alone, tokens_shared
from benchmarks.ratios import conclude, pooled_ratio
from harness.backends.base import EngineSpec, ScoreResult
from harness.backends.llama_cpp.engine import LlamaCppBackend
from harness.backends.llama_cpp.load import open_model
from harness.backends.llama_cpp.score_plan import common
from harness.meters.cpus import effective_cpus
from harness.models import resolve

GOALS = {"share_of_limit": 0.85, "differences_at_near_ties": 1.0}
# Quantised kernels round with the place of a token in the cache; unquantised ones hardly do.
EQUAL_GOAL = {"f16": 0.995}
PP512_GOAL = 0.8
# A difference of the two best options below this many nats is a near tie.
NEAR_TIE = 0.35
# Below this many nats two scores are the same: the two softmaxes are computed in other precisions.
SAME = 1e-5
Block = dict[str, Any]


def shared(backend: LlamaCppBackend, questions: Sequence[Question]) -> list[list[float]]:
    """The scorer's log-likelihoods, four a question, all questions in one job."""
    requests = [request for question in questions for request in question.requests]
    found: dict[int, ScoreResult] = {}
    backend.score(requests, found.__setitem__)
    return np.array([found[index].logprob for index in range(len(requests))]).reshape(-1, 4).tolist()


def block(backend: LlamaCppBackend, alone: Alone, questions: Sequence[Question], number: int) -> Block:
    """Both ways on one subject."""
    seconds, answers = {}, {}
    for way in ("shared", "alone") if number % 2 else ("alone", "shared"):
        start = time.perf_counter()
        answers[way] = shared(backend, questions) if way == "shared" else [alone(question) for question in questions]
        seconds[way] = time.perf_counter() - start
    return {
        "seconds": seconds,
        "tokens": {
            "shared": tokens_shared(request for question in questions for request in question.requests),
            "alone": tokens_alone(questions),
        },
        "keys": [question.key for question in questions],
        "gold": [question.gold for question in questions],
        "answers": answers,
    }


def engine_tps(args: argparse.Namespace, path: str, questions: Sequence[Question]) -> dict[str, float]:
    """The engine's own prompt speeds by llama-bench, tokens/s: of 512 tokens, and of a question after its prefix."""
    contexts = sorted(question.requests[0].context for question in questions)
    prefix = common(np.array(contexts[0], np.int32), np.array(contexts[-1], np.int32))
    rest = max(8, sum(map(len, contexts)) // len(contexts) - prefix)
    return {
        name: float(np.mean(peers.bench(path, threads=args.threads, n_prompt=n, depth=depth, reps=3)["prompt"]))
        for name, (n, depth) in {"pp512": (512, 0), "after_prefix": (rest, prefix)}.items()
    }


def margin(four: Sequence[float]) -> float:
    """Best minus second."""
    best, second = sorted(four, reverse=True)[:2]
    return float(best - second)


def share(tps: float, engine: Sequence[dict[str, float]], name: str) -> dict[str, Any] | None:
    """Our rate over the engine's own."""
    return {"value": tps / float(np.mean([rates[name] for rates in engine])), "n": len(engine)} if engine else None


def wide(ours: Sequence[float], theirs: Sequence[float]) -> bool:
    """Whether neither side was near a tie."""
    return min(margin(ours), margin(theirs)) > NEAR_TIE


def figures(blocks: Sequence[Block], engine: Sequence[dict[str, float]]) -> tuple[dict[str, Any], list[str]]:
    """The table's figures and a line for each question that was answered differently."""
    ours, theirs = (np.array([four for b in blocks for four in b["answers"][way]]) for way in ("shared", "alone"))
    keys = [key for b in blocks for key in b["keys"]]
    gold = np.array([g for b in blocks for g in b["gold"]])
    differ = [int(i) for i in np.flatnonzero(ours.argmax(axis=1) != theirs.argmax(axis=1))]
    times = {way: [b["seconds"][way] for b in blocks] for way in ("shared", "alone")}
    tokens = {way: [b["tokens"][way] for b in blocks] for way in ("shared", "alone")}
    ratio, limit = pooled_ratio(times["alone"], times["shared"]), sum(tokens["alone"]) / sum(tokens["shared"])
    tps = sum(tokens["shared"]) / sum(times["shared"])
    found = {
        "questions": len(keys),
        "tokens_alone": sum(tokens["alone"]),
        "tokens_shared": sum(tokens["shared"]),
        "limit": limit,
        "ratio": ratio,
        "share_of_limit": {**ratio, **{k: ratio[k] and ratio[k] / limit for k in ("value", "low", "high")}},
        "questions_per_s": len(keys) / sum(times["shared"]),
        "unique_tps": tps,
        "share_of_pp512": share(tps, engine, "pp512"),
        "share_of_after_prefix": share(tps, engine, "after_prefix"),
        "equal_choices": 1 - len(differ) / len(keys),
        "equal_scores": float(np.mean((np.abs(ours - theirs) < SAME).all(axis=1))),
        "largest_difference_nats": float(np.abs(ours - theirs).max()),
        "accuracy_shared": float(np.mean(ours.argmax(axis=1) == gold)),
        "accuracy_alone": float(np.mean(theirs.argmax(axis=1) == gold)),
        "differences_at_near_ties": 1 - sum(wide(ours[i], theirs[i]) for i in differ) / max(1, len(differ)),
    }
    lines = [
        f"{keys[i]}: {'ABCD'[ours[i].argmax()]} shared, {'ABCD'[theirs[i].argmax()]} alone; "
        f"margins {margin(ours[i]):.4f} and {margin(theirs[i]):.4f} nats"
        for i in differ
    ]
    return found, lines


def load_rows(path: Path | None, settings: dict[str, Any]) -> dict[str, Block]:
    """Blocks of an earlier run with the same settings, by subject."""
    if path is None or not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return {row["subject"]: row["block"] for row in rows if row["settings"] == settings}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", default="q8_0")
    parser.add_argument("--form", choices=("letters", "continuation"), default="letters")
    parser.add_argument("--shots", type=int, help="default: 5 for letters, 0 for continuation")
    parser.add_argument("--subjects", type=int, default=6, help="how many of the 57; 57 for all")
    parser.add_argument("--items", type=int, default=20, help="questions a subject; 0 for all")
    parser.add_argument("--threads", type=int, default=effective_cpus())
    parser.add_argument("--ctx", type=int, default=4096)
    parser.add_argument("--pp512", action="store_true", help="measure llama-bench's prompt speeds too (builds it)")
    parser.add_argument("--rows", type=Path, help="file that keeps each subject's times and answers")
    args = parser.parse_args()
    shots = args.shots if args.shots is not None else (5 if args.form == "letters" else 0)
    console = Console(stderr=True)
    model = resolve("demo", args.weights)
    spec = EngineSpec("llama_cpp", str(model.path), model.digest, args.weights, threads=args.threads, ctx=args.ctx)
    backend = LlamaCppBackend()
    backend.load(spec)
    alone = Alone(open_model(str(model.path), 0), spec)
    data = MmluRequests(args.form, shots, lambda text: backend.tokenize(text, bos=True))
    names = sorted(data.parts)
    random.Random(0).shuffle(names)
    settings = {"weights": args.weights, "form": args.form, "shots": shots, "items": args.items, "digest": model.digest}
    done = load_rows(args.rows, settings)
    blocks: list[Block] = []
    engine: list[dict[str, float]] = []
    for number, subject in enumerate(names[: args.subjects]):
        if subject not in done:
            questions = data.questions(subject, args.items or None)
            if not number:
                alone(questions[0]), shared(backend, questions[:1])  # warm
            done[subject] = block(backend, alone, questions, number)
            if args.rows:
                with args.rows.open("a") as file:
                    file.write(json.dumps({"settings": settings, "subject": subject, "block": done[subject]}) + "\n")
        if args.pp512 and number % 3 == 0:
            engine.append(engine_tps(args, str(model.path), data.questions(subject, args.items or None)))
        blocks.append(done[subject])
        seconds = done[subject]["seconds"]
        console.print(
            f"{number + 1}/{args.subjects} {subject}: {seconds['alone']:.1f} s alone, {seconds['shared']:.1f} s shared",
            highlight=False,
        )
    found, lines = figures(blocks, engine)
    for line in lines:
        print(line)
    goals = GOALS | ({"share_of_pp512": PP512_GOAL} if args.pp512 else {})
    goals |= {"equal_choices": EQUAL_GOAL[args.weights]} if args.weights in EQUAL_GOAL else {}
    title = f"{data.source.label}, {shots}-shot {args.form}, {args.weights}, {args.threads} threads"
    return conclude("scoring", title, found, goals)


if __name__ == "__main__":
    raise SystemExit(main())
