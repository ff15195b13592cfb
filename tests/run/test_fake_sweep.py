"""Sweeps from configuration to results with the fake engine in real workers."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from harness.run.pool import WorkerHandle
from harness.run.sweep import sweep
from harness.store import Store

from .conftest import Project

SUITES = """matrix: {weights: [f16, q8_0]}
suites:
  long_context: {depths: [1600], texts: 1, probes: 6, continuation_tokens: 16, continuation_from: 128}
  speed: {prompt_tokens: [64], output_tokens: 8, rounds: 2}
"""
Calls = list[tuple[WorkerHandle, str, dict[str, Any]]]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Every call of a worker, in order."""
    seen: Calls = []
    real = WorkerHandle.call

    def call(self: WorkerHandle, method: str, *arguments: Any, **named: Any) -> Any:
        seen.append((self, method, named))
        return real(self, method, *arguments, **named)

    monkeypatch.setattr(WorkerHandle, "call", call)
    return seen


def stored(folder: str | Path) -> dict[tuple[str, str], dict[str, Any]]:
    """Payloads by key, by variant and part."""
    store = Store.open(Path(folder))
    try:
        return {
            (cell.variant, cell.part): {row.key: dict(row.payload) for row in store.items(cell.cell_id)}
            for cell in store.cells()
        }
    finally:
        store.close()


def strict(path: Path) -> Any:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    return json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)


def test_the_second_variant_is_asked_itself_and_never_answered_from_the_firsts_rows(
    project: Project, calls: Calls
) -> None:
    outcome = sweep(project.options("", SUITES))
    assert outcome.failed_cells == []
    rows = stored(outcome.folder)
    first, second = rows["f16", "probes"], rows["q8_0", "probes"]
    assert first.keys() == second.keys() and len(first) >= 4
    assert all(first[key]["logprobs"] != second[key]["logprobs"] for key in first)
    assert len({id(worker) for worker, method, _ in calls if method == "probes"}) == 2
    assert strict(Path(outcome.folder) / "results.json")["status"] == "complete"


def test_loading_and_warming_up_are_in_no_trial(project: Project, calls: Calls) -> None:
    rows = stored(sweep(project.options("", SUITES)).folder)
    warm = [tuple(prompt) for _, method, named in calls if method == "warm" for prompt in named["prompts"]]
    timed = [tuple(named["prompt"]) for _, method, named in calls if method == "trial"]
    assert warm and not set(warm) & set(timed)
    for worker in {id(worker): worker for worker, _, _ in calls}.values():
        methods = [method for other, method, _ in calls if other is worker]
        assert methods.index("load") < methods.index("warm") < methods.index("trial")
    for name in ("f16", "q8_0"):
        assert rows[name, "load"]["load"]["load_s"] >= 0
        assert [row["block"] for row in rows[name, "trials"].values()] == [0, 0, 1, 1]


def test_a_run_cut_off_goes_on_and_runs_only_what_is_missing(project: Project, calls: Calls) -> None:
    options = project.options("", SUITES)
    folder = Path(sweep(options).folder)
    before = stored(folder)
    lost = sorted(before["q8_0", "probes"])[-1]
    with sqlite3.connect(folder / "run.sqlite") as db:
        ((cell,),) = db.execute("SELECT cell_id FROM cells WHERE part = 'probes' AND variant = 'q8_0'").fetchall()
        db.execute("DELETE FROM items WHERE key = ? AND cell_id = ?", [lost, cell])
        db.execute("UPDATE cells SET state = 'pending' WHERE cell_id = ?", [cell])
        db.execute("UPDATE run SET value = '\"running\"' WHERE key = 'state'")
    calls.clear()
    assert sweep(options).folder == str(folder)
    assert [named["done"] for _, method, named in calls if method == "probes"] == [
        sorted(before["q8_0", "probes"].keys() - {lost})
    ]
    assert not [method for _, method, _ in calls if method in ("trial", "continuation")]
    assert stored(folder) == before
