"""Small task files of every kind that a suite may ask for, with data of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

COLOURS = ("red", "green", "blue", "yellow")
CHOICE: dict[str, Any] = {
    "task": "own_choice", "output_type": "multiple_choice", "doc_to_text": "The {{thing}} is",
    "doc_to_target": "{{answer}}",
    "doc_to_choice": "{{options}}", "num_fewshot": 1, "fewshot_split": "dev", "fewshot_config": {"sampler": "first_n"},
    "metric_list": [
        {"metric": "acc", "aggregation": "mean", "higher_is_better": True},
        {"metric": "acc_norm", "aggregation": "mean", "higher_is_better": True},
    ],
}  # fmt: skip
WORDS: dict[str, Any] = {
    "task": "own_text", "output_type": "loglikelihood_rolling", "doc_to_text": "", "doc_to_target": "{{text}}",
    "metric_list": [{"metric": "word_perplexity"}, {"metric": "bits_per_byte"}],
}  # fmt: skip
WRITTEN: dict[str, Any] = {
    "task": "own_answer", "output_type": "generate_until", "doc_to_text": "Say {{thing}}:",
    "doc_to_target": "{{thing}}",
    "generation_kwargs": {"until": ["."], "max_gen_toks": 4, "do_sample": False},
    "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
}  # fmt: skip


def write_tasks(folder: Path, **changes: Any) -> Path:
    """A folder with one task of each kind over eight documents; ``changes`` go into all of them."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        {
            "thing": f"thing {n}",
            "options": [f" {c}" for c in COLOURS],
            "answer": n % 4,
            "text": f"There are {n} things.",
        }
        for n in range(8)
    ]
    files = {}
    for split, found in (("test", rows), ("dev", rows[:2])):
        path = folder / f"{split}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in found), encoding="utf-8")
        files[split] = str(path)
    for config in (CHOICE, WORDS, WRITTEN):
        data = {"dataset_path": "json", "dataset_kwargs": {"data_files": files}, "test_split": "test"}
        whole = {**config, **data, "metadata": {"version": 1.0}, **changes}
        (folder / f"{config['task']}.yaml").write_text(json.dumps(whole), encoding="utf-8")
    return folder
