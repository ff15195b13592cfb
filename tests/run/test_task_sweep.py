"""lm-eval's tasks in a whole sweep with the fake engine: rows, figures, resuming, and faults of the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.errors import ConfigError
from harness.results import derive
from harness.run.collect import collect
from harness.run.pool import WorkerHandle
from harness.run.sweep import sweep
from harness.store import Store

from ..suites.lm_eval_tasks import write_tasks
from .conftest import Project

MATRIX = "matrix: {weights: [f16, q8_0], speculate: [none, lookup]}\nspeculate: {lookup: {kind: prompt_lookup}}\n"


def suite(project: Project, tasks: str, **changes: Any) -> str:
    write_tasks(project.folder / "tasks", **changes)
    return f"{MATRIX}suites: {{lm_eval: {{tasks: {tasks}, include: tasks}}}}\n"


def tasks_of(folder: str | Path) -> dict[str, Any]:
    found = json.loads((Path(folder) / "results.json").read_text(encoding="utf-8"))["tasks"]
    return {task["task"]: task for task in found}


def test_every_kind_of_task_by_variant(project: Project) -> None:
    rest = suite(project, "[own_choice, own_text, {task: own_answer, limit: 3}]")
    outcome = sweep(project.options("", rest))
    assert outcome.failed_cells == []
    found = tasks_of(outcome.folder)
    assert set(found) == {"own_choice", "own_text", "own_answer"}
    choice = next(m for m in found["own_choice"]["metrics"] if m["key"] == "acc,none")
    assert set(choice["variants"]) == {"f16", "q8_0", "f16+lookup", "q8_0+lookup"}
    assert choice["variants"]["f16"]["n"] == 8 and choice["variants"]["f16"]["delta"] is None
    assert choice["variants"]["q8_0"]["delta"]["n"] == 8
    assert choice["variants"]["f16+lookup"]["reasons"] == ["shared_scoring"]
    assert found["own_answer"]["n"] == 3 and found["own_answer"]["of"] == 8
    assert found["own_choice"]["chance"] == pytest.approx(0.25)
    perplexity = next(m for m in found["own_text"]["metrics"] if m["key"] == "word_perplexity,none")
    assert perplexity["better"] == "lower" and perplexity["variants"]["q8_0"]["delta"]["relative"] is True
    page = (Path(outcome.folder) / "report.html").read_text(encoding="utf-8")
    assert "lm-eval tasks" in page and "own_choice" in page and "No quality suite was run" not in page


def test_free_text_is_written_by_each_speculating_variant_and_scores_are_shared(project: Project) -> None:
    outcome = sweep(project.options("", suite(project, "[own_choice, own_answer]")))
    store = Store.open(Path(outcome.folder))
    run = collect(store)
    store.close()
    assert [v.shared("lm_eval", "scored") for v in run.variants] == [v.speculates for v in run.variants]
    assert [v.shared("lm_eval", "written") for v in run.variants] == [False] * 4


def test_a_task_that_was_cut_off_goes_on_where_it_stopped(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    options = project.options("", suite(project, "[own_choice, own_text]"))
    first = sweep(options)
    store = Store.open(Path(first.folder))
    (cell,) = [c for c in store.cells() if (c.variant, c.part) == ("f16", "scored")]
    whole = {row.key: row.payload for row in store.items(cell.cell_id)}
    with store._db:  # as if killed in the midst of the first task
        gone = [key for key in whole if key.startswith("own_text") or "judged" in key or key == "own_choice"]
        gone += ["own_choice/000005"]
        store._db.executemany("DELETE FROM items WHERE cell_id = ? AND key = ?", [(cell.cell_id, k) for k in gone])
    store.set_state(cell.cell_id, "pending")
    store.put("state", "running")
    store.close()
    asked: list[Any] = []
    real = WorkerHandle.call

    def call(self: WorkerHandle, method: str, *arguments: Any, **named: Any) -> Any:
        asked.extend(named["pairs"] if method == "loglikelihood" else [])
        return real(self, method, *arguments, **named)

    monkeypatch.setattr(WorkerHandle, "call", call)
    again = sweep(options)
    assert again.folder == first.folder and len(asked) == 4
    store = Store.open(Path(again.folder))
    assert {row.key: row.payload for row in store.items(cell.cell_id)} == whole
    store.close()


def test_a_prompt_too_long_loses_its_beginning_and_that_is_said(project: Project) -> None:
    rest = suite(project, "[own_answer, own_choice]", doc_to_text="x" * 300 + " {{thing}}")
    outcome = sweep(
        project.options("", rest.replace("matrix: {", "variants: [{name: tight, weights: f16, ctx: 128}]\nmatrix: {"))
    )
    assert outcome.failed_cells == []
    found = tasks_of(outcome.folder)
    assert found["own_answer"]["cut"] == found["own_choice"]["cut"] == {"tight": 8}
    page = (Path(outcome.folder) / "report.html").read_text(encoding="utf-8")
    assert "prompts cut at their beginning: 8 for tight" in page


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ("[own_choice, own_choise]", r"suites\.lm_eval\.tasks\[1\].*no task 'own_choise'.*own_choice"),
        ("[own_choice, {task: own_choice, shots: 0}]", "own_choice is asked for twice"),
        ("[]", "empty list"),
        ("[{task: own_choice, limit: 0}]", "limit"),
        ("[{name: own_choice}]", "name"),
    ],
)
def test_faults_are_named_with_their_place(project: Project, tasks: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        project.prepare("", suite(project, tasks))
    assert "variants.yaml:" in str(caught.value)


def test_a_folder_that_is_not_there(project: Project) -> None:
    with pytest.raises(ConfigError, match="no such folder"):
        project.prepare("", f"{MATRIX}suites: {{lm_eval: {{tasks: own_choice, include: nowhere}}}}\n")


def test_results_are_derived_again_from_the_rows_alone(project: Project) -> None:
    outcome = sweep(project.options("", suite(project, "own_choice")))
    store = Store.open(Path(outcome.folder))
    results, _ = derive(collect(store))
    store.close()
    assert json.loads(json.dumps(results["tasks"])) == list(tasks_of(outcome.folder).values())
