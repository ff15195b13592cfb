"""Our lm_eval suite against lm-eval's own command line on the same model file, document by document.

``python -m benchmarks.lm_eval_equality --data DIR`` runs three tasks of different kinds with both: MMLU's astronomy
(multiple choice), GSM8K with two examples (generation) and WikiText-2 (rolling likelihood), on the same documents. The
peer is ``python -m lm_eval --model hf`` in float32 on the same GGUF file, in a process of its own. DIR holds
``mmlu/cais_mmlu``, ``gsm8k/test.jsonl`` and ``wikitext2/wiki.test.nonblank.lf.txt``; the tasks are lm-eval's own, told
to read them there. Needs torch, transformers and gguf.

Two engines round differently, so log-likelihoods agree to hundredths of a nat, not to the bit, and greedy texts may
part where the two best tokens are nearly tied.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from benchmarks.ratios import conclude
from harness.models import resolve
from harness.results import derive
from harness.run.collect import collect
from harness.run.prepare import SweepOptions
from harness.run.sweep import sweep
from harness.store import Store

TASKS = ("mmlu_astronomy", "gsm8k", "wikitext")
SHOTS = {"mmlu_astronomy": 5, "gsm8k": 2, "wikitext": 0}
# Shares of documents that both judge alike, and the largest differences of log-likelihoods: of an option, in nats, and
# of a whole text, in nats a token.
GOALS = {"mmlu_astronomy: judged alike": 0.99, "gsm8k: judged alike": 0.95}
LIMITS = {"mmlu_astronomy: largest difference, nats": 0.1, "wikitext: largest difference, nats a token": 0.002}
LIMITS |= {"wikitext: |ln ratio| of word perplexity": 0.001}
Sample = Mapping[str, Any]


def pages(text: str) -> Iterator[str]:
    """WikiText's articles: each begins with a line ``= Title =``."""
    found: list[str] = []
    for line in text.split("\n"):
        if re.fullmatch(r" ?= [^=].*[^=] = ?", line) and found:
            yield "\n".join(found)
            found = []
        found.append(line)
    yield "\n".join(found)


def task_files(data: Path, folder: Path) -> None:
    """Task files that take lm-eval's own tasks and read their data from ``data``."""
    import lm_eval.tasks

    own = Path(lm_eval.tasks.__file__).parent
    articles = folder / "articles.jsonl"
    text = (data / "wikitext2" / "wiki.test.nonblank.lf.txt").read_text(encoding="utf-8")
    articles.write_text("".join(json.dumps({"page": page}) + "\n" for page in pages(text)), encoding="utf-8")
    changes: dict[str, tuple[Path, dict[str, Any]]] = {
        "mmlu_astronomy": (
            own / "mmlu" / "default" / "mmlu_astronomy.yaml", {"dataset_path": str(data / "mmlu" / "cais_mmlu")},
        ),
        "gsm8k": (
            own / "gsm8k" / "gsm8k.yaml",
            {
                "dataset_path": "json", "dataset_name": None, "training_split": None, "fewshot_split": "test",
                "dataset_kwargs": {"data_files": {"test": str(data / "gsm8k" / "test.jsonl")}},
            },
        ),
        "wikitext": (
            own / "wikitext" / "wikitext.yaml",
            {
                "dataset_path": "json", "dataset_name": None, "training_split": None, "validation_split": None,
                "dataset_kwargs": {"data_files": {"test": str(articles)}},
            },
        ),
    }  # fmt: skip
    for name, (include, change) in changes.items():
        # YAML reads JSON.
        config = {"include": str(include), "task": name, "num_fewshot": SHOTS[name], **change}
        (folder / f"{name}.yaml").write_text(json.dumps(config), encoding="utf-8")


def ours(folder: Path, weights: str, limits: Mapping[str, int], ctx: int) -> tuple[dict[str, dict[int, Sample]], Any]:
    """Rows of our suite by task and document, and ``tasks`` of results.json."""
    tasks = [{"task": name, "limit": limit} for name, limit in limits.items()]
    config = {
        "version": 1, "model": "demo", "reference": weights, "matrix": {"weights": [weights]},
        "settings": {"ctx": ctx}, "suites": {"lm_eval": {"tasks": tasks, "include": str(folder)}},
    }  # fmt: skip
    path = folder / "variants.yml"
    path.write_text(json.dumps(config), encoding="utf-8")
    outcome = sweep(SweepOptions(path, out=folder / "run", fresh=True))
    if outcome.failed_cells:
        raise SystemExit("; ".join(outcome.failed_cells))
    store = Store.open(Path(outcome.folder))
    run = collect(store)
    store.close()
    found: dict[str, dict[int, dict[str, Any]]] = {name: {} for name in limits}
    for part in ("scored", "written"):
        for row in run.variants[0].rows("lm_eval", part):
            if row["row"] in ("answer", "judged"):
                found[row["task"]].setdefault(row["doc_id"], {}).update(row)
    return {name: dict(rows) for name, rows in found.items()}, derive(run)[0]["tasks"]


def theirs(
    folder: Path, model: Path, chosen: Mapping[str, Sequence[int]], ctx: int
) -> tuple[dict[str, dict[int, list[Sample]]], Any]:
    """The samples that lm-eval's command line logs, by task and document (one a filter), and its results."""
    out = folder / "lm_eval"
    arguments = f"pretrained={model.parent},gguf_file={model.name},dtype=float32,max_length={ctx - 1}"
    command = [sys.executable, "-m", "lm_eval", "run", "--model", "hf", "--model_args", arguments, "--device", "cpu"]
    command += ["--tasks", *chosen, "--include_path", str(folder), "--batch_size", "4", "--log_samples"]
    command += ["--samples", json.dumps({name: list(numbers) for name, numbers in chosen.items()})]
    command += ["--output_path", str(out)]
    subprocess.run(command, check=True, stdout=sys.stderr, env={**os.environ, "HF_DATASETS_OFFLINE": "0"})
    found: dict[str, dict[int, list[Sample]]] = {}
    for name in chosen:
        (path,) = out.rglob(f"samples_{name}_*.jsonl")
        found[name] = {}
        for line in path.read_text(encoding="utf-8").splitlines():
            sample = json.loads(line)
            found[name].setdefault(sample["doc_id"], []).append(sample)
    (path,) = out.rglob("results_*.json")
    return found, json.loads(path.read_text(encoding="utf-8"))["results"]


def judged_alike(mine: Mapping[int, Sample], peers: Mapping[int, Sequence[Sample]]) -> list[bool]:
    """Whether both gave a document the same value of every metric that is right or wrong."""
    same = []
    for number, samples in peers.items():
        values = {
            f"{metric},{sample['filter']}": sample[metric]
            for sample in samples
            for metric in sample["metrics"]
            if isinstance(sample[metric], int | float)
        }
        same.append(all(mine[number]["values"][key] == value for key, value in values.items()))
    return same


def logprobs(samples: Sequence[Sample]) -> list[float]:
    """The peer's log-likelihoods of a document."""
    return [float(response[0][0] if isinstance(response[0], list) else response[0]) for response in samples[0]["resps"]]


def _share(said: Sequence[bool]) -> dict[str, Any]:
    return {"value": float(np.mean(said)), "low": None, "high": None, "n": len(said)}


def figures(
    mine: Mapping[str, Mapping[int, Sample]], peers: Mapping[str, Mapping[int, Sequence[Sample]]]
) -> dict[str, Any]:
    """The comparison, document by document."""
    rows: dict[str, Any] = {}
    for name in TASKS[:2]:
        rows[f"{name}: judged alike"] = _share(judged_alike(mine[name], peers[name]))
    apart = [
        abs(response["logprob"] - theirs_)
        for number, samples in peers["mmlu_astronomy"].items()
        for response, theirs_ in zip(mine["mmlu_astronomy"][number]["responses"], logprobs(samples), strict=True)
    ]
    rows["mmlu_astronomy: largest difference, nats"] = max(apart)
    texts = [mine["gsm8k"][n]["responses"][0]["text"] == s[0]["resps"][0][0] for n, s in peers["gsm8k"].items()]
    rows["gsm8k: the same text"] = _share(texts)
    per_token = [
        abs(mine["wikitext"][number]["responses"][0]["logprob"] - logprobs(samples)[0])
        / mine["wikitext"][number]["responses"][0]["n_tokens"]
        for number, samples in peers["wikitext"].items()
    ]
    rows["wikitext: largest difference, nats a token"] = max(per_token)
    rows["wikitext: tokens"] = sum(row["responses"][0]["n_tokens"] for row in mine["wikitext"].values())
    return rows


def totals(entries: Sequence[Mapping[str, Any]], results: Mapping[str, Any], weights: str) -> dict[str, Any]:
    """Each metric as both print it, and the perplexities' ratio."""
    rows: dict[str, Any] = {}
    for entry in entries:
        for metric in entry["metrics"]:
            key, value = metric["key"], metric["variants"][weights]
            rows[f"{entry['task']} {key}, ours"] = {k: value[k] for k in ("value", "low", "high", "n")}
            rows[f"{entry['task']} {key}, lm-eval"] = results[entry["task"]][key]
            if key == "word_perplexity,none":
                rows["wikitext: |ln ratio| of word perplexity"] = abs(
                    math.log(value["value"] / results[entry["task"]][key])
                )
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("HARNESS_DATA"), help="default: $HARNESS_DATA")
    parser.add_argument("--weights", default="f16")
    parser.add_argument("--ctx", type=int, default=2048, help="tokens of a window, for both")
    parser.add_argument("--items", type=int, default=100, help="of astronomy; a fifth of it of gsm8k, a tenth of texts")
    args = parser.parse_args()
    if args.data is None:
        parser.error("no data; expected --data or HARNESS_DATA")
    if args.items < 10:
        parser.error(f"--items {args.items}; expected 10 or more")
    limits = dict(zip(TASKS, (args.items, args.items // 5, args.items // 10), strict=True))
    model = Path(resolve("demo", args.weights).path)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        task_files(Path(args.data).resolve(), folder)
        start = time.perf_counter()
        mine, entries = ours(folder, args.weights, limits, args.ctx)
        between = time.perf_counter()
        chosen = {task: sorted(mine[task]) for task in TASKS}
        peers, results = theirs(folder, model, chosen, args.ctx)
        seconds = {"seconds, ours": between - start, "seconds, lm-eval": time.perf_counter() - between}
    rows = {**figures(mine, peers), **totals(entries, results, args.weights), **seconds}
    Console(stderr=True).print(f"documents: {chosen}", highlight=False)
    return conclude("lm_eval_equality", f"{args.weights} by us and by lm-eval --model hf, float32", rows, GOALS, LIMITS)


if __name__ == "__main__":
    raise SystemExit(main())
