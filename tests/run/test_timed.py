"""Rounds of trials in whole sweeps of the fake engine: repeats where the machine moved, further rounds where needed."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from harness.errors import CellError, WorkerDied
from harness.metrics.sentinel import CELL
from harness.results.model import RunData
from harness.run import aa, race
from harness.run.collect import collect
from harness.run.pool import WorkerHandle
from harness.run.sentinel import Sentinel
from harness.run.session import Session
from harness.run.sweep import sweep
from harness.store import Store

from .conftest import Project

SPEED = """matrix: {weights: [f16, q8_0, q4_0]}
suites: {speed: {prompt_tokens: [16, 32], output_tokens: 6, rounds: 4, most_rounds: 8, precision: {decode_tps: 1%}}}
"""


def coded(monkeypatch: pytest.MonkeyPatch, *codes: str) -> None:
    """Every trial carries these codes, whatever this machine did meanwhile."""
    real = WorkerHandle.call

    def call(self: WorkerHandle, method: str, *arguments: Any, **named: Any) -> Any:
        found = real(self, method, *arguments, **named)
        if method == "trial":
            found["record"]["codes"] = list(codes)
        return found

    monkeypatch.setattr(WorkerHandle, "call", call)


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    coded(monkeypatch)


@pytest.fixture
def decisions(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """What each decision about further rounds answers, in turn; empty: nothing more."""
    answers: list[dict[str, str]] = []
    monkeypatch.setattr(race, "_open", lambda *_: answers.pop(0) if answers else {})
    return answers


def rows(folder: str | Path) -> tuple[dict[str, list[Mapping[str, Any]]], dict[str, Mapping[str, Any]], Any]:
    """Trials by variant in order of position, sentinel rows by key, and the decisions."""
    store = Store.open(Path(folder))
    try:
        trials = {
            cell.variant: sorted((i.payload for i in store.items(cell.cell_id)), key=lambda p: p["position"])
            for cell in store.cells()
            if cell.part == "trials"
        }
        return trials, {item.key: item.payload for item in store.items(CELL)}, store.get("race")
    finally:
        store.close()


def collected(folder: str | Path) -> RunData:
    """The run as everything derived sees it."""
    store = Store.open(Path(folder))
    try:
        return collect(store)
    finally:
        store.close()


def cut_off(folder: str | Path, lost: str) -> None:
    """As a kill leaves a run: these rows of the trials (SQL) were never written, and their cells are not closed."""
    own = "cell_id IN (SELECT cell_id FROM cells WHERE part IN ('trials', 'blocks'))"
    with sqlite3.connect(Path(folder) / "run.sqlite") as db:
        db.execute(f"DELETE FROM items WHERE {own} AND ({lost})")
        db.execute(f"UPDATE cells SET state = 'pending' WHERE {own}")
        db.execute("UPDATE run SET value = '\"running\"' WHERE key = 'state'")


def failing(monkeypatch: pytest.MonkeyPatch, weights: str, method: str, after: int = 0) -> list[str]:
    """Engines of these weights fail in a method from a call on; returns the methods called, all engines'."""
    seen: list[str] = []
    mine: dict[int, str] = {}
    calls = [0]
    real = WorkerHandle.call

    def call(self: WorkerHandle, name: str, *arguments: Any, **named: Any) -> Any:
        seen.append(name)
        if name == "load":
            mine[self.pid] = named["spec"].weights
        if name == method and mine.get(self.pid) == weights:
            calls[0] += 1
            if calls[0] > after:
                raise CellError("out of order") if name == "load" else WorkerDied("gone")
        return real(self, name, *arguments, **named)

    monkeypatch.setattr(WorkerHandle, "call", call)
    return seen


def scripted(monkeypatch: pytest.MonkeyPatch, gap_s: Callable[[int], float]) -> None:
    """Readings by their number in the run."""
    made: list[str] = []

    def read(self: Sentinel, name: str) -> Mapping[str, Any]:
        made.append(name)
        return {"t_ns": len(made), "bandwidth": 1e9, "gap_s": gap_s(len(made) - 1), "by": name}

    monkeypatch.setattr(Sentinel, "read", read)


def test_each_round_is_a_palindrome_of_one_length_between_two_readings(
    project: Project, decisions: list[dict[str, str]]
) -> None:
    trials, seen, _ = rows(sweep(project.options("", SPEED)).folder)
    assert sorted(seen) == [f"{n:05d}-{end}" for n in range(4) for end in ("after", "before")]
    order = {row["position"]: (name, row) for name, of in trials.items() for row in of}
    assert sorted(order) == list(range(24))
    for number in range(4):
        turns = [order[6 * number + place] for place in range(6)]
        names = [name for name, _ in turns]
        assert names == names[::-1] and set(names) == {"f16", "q8_0", "q4_0"}
        assert {row["prompt_tokens"] for _, row in turns} == {(16, 32)[number % 2]}
        assert {row["block"] for _, row in turns} == {number}
        assert {seen[f"{number:05d}-{end}"]["by"] for end in ("before", "after")} == {names[0]}


def test_a_round_in_which_the_machine_moved_is_run_again_and_the_calmer_one_counts(
    project: Project, decisions: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(monkeypatch, lambda n: 0.012 if n == 3 else 0.010)  # at the end of the second round
    folder = sweep(project.options("", SPEED)).folder
    trials, seen, _ = rows(folder)
    assert [row["block"] for row in trials["q4_0"]] == [0, 0, 1, 1, 10001, 10001, 2, 2, 3, 3]
    assert seen["10001-before"]["replaces"] == 1
    again = {row["block"]: row["prompt_tokens"] for row in trials["q4_0"]}
    assert again[10001] == again[1] == 32
    run = collected(folder)
    assert {trial.block for trial in run.reference.trials()} == {0, 10001, 2, 3}
    assert len(run.facts["sentinels"]) == 10


def test_repeats_of_restless_rounds_are_bounded(
    project: Project, decisions: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(monkeypatch, lambda n: 0.010 * (1 + n % 2))  # moves in every round
    trials, _, _ = rows(sweep(project.options("", SPEED)).folder)
    assert [row["block"] for row in trials["f16"]] == [0, 0, 10000, 10000, 1, 1, 2, 2, 3, 3]


def test_a_machine_that_never_holds_still_is_not_repeated_for_ever(
    project: Project, decisions: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(monkeypatch, lambda n: 0.010 * (1 + n % 2))
    longer = SPEED.replace("rounds: 4, most_rounds: 8", "rounds: 15, most_rounds: 15")
    trials, _, _ = rows(sweep(project.options("", longer)).folder)
    assert sorted({row["block"] for row in trials["f16"]} - set(range(15))) == [10000, 10001, 10002]


def test_further_rounds_take_the_reference_and_whom_they_decide(
    project: Project, decisions: list[dict[str, str]]
) -> None:
    decisions.extend([{"q4_0": "decode_tps ±4%, asked ±1%"}])
    trials, _, decided = rows(sweep(project.options("", SPEED)).folder)
    assert [row["block"] for row in trials["q8_0"]] == [0, 0, 1, 1, 2, 2, 3, 3]
    for name in ("f16", "q4_0"):
        assert [row["block"] for row in trials[name] if row["extra"]] == [4, 4, 5, 5, 6, 6, 7, 7]
    assert decided == [
        {
            "from_block": 4,
            "blocks": 4,
            "variants": ["q4_0"],
            "why": {"q4_0": "decode_tps ±4%, asked ±1%"},
            "disturbed": False,
        }
    ]


def test_no_further_rounds_while_others_keep_the_machine_busy(
    project: Project, decisions: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    decisions.append({"q4_0": "wide"})
    coded(monkeypatch, "contended")
    trials, _, decided = rows(sweep(project.options("", SPEED)).folder)
    assert not any(row["extra"] for row in trials["q4_0"])
    assert [(entry["variants"], entry["disturbed"]) for entry in decided] == [([], True)]
    assert decisions  # nobody was asked


def test_a_decision_is_kept_when_the_sweep_is_cut_off(project: Project, decisions: list[dict[str, str]]) -> None:
    decisions.extend([{"q4_0": "wide"}])
    options = project.options("", SPEED)
    folder = sweep(options).folder
    before = rows(folder)
    cut_off(folder, "key LIKE '00006%' OR key LIKE '00007%'")
    assert sweep(options).folder == folder  # no further decision is asked for
    after = rows(folder)
    assert [row["block"] for row in after[0]["q4_0"]] == [row["block"] for row in before[0]["q4_0"]]
    assert after[1].keys() == before[1].keys() and after[2] == before[2]


def test_who_gets_further_rounds_is_who_is_imprecise(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real decision on real rows: no front without quality, so every variant with a wide interval goes on."""
    found: list[dict[str, str]] = []
    real = race._open

    def spy(session: Session, plan: Any) -> dict[str, str]:
        found.append(real(session, plan))
        return {}

    turn = count()

    def call(self: WorkerHandle, method: str, *arguments: Any, **named: Any) -> Any:
        """Tokens each 10 ms or a little more: what this machine does meanwhile must not decide."""
        answer = timed(self, method, *arguments, **named)
        if method == "trial":
            gap, record = 1e7 * (1 + 0.02 * (next(turn) ** 2 % 7)), answer["record"]
            record["events"] = [[int(gap * i), *event[1:]] for i, event in enumerate(record["events"])]
            record["sent_ns"] = -1
        return answer

    timed = WorkerHandle.call
    monkeypatch.setattr(WorkerHandle, "call", call)
    monkeypatch.setattr(race, "_open", spy)
    sweep(project.options("", SPEED.replace("1%", "0.0001%")))
    assert set(found[0]) == {"q8_0", "q4_0"}
    assert all("decode_tps ±" in why and "asked ±0.0001%" in why for why in found[0].values())
    found.clear()
    sweep(project.options("", SPEED.replace("1%", "100%")))
    assert found == [{}]


def test_warm_ups_go_on_until_they_are_flat(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.run.session.flat", lambda seconds: len(seconds) >= 8)
    store = Store.open(Path(sweep(project.options("", SPEED.replace("most_rounds: 8", "most_rounds: 4"))).folder))
    loads = [item.payload for cell in store.cells() if cell.part == "load" for item in store.items(cell.cell_id)]
    store.close()
    assert [len(load["warm"]["seconds"]) for load in loads] == [8, 8, 8]
    assert all(load["warm"]["flat"] for load in loads)


def test_engines_are_launched_anew_for_each_pass_over_the_prompt_lengths(
    project: Project, decisions: list[dict[str, str]]
) -> None:
    trials, _, _ = rows(sweep(project.options("", SPEED)).folder)
    for of in trials.values():
        launches: dict[int, set[int]] = {}
        for row in of:
            launches.setdefault(row["launch"], set()).add(row["block"])
        assert list(launches.values()) == [{0, 1}, {2, 3}]


def test_engines_are_loaded_between_rounds_never_between_the_turns_of_one(
    project: Project, decisions: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = failing(monkeypatch, "none", "trial")
    sweep(project.options("", SPEED))
    whole = [name for name in calls if name in ("load", "trial")]
    assert whole == [*["load"] * 3, *["trial"] * 12] * 2


def test_a_round_cut_off_is_run_anew_as_a_whole(project: Project, decisions: list[dict[str, str]]) -> None:
    """Its turns would else lie on both sides of the pause, in other processes and perhaps on another machine's mood."""
    options = project.options("", SPEED)
    folder = sweep(options).folder
    before = rows(folder)[0]["q4_0"]
    cut_off(folder, "key = '00003-after' OR key LIKE '00003b%'")
    assert sweep(options).folder == folder
    trials, seen, _ = rows(folder)
    for of in trials.values():
        assert [row["block"] for row in of] == [0, 0, 1, 1, 2, 2, 3, 10003, 10003]
        assert len({row["launch"] for row in of if row["block"] == 10003}) == 1
    assert trials["q4_0"][:7] == before[:7]  # nothing else was run again
    assert (seen["10003-before"]["replaces"], seen["10003-before"]["anew"]) == (3, True)
    for variant in collected(folder).variants:
        assert [trial.block for trial in variant.trials()] == [0, 0, 1, 1, 2, 2, 10003, 10003]


def test_a_repeat_cut_off_is_run_anew(
    project: Project, decisions: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(monkeypatch, lambda n: 0.012 if n == 3 else 0.010)
    options = project.options("", SPEED)
    folder = sweep(options).folder
    cut_off(folder, "key LIKE '10001b%' OR key = '10001-after' OR key LIKE '00002%' OR key LIKE '00003%'")
    scripted(monkeypatch, lambda n: 0.010)
    sweep(options)
    assert [row["block"] for row in rows(folder)[0]["f16"]] == [0, 0, 1, 1, 10001, 20001, 20001, 2, 2, 3, 3]
    assert {trial.block for trial in collected(folder).reference.trials()} == {0, 20001, 2, 3}


def test_a_variant_that_works_again_is_timed_beside_the_others_never_alone(
    project: Project, decisions: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = project.options("", SPEED)
    with monkeypatch.context() as broken:
        failing(broken, "q4_0", "trial", after=5)
        outcome = sweep(options)
    assert [entry.partition(":")[0] for entry in outcome.failed_cells] == ["q4_0 · speed"]
    assert [row["block"] for row in rows(outcome.folder)[0]["q4_0"]] == [0, 0, 1, 1, 2]
    again = project.options("", SPEED, resume=True)
    assert sweep(again).failed_cells == []
    trials, _, _ = rows(outcome.folder)
    assert [row["block"] for row in trials["q4_0"]] == [0, 0, 1, 1, 2, 10002, 10002, 10003, 10003]
    run = collected(outcome.folder)
    for variant in run.variants:
        assert [trial.block for trial in variant.trials()] == [0, 0, 1, 1, 10002, 10002, 10003, 10003]
    launches = [{t.launch for t in variant.trials() if t.block >= 10000} for variant in run.variants]
    assert min(map(min, launches)) > max(row["launch"] for row in trials["f16"] if row["block"] < 10000)


def test_nothing_is_run_again_for_a_variant_that_still_fails(
    project: Project, decisions: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, "q4_0", "trial", after=5)
    folder = sweep(project.options("", SPEED)).folder
    before = rows(folder)
    calls = failing(monkeypatch, "q4_0", "load")
    outcome = sweep(project.options("", SPEED, resume=True))
    assert [entry.partition(":")[0] for entry in outcome.failed_cells] == ["q4_0 · speed"]
    assert rows(folder) == before and "trial" not in calls


def test_no_further_rounds_without_the_reference(
    project: Project, decisions: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    decisions.append({"q4_0": "no interval"})
    failing(monkeypatch, "f16", "trial", after=3)
    trials, _, decided = rows(sweep(project.options("", SPEED)).folder)
    assert [row["block"] for row in trials["q4_0"]] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert decided is None and decisions


def test_repeats_of_trials_before_a_kill_count_against_those_after(
    project: Project, decisions: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    coded(monkeypatch, "contended")
    monkeypatch.setattr(Session, "wait", lambda self, codes: (0.0, True))
    options = project.options("", SPEED)
    folder = sweep(options).folder
    cut_off(folder, "key LIKE '00003%'")
    sweep(options)
    attempts = [row["attempt"] for of in rows(folder)[0].values() for row in of]
    assert len(attempts) == 24 and sum(attempts) - 24 <= 4 + 24 // 2


@pytest.mark.parametrize("rounds", [1, 2])
def test_one_variant_alone_gets_further_rounds_on_its_own_speed(project: Project, rounds: int) -> None:
    one = "matrix: {weights: [f16]}\nsuites: {speed: {prompt_tokens: [16], output_tokens: 6, "
    one += f"rounds: {rounds}, most_rounds: 4, precision: {{decode_tps: 0.0001%}}}}}}"
    trials, _, decided = rows(sweep(project.options("", one)).folder)
    assert [row["block"] for row in trials["f16"]] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert not any(row["extra"] for row in trials["f16"])
    assert [entry["blocks"] for entry in decided] == [4 - rounds]


def test_every_variant_failing_ends_the_rounds(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    real = WorkerHandle.call

    def call(self: WorkerHandle, method: str, *arguments: Any, **named: Any) -> Any:
        if method == "trial":
            raise WorkerDied("gone")
        return real(self, method, *arguments, **named)

    monkeypatch.setattr(WorkerHandle, "call", call)
    outcome = sweep(project.options("", SPEED))
    trials, seen, decided = rows(outcome.folder)
    assert len(outcome.failed_cells) == 3 and not any(trials.values())
    assert list(seen) == ["00000-before"] and decided is None


def test_a_plan_that_names_no_limit_runs_its_rounds(project: Project, tmp_path: Path) -> None:
    with closing((made := aa.twins(project.options("", SPEED).config_path, 2, lambda what: None)).energy):
        assert made.suites.speed is not None
        plan = replace(made.suites.speed, most_rounds=0)
        run = aa.measured(replace(made, suites=replace(made.suites, speed=plan)), tmp_path, Console(quiet=True))
    assert [trial.block for trial in run.reference.trials()] == [0, 0, 1, 1]


def test_a_window_that_just_holds_prompt_and_output_can_be_warmed_up(project: Project) -> None:
    tight = "matrix: {weights: [f16]}\nsuites: {speed: {prompt_tokens: [508], output_tokens: 4, rounds: 1}}"
    options = project.options("", tight, preset="smoke")
    options.config_path.write_text(options.config_path.read_text().replace("ctx: 4096", "ctx: 512"))
    assert sweep(options).failed_cells == []
