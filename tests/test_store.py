"""The run file: one row a key, strict JSON, survives a kill, one writer."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from harness.errors import InputError
from harness.record import ItemRow
from harness.store import CellRow, RunLock, Store, VariantRow, dumps


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store.create(tmp_path / "run.sqlite")
    made.add_variant(0, VariantRow("f16", True, "id-f16", "score", {"weights": "f16"}, {"file": "a.gguf"}))
    made.add_variant(1, VariantRow("f16+draft", False, "id-draft", "score", {"weights": "f16"}, {"file": "a.gguf"}))
    made.add_cell(CellRow("c1", "mmlu", "docs", "f16"), ["f16"])
    return made


def test_a_key_is_stored_once_and_its_first_row_stays(store: Store) -> None:
    store.add_item(ItemRow("c1", "a/1", "doc", {"x": 1}))
    store.add_item(ItemRow("c1", "a/1", "doc", {"x": 2}))
    assert [(row.key, row.payload) for row in store.items("c1")] == [("a/1", {"x": 1})]


def test_line_separators_inside_text_survive(store: Store) -> None:
    text = "入\u2028B\u0085C\r\n\x00"
    store.add_item(ItemRow("c1", "k", "doc", {"text": text}))
    store.close()
    again = Store.open(store.path)
    assert again.items("c1")[0].payload == {"text": text}


def test_nan_is_refused_and_nothing_is_written(store: Store) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        store.add_item(ItemRow("c1", "k", "doc", {"x": float("nan")}))
    assert store.keys("c1") == set()


def test_a_shared_cell_serves_both_variants(store: Store) -> None:
    store.add_cell(CellRow("c1", "mmlu", "docs", "f16+draft"), ["f16+draft"])
    assert [cell.cell_id for cell in store.cells_of("f16+draft")] == ["c1"]
    assert store.cells_of("f16+draft")[0].variant == "f16"
    assert len(store.cells()) == 1


def test_frame_has_a_row_for_each_item_and_variant(store: Store) -> None:
    store.add_cell(CellRow("c1", "mmlu", "docs", "f16"), ["f16+draft"])
    store.add_item(ItemRow("c1", "k", "doc", {"x": 1}))
    frame = store.frame()
    assert sorted(frame["variant"]) == ["f16", "f16+draft"]
    assert set(frame["payload"]) == {'{"x":1}'}


def test_a_killed_writer_loses_at_most_the_item_in_flight(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    code = f"""
from pathlib import Path
from harness.store import Store, CellRow
from harness.record import ItemRow
import sys
store = Store.create(Path({str(path)!r}))
store.add_cell(CellRow("c", "mmlu", "docs", "f16"), ["f16"])
for number in range(10**9):
    store.add_item(ItemRow("c", f"{{number:09d}}", "doc", {{"n": number}}))
    print(number, flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        seen = [int(process.stdout.readline()) for _ in range(50)]
        process.send_signal(signal.SIGKILL)
        rest = process.stdout.read().split("\n")
    told = [*seen, *(int(line) for line in rest if line.strip().isdigit())]
    rows = Store.open(path).items("c")
    assert [row.payload["n"] for row in rows] == list(range(len(rows)))
    assert len(rows) >= len(told) - 1 >= 49


def test_half_a_row_left_by_a_crash_is_cut_and_run_again(store: Store) -> None:
    """Two rows, one holding U+2028, and a third whose write never ended: 2 are kept, 1 is run again, 3 come out."""
    store.add_item(ItemRow("c1", "a", "doc", {"text": "one\u2028line"}))
    store.add_item(ItemRow("c1", "b", "doc", {"text": "two"}))
    store.close()
    crashed = sqlite3.connect(store.path)
    crashed.execute("BEGIN")
    crashed.execute("INSERT INTO items VALUES ('c1', 'c', 'doc', '{\"text\": \"thr')")
    crashed.close()
    again = Store.create(store.path)
    assert again.keys("c1") == {"a", "b"}
    for key in ("a", "b", "c"):
        again.add_item(ItemRow("c1", key, "doc", {"text": "three"}))
    lines = again.frame().to_json(orient="records", lines=True, force_ascii=False).rstrip("\n").split("\n")
    rows = [json.loads(line) for line in lines]
    assert [(row["key"], json.loads(row["payload"])["text"]) for row in rows] == [
        ("a", "one\u2028line"),
        ("b", "two"),
        ("c", "three"),
    ]


def test_a_second_sweep_into_one_folder_is_refused(tmp_path: Path) -> None:
    held = RunLock(tmp_path)
    with pytest.raises(InputError, match="another sweep is writing here"):
        RunLock(tmp_path)
    held.release()
    RunLock(tmp_path).release()


@pytest.mark.parametrize("content", [None, b"", b"not a database at all, but long enough to be read as one" * 40])
def test_what_is_not_a_run_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "run.sqlite"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=r"run\.sqlite"):
        Store.open(path)


def test_another_schema_is_refused(store: Store) -> None:
    store.put("schema_version", 999)
    store.close()
    with pytest.raises(InputError, match="schema version 999, expected 1"):
        Store.open(store.path)


def test_dumps_is_strict() -> None:
    assert dumps({"b": "ä", "a": None}) == '{"a":null,"b":"ä"}'
    with pytest.raises(ValueError, match="JSON compliant"):
        dumps(float("inf"))


def test_a_run_in_a_folder_of_any_name_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "ü n%41 q?mode=ro#x" / "run.sqlite"
    made = Store.create(path)
    made.put("k", 1)
    made.close()
    again = Store.open(path)
    assert again.get("k") == 1
    again.close()


@pytest.mark.parametrize(
    "damage",
    [
        "DROP TABLE items",
        "UPDATE items SET payload = '{'",
        "UPDATE items SET payload = CAST(x'7bff' AS TEXT)",
    ],
)
def test_a_damaged_run_is_told_in_one_line(store: Store, damage: str) -> None:
    store.add_item(ItemRow("c1", "k", "doc", {"x": 1}))
    store.close()
    with sqlite3.connect(store.path) as db:
        db.execute(damage)
    db.close()
    again = Store.open(store.path)
    with pytest.raises(InputError, match=r"run\.sqlite: cannot be used \(") as caught:
        again.items("c1")
    assert "\n" not in str(caught.value)
    again.close()


def test_a_file_that_is_no_database_is_not_taken_for_a_run_to_go_on_with(tmp_path: Path) -> None:
    (tmp_path / "run.sqlite").write_bytes(b"not a database at all, but long enough to be read as one" * 40)
    with pytest.raises(InputError, match="cannot be used"):
        Store.create(tmp_path / "run.sqlite")


def test_an_archived_run_is_read_where_nothing_can_be_written(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.close()
    before = {path.name for path in store.path.parent.iterdir()}
    monkeypatch.setattr("harness.store.os.access", lambda path, mode: False)
    again = Store.open(store.path)
    assert [cell.cell_id for cell in again.cells()] == ["c1"]
    assert {path.name for path in store.path.parent.iterdir()} == before
    with pytest.raises(InputError, match="cannot be used"):
        again.put("k", 1)
    again.close()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"cannot be written .* --out"):
        RunLock(tmp_path / "file" / "run")
