"""The ``mmlu`` and ``cost`` entries of results.json from rows made by hand, and the page's tables of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from harness import schemas_suites
from harness.report import cost as cost_table
from harness.report import mmlu as mmlu_tables
from harness.results.cost import cost
from harness.results.mmlu import mmlu
from harness.results.model import PartRows, RunData, VariantRun


def doc(subject: str, number: int, pred: int) -> dict[str, Any]:
    logprobs = [-2.0] * 4
    logprobs[pred] = -1.0
    return {
        "subject": subject, "doc_id": number, "gold": 0, "logprobs": logprobs, "n_tokens": [1] * 4, "pred": pred,
        "correct": pred == 0, "finite": True,
    }  # fmt: skip


def variant(name: str, right: int, *, shared: bool = False, seconds: float = 4.0) -> VariantRun:
    docs = tuple(doc(("anatomy", "sociology")[i % 2], i, 0 if i < right else 1) for i in range(8))
    parts = {("mmlu", "docs"): PartRows(docs, "done", None, shared, seconds=seconds)}
    return VariantRun(name, name == "f16", name, {}, {}, parts)


RUN = RunData({}, (variant("f16", 6), variant("q4_0", 4), variant("f16+lookup", 6, shared=True)))
VARIANTS = [{"name": v.name, "reference": v.reference} for v in RUN.variants]


def test_fields_and_pairs_by_hand() -> None:
    found = mmlu(RUN)
    for entry in found.values():
        schemas_suites.MmluResult.model_validate(json.loads(json.dumps(entry, allow_nan=False)))
    q4 = found["q4_0"]
    # Of anatomy 0, 2 are right and 4 no longer; of sociology 1, 3 and no longer 5.
    assert list(q4["fields"]) == ["STEM", "social sciences"]
    assert q4["fields"]["STEM"]["accuracy"]["value"] == 0.5
    assert q4["fields"]["STEM"]["paired"]["delta"]["value"] == -0.25
    assert q4["subjects"] == {"anatomy": {"correct": 2, "n": 4}, "sociology": {"correct": 2, "n": 4}}
    pair = q4["overall"]["paired"]
    assert (pair["n"], pair["flips"], pair["fixed"], pair["broken"], pair["near_ties"]) == (8, 2, 0, 2, None)
    assert pair["p"] == pytest.approx(0.25)  # 2 x (1/2 of 1/4)
    assert pair["mde"] == pytest.approx(2.80 * (0.25 / 8) ** 0.5)
    assert found["f16"]["overall"]["paired"] is None and found["f16+lookup"]["overall"]["paired"] is None


def test_seconds_and_items_and_none_where_scores_are_shared() -> None:
    found = cost(RUN)
    for one in found:
        schemas_suites.Cost.model_validate(one)
    assert [(one["seconds"], one["items"], one["items_per_s"]) for one in found] == [
        (4.0, 8, 2.0), (4.0, 8, 2.0), (None, 8, None),
    ]  # fmt: skip
    (unknown,) = cost(RunData({}, (variant("f16", 6, seconds=0.0),)))
    assert unknown["seconds"] is None and unknown["items_per_s"] is None


def test_a_document_counts_once_though_it_has_several_rows() -> None:
    rows = ({"row": "answer"}, {"row": "judged"}, {"row": "answer"}, {"row": "judged"}, {"row": "task"})
    parts = {("lm_eval", "written"): PartRows(rows, "done", None, False, seconds=1.0)}
    (one,) = cost(RunData({}, (VariantRun("f16", True, "f16", {}, {}, parts),)))
    assert (one["items"], one["unit"]) == (2, "document")


def test_the_tables_say_difference_unseen_and_chance() -> None:
    made = mmlu_tables.section(mmlu(RUN), {"label": "MMLU", "at_chance": True, "why": "nothing shown"}, VARIANTS)
    assert made is not None and made.paired is not None
    assert [c.label for c in made.fields.columns] == ["all subjects", "STEM", "social sciences"]
    assert made.fields.rows[1].cells[0].below == ("(−25 points: not shown)",)
    assert made.fields.rows[0].cells[0].below == made.fields.rows[2].cells[0].below == ()
    assert [row.name for row in made.paired.rows] == ["q4_0"]
    assert [c.text for c in made.paired.rows[0].cells][1:] == ["0", "2", "0.25", "2/8", "49"]
    assert [[c.text for c in row.cells] for row in made.subjects.rows] == [["3/4", "2/4", "3/4"]] * 2
    assert "does not beat guessing" in made.words[0]
    assert mmlu_tables.section({}, {}, VARIANTS) is None


def test_the_table_of_costs() -> None:
    made = cost_table.grid(cost(RUN), VARIANTS)
    assert made is not None
    assert [c.label for c in made.columns] == ["mmlu", "in all"]
    assert made.rows[0].cells[0].text == "4.00" and made.rows[0].cells[0].below == ("8 questions, 2.0/s",)
    assert made.rows[2].cells[0].chips[0].label == "shared" and made.rows[2].cells[0].missing
    assert cost_table.grid((), VARIANTS) is None
