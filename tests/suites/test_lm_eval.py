"""lm-eval's MMLU over our scorer: its own prompts, its own metric, rows that resume."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.errors import CellError, InputError
from harness.suites.data import suite_file
from harness.suites.lm_eval import build_mmlu, run_mmlu
from harness.suites.mmlu import MmluData, find_mmlu, load_mmlu, pick

SUBJECTS = 57


@pytest.fixture(scope="module")
def sample() -> dict[str, Any]:
    parts, _ = load_mmlu(MmluData("sample", str(suite_file("mmlu/sample.jsonl")), "sample"))
    return {name: parts[name] for name in ("anatomy", "world_religions")}


def scorer(value: Callable[[str, str], float], seen: list[tuple[str, str]], finite: bool = True) -> Any:
    def score(pairs: Sequence[tuple[str, str]], on_result: Callable[[int, Mapping[str, Any]], None]) -> None:
        seen.extend(pairs)
        for index, pair in reversed(list(enumerate(pairs))):
            logprob = value(*pair)
            on_result(index, {"logprob": logprob, "is_greedy": False, "n_tokens": 1, "finite": finite})

    return score


def test_the_sample_has_the_shape_of_mmlu() -> None:
    rows = [json.loads(line) for line in suite_file("mmlu/sample.jsonl").read_text(encoding="utf-8").splitlines()]
    by_subject: dict[str, list[Any]] = {}
    for row in rows:
        by_subject.setdefault(row["subject"], []).append(row)
    assert len(by_subject) == SUBJECTS
    for found in by_subject.values():
        assert sum(row["split"] == "dev" for row in found) == 5
        assert sum(row["split"] == "test" for row in found) >= 4
    assert len({row["question"] for row in rows}) == len(rows)
    assert all(len(set(row["choices"])) == 4 and row["answer"] in range(4) for row in rows)
    test = [row for row in rows if row["split"] == "test"]
    assert sum(row["level"] == "elementary" for row in test) >= len(test) / 2
    for answer in range(4):
        assert 0.2 <= sum(row["answer"] == answer for row in test) / len(test) <= 0.3


def test_prompts_and_metric_are_lm_evals_own(sample: dict[str, Any]) -> None:
    tasks = build_mmlu(sample, "letters", 5)
    seen: list[tuple[str, str]] = []
    rows: dict[str, Any] = {}
    results = run_mmlu(
        tasks,
        {"anatomy": [0, 3]},
        {},
        scorer(lambda _, option: -1.0 if option == " B" else -2.0, seen),
        rows.__setitem__,
    )
    assert len(seen) == 8
    assert seen[0][0].startswith("The following are multiple choice questions (with answers) about anatomy.\n\n")
    assert seen[0][0].count("\nAnswer:") == 6
    assert [option for _, option in seen[:4]] == [" A", " B", " C", " D"]
    gold = [sample["anatomy"]["test"][number]["answer"] for number in (0, 3)]
    assert results["mmlu_anatomy"]["acc,none"] == sum(answer == 1 for answer in gold) / 2
    assert {key: row["correct"] for key, row in rows.items()} == {
        "anatomy/00000": gold[0] == 1,
        "anatomy/00003": gold[1] == 1,
    }


def test_continuation_form_scores_the_choices_themselves(sample: dict[str, Any]) -> None:
    seen: list[tuple[str, str]] = []
    tasks = build_mmlu(sample, "continuation", 0)
    score = scorer(lambda _, option: -float(sum(map(ord, option))), seen)
    run_mmlu(tasks, {"world_religions": [1]}, {}, score, lambda *_: None)
    question = sample["world_religions"]["test"][1]
    assert [option for _, option in seen] == [f" {choice}" for choice in question["choices"]]
    assert seen[0][0].endswith(f"Question: {question['question']}\nAnswer:")


def test_stored_documents_are_not_scored_again(sample: dict[str, Any]) -> None:
    tasks = build_mmlu(sample, "continuation", 0)
    chosen = {"anatomy": [0, 1, 2]}
    first: dict[str, Any] = {}
    seen: list[tuple[str, str]] = []
    score = scorer(lambda _, option: -float(len(option)), seen)
    whole = run_mmlu(tasks, chosen, {}, score, first.__setitem__)
    assert len(seen) == 12
    again: dict[str, Any] = {}
    seen.clear()
    kept = {key: json.loads(json.dumps(row)) for key, row in first.items() if key != "anatomy/00001"}
    resumed = run_mmlu(tasks, chosen, kept, score, again.__setitem__)
    assert len(seen) == 4
    assert again == {"anatomy/00001": first["anatomy/00001"]}
    assert resumed == whole


def test_a_nonfinite_option_makes_the_item_invalid(sample: dict[str, Any]) -> None:
    tasks = build_mmlu(sample, "continuation", 0)
    rows: dict[str, Any] = {}
    run_mmlu(
        tasks,
        {"anatomy": [0]},
        {},
        scorer(lambda *_: float("nan"), [], finite=False),
        lambda key, row: rows.update({key: row}),
    )
    row = rows["anatomy/00000"]
    assert (row["pred"], row["correct"], row["finite"]) == (None, None, False)
    assert row["logprobs"] == [None] * 4


def test_an_engine_that_scores_every_option_alike_is_refused_and_nothing_is_stored(sample: dict[str, Any]) -> None:
    """Taken for answers, its ties would land on chance: the first option wins each."""
    stored: dict[str, Any] = {}
    with pytest.raises(CellError, match="all options of 3 questions score exactly the same, of anatomy/00000 first"):
        run_mmlu(
            build_mmlu(sample, "letters", 0), {"anatomy": [0, 1, 2]}, {}, scorer(lambda *_: 0.0, []), stored.__setitem__
        )
    assert stored == {}


def test_an_option_without_a_score_is_an_error_and_neither_zero_nor_minus_infinity(sample: dict[str, Any]) -> None:
    stored: dict[str, Any] = {}

    def drops_one(pairs: Sequence[tuple[str, str]], on_result: Callable[[int, Mapping[str, Any]], None]) -> None:
        for index in range(len(pairs) - 1):
            on_result(index, {"logprob": -1.0 - index, "is_greedy": False, "n_tokens": 1, "finite": True})

    with pytest.raises(KeyError, match="anatomy/00001"):
        run_mmlu(build_mmlu(sample, "letters", 0), {"anatomy": [0, 1]}, {}, drops_one, stored.__setitem__)
    assert set(stored) == {"anatomy/00000"}


def test_pick_is_balanced_seeded_and_nested() -> None:
    sizes = {"a": 10, "b": 3}
    few, more = pick(sizes, 2, 0), pick(sizes, 4, 0)
    assert [len(few[name]) for name in sizes] == [2, 2]
    assert len(more["b"]) == 3
    assert set(few["a"]) < set(more["a"])
    assert pick(sizes, 2, 1) != few
    assert pick(sizes, None, 0)["a"] == list(range(10))


def test_a_folder_without_mmlu_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="found no MMLU there"):
        find_mmlu(str(tmp_path), {})


def test_the_folder_given_wins_over_the_environment(tmp_path: Path) -> None:
    for base in ("a", "b"):
        (tmp_path / base / "mmlu" / "cais_mmlu" / "all").mkdir(parents=True)
    found = find_mmlu(str(tmp_path / "a"), {"HARNESS_DATA": str(tmp_path / "b")})
    assert (found.kind, found.label) == ("folder", "MMLU")
    assert found.path == str(tmp_path / "a" / "mmlu" / "cais_mmlu")


@pytest.mark.skipif("HARNESS_DATA" not in os.environ, reason="HARNESS_DATA is not set: no MMLU to read")
def test_real_mmlu_is_whole() -> None:
    data = find_mmlu(None, {"HARNESS_DATA": os.environ["HARNESS_DATA"]})
    parts, _ = load_mmlu(data)
    assert len(parts) == SUBJECTS
    assert sum(len(part["test"]) for part in parts.values()) == 14_042
    assert all(len(part["dev"]) == 5 for part in parts.values())
