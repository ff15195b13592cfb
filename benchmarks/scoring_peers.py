"""Our scorer against lm-eval's own model types on the same questions of the same model, in turn, answer by answer.

``python -m benchmarks.scoring_peers hf-bfloat16`` scores lm-eval's MMLU requests with us and with the peer alternately,
and prints both rates, their ratio, and every question that was answered differently. Peers:

hf-float32, hf-bfloat16   lm-eval's ``hf`` type: transformers on the same GGUF file (needs torch, transformers, gguf)
gguf                      lm-eval's ``gguf`` type over llama_cpp.server (needs llama-cpp-python[server])
local-completions         lm-eval's ``local-completions`` type over llama_cpp.server, prompts as text

llama_cpp.server ranks the whole vocabulary for every token of the prompt, so its two types take half a minute and more
for one option of a long prompt: ask for few questions there (``--peer-items 1``). Without a BOS token in front it also
assigns each token the log-probabilities of the one after it (llama-cpp-python 0.3.36: scores count from the prompt's
first token, tokens from the one after BOS), so with these types both sides read a BOS token first.

lm-eval's ``local-completions`` takes an option's log-probabilities from ``token_logprobs[ctxlen:-1]``: the last entry
is to be the one generated token. Where the model's next token is end of text, llama_cpp.server generates none, the
slice cuts the option's own token, and the option scores exactly 0.0, above every real one. Such options are counted as
``options_unscored_by_peer`` and left out of the comparison; the server's own figures for them equal ours to 1e-6.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from benchmarks.mmlu_requests import MmluRequests, Question
from benchmarks.peers import free_port, served
from benchmarks.ratios import conclude, pooled_ratio
from benchmarks.scoring import margin, shared, wide
from harness.backends.base import EngineSpec
from harness.backends.llama_cpp.engine import LlamaCppBackend
from harness.meters.cpus import effective_cpus
from harness.models import resolve

# Times as fast as the peer; the server types are told apart by their goal for the same reason as above.
GOALS = {"hf-bfloat16": 4.0, "gguf": 500.0, "local-completions": 500.0}
Peer = Callable[[Sequence[Question]], list[list[float]]]


def answers(model: Any, questions: Sequence[Question]) -> list[list[float]]:
    """Log-likelihoods from an lm-eval model, four a question."""
    from lm_eval.api.instance import Instance

    requests = [
        Instance("loglikelihood", {}, pair, index, metadata=("mmlu", index, 1))
        for index, pair in enumerate(pair for question in questions for pair in question.pairs)
    ]
    return np.array([logprob for logprob, _ in model.loglikelihood(requests)]).reshape(-1, 4).tolist()


_loaded: list[Any] = []


def _load_hf(path: str, dtype: str, batch: int) -> None:
    """Load the model in this process."""
    from lm_eval.models.huggingface import HFLM

    file = Path(path)
    _loaded.append(HFLM(str(file.parent), gguf_file=file.name, dtype=dtype, device="cpu", batch_size=batch))


def _answer_hf(questions: Sequence[Question]) -> list[list[float]]:
    return answers(_loaded[0], questions)


@contextlib.contextmanager
def hf(path: str, dtype: str, batch: int) -> Iterator[Peer]:
    """lm-eval's ``hf`` type, in a process of its own: oneDNN and llama.cpp break each other's AMX tiles in one."""
    with ProcessPoolExecutor(1, get_context("spawn"), _load_hf, (path, dtype, batch)) as pool:
        yield lambda questions: pool.submit(_answer_hf, list(questions)).result()


@contextlib.contextmanager
def completions_server(path: str, threads: int, ctx: int) -> Iterator[str]:
    """llama_cpp.server with log-probabilities of the prompt; yields its base URL."""
    port = free_port()
    command = [sys.executable, "-m", "llama_cpp.server", "--model", path, "--port", port]
    command += ["--n_threads", str(threads), "--n_threads_batch", str(threads), "--n_ctx", str(ctx)]
    command += ["--logits_all", "true", "--n_batch", "512", "--flash_attn", "false"]
    command += ["--kv_overrides", "tokenizer.ggml.add_bos_token=bool:true"]
    url = f"http://127.0.0.1:{port}"
    with served("llama_cpp.server", command, f"{url}/v1/models"):
        yield url


@contextlib.contextmanager
def over_server(kind: str, path: str, threads: int, ctx: int) -> Iterator[Peer]:
    """lm-eval's ``gguf`` or ``local-completions`` type over llama_cpp.server."""
    with completions_server(path, threads, ctx) as url, tempfile.TemporaryDirectory() as folder:
        model: Any
        if kind == "gguf":
            from lm_eval.models.gguf import GGUFLM

            model = GGUFLM(base_url=url, max_length=ctx)
        else:
            from lm_eval.models.openai_completions import LocalCompletionsAPI
            from transformers import AutoTokenizer

            file = Path(path)
            AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name).save_pretrained(folder)
            model = LocalCompletionsAPI(
                base_url=f"{url}/v1/completions",
                tokenizer_backend="huggingface",
                model="demo",
                tokenizer=folder,
                tokenized_requests=False,  # the server answers token ids with an error
                max_length=ctx,
                timeout=3600,
            )
        yield lambda questions: answers(model, questions)


def after(first: tuple[int, ...], question: Question) -> Question:
    """The question with these tokens in front of its contexts."""
    if not first:
        return question
    requests = tuple(replace(request, context=(*first, *request.context)) for request in question.requests)
    return replace(question, requests=requests)


def opened(name: str, path: str, args: argparse.Namespace) -> contextlib.AbstractContextManager[Peer]:
    """A peer by name."""
    if name.startswith("hf-"):
        return hf(path, name.removeprefix("hf-"), args.batch)
    return over_server(name, path, args.threads, args.ctx)


def measure(
    backend: LlamaCppBackend, peer: Peer, questions: Sequence[Question], args: argparse.Namespace, console: Console
) -> tuple[dict[str, Any], list[str]]:
    """Both in turn, the order alternating; the peer on the first ``peer_items`` questions only."""
    few = questions[: args.peer_items or len(questions)]
    seconds: dict[str, list[float]] = {"ours": [], "peer": []}
    found: dict[str, np.ndarray[Any, Any]] = {}
    shared(backend, questions[:1])
    if args.warm:
        peer(few[:1])
    for number in range(args.rounds):
        for who in ("ours", "peer") if number % 2 else ("peer", "ours"):
            start = time.perf_counter()
            found[who] = np.array(shared(backend, questions) if who == "ours" else peer(few))
            seconds[who].append((time.perf_counter() - start) / len(found[who]))
        console.print(
            f"round {number + 1}/{args.rounds}: {seconds['ours'][-1]:.3f} s a question, "
            f"peer {seconds['peer'][-1]:.3f} s",
            highlight=False,
        )
    same, lines = agreement(found["ours"][: len(few)], found["peer"], few)
    return {
        "questions_ours": len(questions),
        "questions_per_s_ours": 1 / float(np.mean(seconds["ours"])),
        "questions_per_s_peer": 1 / float(np.mean(seconds["peer"])),
        "times_as_fast": pooled_ratio(seconds["peer"], seconds["ours"]),
        **same,
    }, lines


def agreement(
    ours: np.ndarray[Any, Any], theirs: np.ndarray[Any, Any], questions: Sequence[Question]
) -> tuple[dict[str, Any], list[str]]:
    """How far two tables of log-likelihoods (questions x 4 options, nats) agree, and a line for each other answer.

    Scores are compared where the peer scored the option (exactly 0.0 is the sum of nothing), answers where it scored
    all four; ``None`` where there is none to compare.
    """
    scored = theirs != 0.0
    whole = np.flatnonzero(scored.all(axis=1))
    apart = np.abs(ours - theirs)[scored]
    gold = np.array([question.gold for question in questions])
    differ = [int(i) for i in whole if ours[i].argmax() != theirs[i].argmax()]
    lines = [
        f"{questions[i].key}: {'ABCD'[ours[i].argmax()]} ours, {'ABCD'[theirs[i].argmax()]} peer; "
        f"margins {margin(ours[i]):.4f} and {margin(theirs[i]):.4f} nats"
        for i in differ
    ]
    return {
        "questions_peer": len(questions),
        "options_unscored_by_peer": int((~scored).sum()),
        "options_compared": len(apart),
        "largest_difference_nats": float(apart.max()) if len(apart) else None,
        "mean_difference_nats": float(apart.mean()) if len(apart) else None,
        "answers_compared": len(whole),
        "equal_choices": 1 - len(differ) / len(whole) if len(whole) else None,
        "differences_at_near_ties": 1 - sum(wide(ours[i], theirs[i]) for i in differ) / max(1, len(differ)),
        "accuracy_ours": float(np.mean(ours.argmax(axis=1) == gold)),
        "accuracy_peer": float(np.mean(theirs.argmax(axis=1) == gold)),
    }, lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=("hf-float32", "hf-bfloat16", "gguf", "local-completions"))
    parser.add_argument("--weights", default="q8_0", help="ours; the hf types read the F16 file")
    parser.add_argument("--form", choices=("letters", "continuation"), default="letters")
    parser.add_argument("--shots", type=int, help="default: 5 for letters, 0 for continuation")
    parser.add_argument("--subject", action="append", help="default: astronomy; may be given several times; 'all'")
    parser.add_argument("--items", type=int, default=20, help="questions a subject")
    parser.add_argument("--peer-items", type=int, default=0, help="how many of them the peer gets; 0 for all")
    parser.add_argument("--warm", action=argparse.BooleanOptionalAction, default=True, help="one question first")
    parser.add_argument("--batch", type=int, default=4, help="of the hf types")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--ctx", type=int, default=4096)
    parser.add_argument("--threads", type=int, default=effective_cpus())
    args = parser.parse_args()
    shots = args.shots if args.shots is not None else (5 if args.form == "letters" else 0)
    model = resolve("demo", args.weights)
    backend = LlamaCppBackend()
    backend.load(
        EngineSpec("llama_cpp", str(model.path), model.digest, args.weights, threads=args.threads, ctx=args.ctx)
    )
    data = MmluRequests(args.form, shots, lambda text: backend.tokenize(text, bos=True))
    first = () if args.peer.startswith("hf-") else (backend._vocab.bos,)
    subjects = args.subject or ["astronomy"]
    names = sorted(data.parts) if subjects == ["all"] else subjects
    questions = [after(first, question) for name in names for question in data.questions(name, args.items)]
    file = str(resolve("demo", "f16").path) if args.peer.startswith("hf-") else str(model.path)
    with opened(args.peer, file, args) as peer:
        found, lines = measure(backend, peer, questions, args, Console(stderr=True))
    for line in lines:
        print(line)
    goals = {"times_as_fast": GOALS[args.peer]} if args.peer in GOALS else {}
    title = f"{args.peer} · {data.source.label}, {shots}-shot {args.form}, ours {args.weights}, {args.threads} threads"
    return conclude(f"scoring_peers.{args.peer}", title, found, goals)


if __name__ == "__main__":
    raise SystemExit(main())
