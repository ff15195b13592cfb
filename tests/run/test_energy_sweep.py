"""Energy windows in a whole sweep: the fake engine in real workers, a real process as the meter, both read by us."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.errors import CellError, ConfigError
from harness.meters.fake import FakeMeter
from harness.meters.panel import Panel
from harness.plan import Cell
from harness.record import ItemRow
from harness.run.collect import collect
from harness.run.energy import metered
from harness.run.pool import WorkerHandle
from harness.run.session import Session
from harness.run.sweep import sweep
from harness.store import CellRow, Store, VariantRow

from .conftest import Project

# Ten watts for ever, 200 times a second. Ends with the process that started it.
METER = "import time\nwhile True:\n    print(f'{time.monotonic()},10', flush=True)\n    time.sleep(0.005)\n"
SUITES = """matrix: {{weights: [f16, q8_0]}}
suites:
  speed: {{prompt_tokens: [16, 64, 96], output_tokens: 8, rounds: 1}}
energy: {{meter: command, command: [{python}, meter.py], scope: wall, seconds: 0.1}}
"""


@pytest.fixture
def options(project: Project) -> Any:
    """The meter lies beside the configuration, and runs there."""
    (project.folder / "meter.py").write_text(METER)
    return lambda rest="": project.options("", SUITES.format(python=sys.executable) + rest, preset="smoke")


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is repeated and nothing coded, however busy this machine is."""
    real = WorkerHandle.call

    def call(self: WorkerHandle, method: str, *arguments: Any, **named: Any) -> Any:
        found = real(self, method, *arguments, **named)
        if method in ("trial", "idle", "spend"):
            found["record"]["codes"] = []
        return found

    monkeypatch.setattr(WorkerHandle, "call", call)


def rows(folder: str, part: str, kind: str | None = None) -> dict[tuple[str, str], Any]:
    """Payloads by variant and key."""
    store = Store.open(Path(folder))
    try:
        return {
            (cell.variant, row.key): row.payload
            for cell in store.cells()
            if cell.part == part
            for row in store.items(cell.cell_id)
            if kind in (None, row.kind)
        }
    finally:
        store.close()


def results(folder: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((Path(folder) / "results.json").read_text())
    return found


def test_windows_of_every_kind_give_figures_with_the_users_meter(options: Any) -> None:
    outcome = sweep(options())
    assert outcome.failed_cells == []
    windows = rows(outcome.folder, "energy")
    assert sorted(key for name, key in windows if name == "f16") == [
        f"{number:04d}-{kind}" for number in (0, 1) for kind in ("generation", "idle", "prefill")
    ]
    for (_, key), row in windows.items():
        (reading,) = row["energy"]
        assert reading["reason"] is None and reading["window_s"] >= 0.1
        # Ten watts, whatever the window.
        assert reading["after"] - reading["before"] == pytest.approx(10 * reading["window_s"], rel=1e-6)
        if "idle" not in key:
            assert row["length"] == 64 and row["prompt_tokens"] == 64 * row["requests"]
            assert row["output_tokens"] == row["requests"] * (1 if "prefill" in key else 8)
    found = results(outcome.folder)
    told = found["conditions"]["energy"]
    assert (told["method"], told["scope"], told["domains"][0]["scope"]) == ("command", ["meter"], "wall")
    for entry in found["variants"]:
        gross = entry["metrics"]["energy_j_per_token"]
        assert gross["value"] > 0 and gross["n"] == 2 and gross["reasons"] == []
        assert gross["conditions"]["method"] == ["command"] and gross["conditions"]["prompt_tokens"] == 64
        assert entry["metrics"]["energy_prefill_j_per_token"]["value"] > 0
        # Idle costs ten watts too, so that nothing is left.
        net = entry["metrics"]["energy_net_j_per_token"]
        assert net["value"] is None or net["value"] < gross["value"] / 1000


def test_prompts_differ_within_a_window_and_between_windows(options: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []
    real = WorkerHandle.call

    def call(self: WorkerHandle, method: str, *arguments: Any, **named: Any) -> Any:
        asked.append(named) if method == "spend" else None
        return real(self, method, *arguments, **named)

    monkeypatch.setattr(WorkerHandle, "call", call)
    sweep(options())
    assert len({named["first"] for named in asked}) == 4  # two windows of two kinds, the same for both variants
    assert len({tuple(named["pool"]) for named in asked}) == 1 and len(asked) == 8
    assert {named["output_tokens"] for named in asked} == {1, 8}


def test_a_disturbed_window_is_read_again_and_the_undisturbed_one_kept(
    options: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, seen = WorkerHandle.call, []

    def call(self: WorkerHandle, method: str, *arguments: Any, **named: Any) -> Any:
        found = real(self, method, *arguments, **named)
        if method == "spend":
            seen.append(found["requests"])
            found["record"]["codes"] = ["contended"] if len(seen) == 1 else []
        return found

    monkeypatch.setattr(WorkerHandle, "call", call)
    monkeypatch.setattr(Session, "wait", lambda self, codes: (0.0, True))
    windows = rows(sweep(options()).folder, "energy")
    spent = [row for (_, key), row in windows.items() if "idle" not in key]
    assert len(seen) == len(spent) + 1 and all(row["record"]["codes"] == [] for row in spent)
    (again,) = [row for row in spent if row["attempt"] > 1]
    assert (again["attempt"], again["requests"]) == (2, seen[1]) and len(again["energy"]) == 1


def test_a_lost_window_alone_is_run_again(options: Any) -> None:
    folder = Path(sweep(options()).folder)
    before = rows(str(folder), "energy")
    with sqlite3.connect(folder / "run.sqlite") as db:
        ((cell,),) = db.execute("SELECT cell_id FROM cells WHERE part = 'energy' AND variant = 'q8_0'").fetchall()
        db.execute("DELETE FROM items WHERE key = '0001-prefill' AND cell_id = ?", [cell])
        db.execute("UPDATE cells SET state = 'pending' WHERE cell_id = ?", [cell])
        db.execute("UPDATE run SET value = '\"running\"' WHERE key = 'state'")
    assert sweep(options()).folder == str(folder)
    after = rows(str(folder), "energy")
    assert after.keys() == before.keys()
    assert [key for key in after if after[key] != before[key]] == [("q8_0", "0001-prefill")]


def test_without_a_counter_no_window_is_run_and_trials_keep_their_estimate(project: Project) -> None:
    one = "matrix: {weights: [f16]}\nsuites:\n  speed: {prompt_tokens: [16], output_tokens: 8, rounds: 1}\n"
    folder = sweep(project.options("", one, preset="smoke")).folder
    found = results(folder)
    if not found["conditions"]["energy"]["method"].startswith("estimate"):
        pytest.skip("this machine has an energy counter")
    assert rows(folder, "energy") == {}
    figures = found["variants"][0]["metrics"]
    assert figures["energy_j_per_token"]["reasons"][-1] == "estimated_energy"
    assert figures["energy_prefill_j_per_token"]["reasons"] == ["no_counter"]


def test_none_measures_nothing_and_says_so(project: Project) -> None:
    one = "matrix: {weights: [f16]}\nsuites:\n  speed: {prompt_tokens: [16], output_tokens: 8, rounds: 1}\n"
    found = results(sweep(project.options("", one + "energy: {meter: none}\n", preset="smoke")).folder)
    assert found["conditions"]["energy"]["method"] == "none"
    assert found["variants"][0]["metrics"]["energy_j_per_token"]["reasons"] == ["not_measured"]


def test_a_named_meter_that_cannot_be_read_ends_the_sweep_before_it_begins(project: Project) -> None:
    rest = (
        "matrix: {weights: [f16]}\nenergy:\n  meter: command\n  command: [/bin/sh, -c, 'echo no device >&2; exit 1']\n"
    )
    with pytest.raises(ConfigError, match=r"variants\.yaml:7: energy\.meter: command: .*it said: no device; mend it"):
        sweep(project.options("", rest, preset="smoke"))
    assert not (project.folder / "reports").exists()


@pytest.fixture
def scored(tmp_path: Path) -> Any:
    """A session with one cell of scoring and a meter that counts 30 J a reading."""
    store = Store.create(tmp_path / "run.sqlite")
    store.add_variant(0, VariantRow("f16", True, "i", "s", {}, {}))
    store.add_cell(CellRow("c", "mmlu", "docs", "f16"), ["f16"])
    meter = FakeMeter({"package-0": [0, 30, 60, 90]}, method="rapl")
    yield SimpleNamespace(
        store=store,
        prepared=SimpleNamespace(energy=Panel([meter]), specs={"f16": SimpleNamespace(threads=1)}),
        worker=lambda name: SimpleNamespace(pid=os.getpid()),
    )
    store.close()


def answer(session: Any, *keys: str) -> None:
    for key in keys:
        session.store.add_item(ItemRow("c", key, "doc", {"correct": True}))


def test_a_stretch_of_scoring_is_stored_with_the_rows_it_brought(scored: Any) -> None:
    cell = Cell("f16", "mmlu", "docs", "c")
    with metered(scored, cell):
        answer(scored, "a/0", "a/1")
    with pytest.raises(CellError), metered(scored, cell):
        answer(scored, "a/2")  # then the engine dies: this row is paid for by no reading
        raise CellError("gone")
    with metered(scored, cell):
        answer(scored, "a/3")
    part = collect(scored.store).variants[0].parts["mmlu", "docs"]
    assert [stretch["items"] for stretch in part.energy] == [2, 1] and len(part.rows) == 4
    assert [pair["domain"] for stretch in part.energy for pair in stretch["energy"]] == ["package-0"] * 2


def test_where_nothing_is_counted_no_stretch_is_stored(scored: Any) -> None:
    scored.prepared.energy = Panel()
    with metered(scored, Cell("f16", "mmlu", "docs", "c")):
        answer(scored, "a/0")
    assert collect(scored.store).variants[0].parts["mmlu", "docs"].energy == ()
