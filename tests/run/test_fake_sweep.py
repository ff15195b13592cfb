"""Sweeps from configuration to results with the fake engine in real workers."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.backends.base import EngineSpec
from harness.config import Variant
from harness.results import derive
from harness.run import prepare as preparing
from harness.run.collect import collect
from harness.run.pool import WorkerHandle
from harness.run.sweep import sweep
from harness.store import Store

from .conftest import Project

SUITES = """matrix: {weights: [f16, q8_0]}
suites:
  long_context: {depths: [1600], texts: 1, probes: 6, continuation_tokens: 16, continuation_from: 128}
  speed: {prompt_tokens: [64], output_tokens: 8, rounds: 2}
"""
FIDELITY = """matrix: {weights: [f16, q8_0], speculate: [none, lookup]}
speculate: {lookup: {kind: prompt_lookup}}
suites:
  fidelity: {tokens: 64, floor_tokens: 40, greedy_prompts: 1, greedy_tokens: 4}
"""
DEPTHS = """matrix: {weights: [f16, q8_0], speculate: [none, lookup]}
speculate: {lookup: {kind: prompt_lookup}}
suites:
  speed: {prompt_tokens: [64], output_tokens: 8, rounds: 1, depths: [100, 300], depth_rounds: 3}
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


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is repeated, however busy this machine is."""
    monkeypatch.setattr("harness.run.timed._disturbance", lambda payload: 0.0)


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


AUDIT = """matrix: {weights: [f16, q4_0], speculate: [none, lookup, draft]}
speculate:
  lookup: {kind: prompt_lookup, tokens: 4, adapt: true}
  draft: {kind: draft_model, weights: q2_k, tokens: 4}
suites:
  speed: {prompt_tokens: [64], output_tokens: 12, rounds: 3}
  fidelity: {tokens: 64, greedy_prompts: 4, greedy_tokens: 24}
"""
SPECULATING = {"f16+lookup", "f16+draft", "q4_0+lookup", "q4_0+draft"}


def rigged(monkeypatch: pytest.MonkeyPatch, *names: str, **extra: Any) -> None:
    """Let these variants' engines misbehave."""
    real = preparing._spec

    def spec(variant: Variant, *arguments: Any) -> EngineSpec:
        made = real(variant, *arguments)
        return replace(made, extra=extra) if variant.name in names else made

    monkeypatch.setattr(preparing, "_spec", spec)


def derived(folder: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Results by variant, and the series."""
    store = Store.open(Path(folder))
    try:
        results, drawn = derive(collect(store))
    finally:
        store.close()
    assert results == strict(Path(folder) / "results.json")
    return {**results, "by_name": {entry["name"]: entry for entry in results["variants"]}}, drawn


def test_speculation_is_audited_on_its_own_engine_and_mapped_against_its_target(project: Project, calls: Calls) -> None:
    folder = sweep(project.options("", AUDIT)).folder
    rows = stored(folder)
    assert {name for name, part in rows if part == "audit"} == SPECULATING
    assert [named["batch"] for _, method, named in calls if method == "audit"] == [5] * 4
    audited = rows["q4_0+draft", "audit"]
    assert len(audited) == 4
    for row in audited.values():
        assert row["tokens"] == row["plain"] and len(row["margins"]) == len(row["floor"]) == 24
        assert row["tokens"] == rows["q4_0+draft", "greedy"][row["prompt"]]["tokens"]
    record = next(iter(rows["q4_0+draft", "trials"].values()))["record"]
    assert (sum(record["drafted_at"]), sum(record["accepted_at"])) == (record["drafted"], record["accepted"])
    results, drawn = derived(folder)
    assert {row["variant"]: row["verdict"] for row in drawn["audit"]} == dict.fromkeys(SPECULATING, "lossless")
    assert all(entry["status"] == "ok" for entry in results["variants"])
    figures = results["by_name"]["q4_0+draft"]["metrics"]
    assert (figures["audit_identical"]["value"], figures["audit_identical"]["n"]) == (1.0, 4)
    assert figures["draft_share"]["value"] == pytest.approx(0.25)
    heat = drawn["speculation"]
    assert (heat["targets"], heat["drafts"]) == (["f16", "q4_0"], ["lookup", "draft"])
    assert {(cell["target"], cell["draft"], cell["adapt"]) for cell in heat["cells"]} == {
        ("f16", "lookup", True), ("q4_0", "lookup", True), ("f16", "draft", False), ("q4_0", "draft", False),
    }  # fmt: skip
    assert all(cell["speedup"] and len(cell["by_position"]) == 4 for cell in heat["cells"])


def test_an_engine_whose_speculation_changes_the_output_fails_its_variant_in_the_whole_sweep(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    rigged(monkeypatch, "f16+lookup", lossy=9, rounding=1e-4)
    outcome = sweep(project.options("", AUDIT))
    assert outcome.failed_cells == []  # it ran; what it measured fails it
    results, drawn = derived(outcome.folder)
    entry = results["by_name"]["f16+lookup"]
    assert entry["status"] == "failed"
    ((suite, reason),) = [(failure["suite"], failure["reason"]) for failure in entry["failures"]]
    assert suite == "fidelity" and "token 9: margin" in reason and "noise floor" in reason
    assert results["decision"]["choice"] != "f16+lookup"
    assert all("f16+lookup" not in front["members"] for front in results["fronts"])
    (row,) = [row for row in drawn["audit"] if row["variant"] == "f16+lookup"]
    assert row["verdict"] == "fault" and any(not parting["explained"] for parting in row["divergences"])
    assert 0 < row["floor"]["max"] < min(p["margin"] for p in row["divergences"] if not p["explained"])
    assert {name for name, entry in results["by_name"].items() if entry["status"] == "failed"} == {"f16+lookup"}
    assert reason in (Path(outcome.folder) / "report.html").read_text(encoding="utf-8")


def test_partings_at_near_ties_are_explained(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounding as wide as the margins themselves: texts part, each where the measured floor explains it."""
    rigged(monkeypatch, "q4_0", "q4_0+lookup", "q4_0+draft", rounding=0.3)
    results, drawn = derived(sweep(project.options("", AUDIT)).folder)
    (row,) = [row for row in drawn["audit"] if row["variant"] == "q4_0+draft"]
    assert row["verdict"] == "near ties only" and row["identical"] < 4
    assert all(parting["explained"] for parting in row["divergences"])
    assert results["by_name"]["q4_0+draft"]["status"] == "ok"


def test_an_audit_cut_off_goes_on_with_the_prompts_that_are_missing(project: Project, calls: Calls) -> None:
    options = project.options("", AUDIT)
    folder = Path(sweep(options).folder)
    before = stored(folder)
    lost = sorted(before["f16+draft", "audit"])[1]
    with sqlite3.connect(folder / "run.sqlite") as db:
        ((cell,),) = db.execute("SELECT cell_id FROM cells WHERE part = 'audit' AND variant = 'f16+draft'").fetchall()
        db.execute("DELETE FROM items WHERE key = ? AND cell_id = ?", [lost, cell])
        db.execute("UPDATE cells SET state = 'pending' WHERE cell_id = ?", [cell])
        db.execute("UPDATE run SET value = '\"running\"' WHERE key = 'state'")
    calls.clear()
    assert sweep(options).folder == str(folder)
    assert [[name for name, _ in named["prompts"]] for _, method, named in calls if method == "audit"] == [[lost]]
    assert stored(folder) == before


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


def test_the_noise_floor_is_measured_once_for_the_same_weights_and_leaves_no_file(
    project: Project, calls: Calls
) -> None:
    folder = Path(sweep(project.options("", FIDELITY)).folder)
    rows = stored(folder)
    assert [len(row["kl"]) for row in rows["q8_0", "floor"].values()] == [32, 8]
    assert len([method for _, method, _ in calls if method == "floor"]) == 2  # f16 and q8_0
    found = {entry["name"]: entry["metrics"] for entry in strict(folder / "results.json")["variants"]}
    assert found["q8_0"]["kl_floor"]["n"] == 40
    assert found["q8_0"]["kl_mean"]["conditions"] == {"floor": 0.0}  # the fake engine rounds nothing here
    assert found["q8_0+lookup"]["logprob_floor"]["reasons"] == ["shared_scoring"]
    assert found["f16"]["logprob_floor"]["value"] == 0.0
    assert not list(folder.glob("*.npy"))


@pytest.mark.usefixtures("quiet")
def test_depths_are_passed_there_and_back_after_the_trials_without_speculation(project: Project, calls: Calls) -> None:
    folder = Path(sweep(project.options("", DEPTHS)).folder)
    methods = [method for _, method, _ in calls if method in ("trial", "depths")]
    passes = [(id(worker), tuple(named["prompt"])) for worker, method, named in calls if method == "depths"]
    assert methods.index("depths") == methods.count("trial")
    first, second = list(dict.fromkeys(worker for worker, _ in passes))
    assert [worker for worker, _ in passes][:4] == [first, second, second, first]
    texts = list(dict.fromkeys(text for _, text in passes))
    assert len(texts) == 3 and {len(text) for text in texts} == {300}
    rows = stored(folder)
    assert ("q8_0+lookup", "depth") not in rows
    record = rows["q8_0", "depth"]["0002"]["record"]
    assert record["depths"] == [100, 300] and [len(times) for times in record["t_ns"]] == [16, 16]
    assert sorted(t for times in record["t_ns"] for t in times) == [t for times in record["t_ns"] for t in times]
    _, drawn = derive(collect(Store.open(folder)))
    assert [point["depth"] for point in drawn["depth_speed"]["q8_0"]] == [100, 300]
    assert all(point["decode_tps"]["n"] >= 1 and point["ttft_s"]["value"] > 0 for point in drawn["depth_speed"]["f16"])
    assert drawn["depth_speed_left_out"] == {"f16+lookup": "speculates", "q8_0+lookup": "speculates"}


@pytest.mark.usefixtures("quiet")
def test_a_pass_cut_off_is_run_alone(project: Project, calls: Calls) -> None:
    options = project.options("", DEPTHS)
    folder = Path(sweep(options).folder)
    with sqlite3.connect(folder / "run.sqlite") as db:
        ((cell,),) = db.execute("SELECT cell_id FROM cells WHERE part = 'depth' AND variant = 'q8_0'").fetchall()
        db.execute("DELETE FROM items WHERE key = '0001' AND cell_id = ?", [cell])
        db.execute("UPDATE cells SET state = 'pending' WHERE cell_id = ?", [cell])
        db.execute("UPDATE run SET value = '\"running\"' WHERE key = 'state'")
    asked = [named["prompt"] for _, method, named in calls if method == "depths"]
    calls.clear()
    sweep(options)
    (again,) = [named["prompt"] for _, method, named in calls if method == "depths"]
    assert list(dict.fromkeys(map(tuple, asked))).index(tuple(again)) == 1
    assert not [method for _, method, _ in calls if method == "trial"]


def test_a_disturbed_pass_is_repeated_and_coded(
    project: Project, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, seen = WorkerHandle.call, []

    def call(self: WorkerHandle, method: str, *arguments: Any, **named: Any) -> Any:
        answer = real(self, method, *arguments, **named)
        if method == "depths":
            seen.append(method)
            answer["record"]["codes"] = ["contended"] if len(seen) in (1, 2) else []
        return answer

    monkeypatch.setattr(WorkerHandle, "call", call)
    rows = stored(sweep(project.options("", DEPTHS)).folder)
    attempts = [rows[name, "depth"]["0000"]["record"]["attempt"] for name in ("f16", "q8_0")]
    assert sorted(attempts) == [1, 3] and len(seen) == 2 * 3 + 2


@pytest.mark.usefixtures("quiet")
def test_a_cache_that_cannot_be_cut_is_left_out_with_its_reason(
    project: Project, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    from harness.run import session

    real = session.Session.loaded

    def loaded(self: session.Session, name: str) -> dict[str, Any]:
        found = real(self, name)
        return {**found, "info": {**found["info"], "can_roll_back": name != "q8_0"}}

    monkeypatch.setattr(session.Session, "loaded", loaded)
    outcome = sweep(project.options("", DEPTHS))
    assert outcome.failed_cells == []
    _, drawn = derive(collect(Store.open(Path(outcome.folder))))
    assert drawn["depth_speed_left_out"]["q8_0"] == "no_rollback"
    assert list(drawn["depth_speed"]) == ["f16"] and len([m for _, m, _ in calls if m == "depths"]) == 3
