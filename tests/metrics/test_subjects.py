"""MMLU's fields are those of lm-eval's own groups."""

from __future__ import annotations

import re
from pathlib import Path

import lm_eval.tasks

from harness.metrics.subjects import FIELDS, by_field


def test_the_fields_are_those_that_lm_eval_groups_by() -> None:
    theirs: dict[str, set[str]] = {}
    for file in (Path(lm_eval.tasks.__file__).parent / "mmlu" / "default").glob("mmlu_*.yaml"):
        text = file.read_text(encoding="utf-8")
        tag, task = (re.search(f'"{key}": "mmlu_(\\w+)"', text) for key in ("tag", "task"))
        assert tag and task
        theirs.setdefault(tag[1].removesuffix("_tasks").replace("_", " ").replace("stem", "STEM"), set()).add(task[1])
    assert {field: set(subjects) for field, subjects in FIELDS.items()} == theirs
    assert sum(map(len, FIELDS.values())) == 57


def test_documents_by_field_in_a_fixed_order_and_unknown_subjects_left_out() -> None:
    docs = [{"subject": name} for name in ("virology", "my_own", "sociology", "anatomy", "prehistory")]
    assert {field: [doc["subject"] for doc in rows] for field, rows in by_field(docs).items()} == {
        "STEM": ["anatomy"], "humanities": ["prehistory"], "social sciences": ["sociology"], "other": ["virology"],
    }  # fmt: skip
