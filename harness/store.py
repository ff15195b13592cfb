"""One SQLite file per run: raw rows in, plain values and pandas frames out. Derives nothing.

Every item is one transaction, so a crash loses at most the item in flight. ``(cell_id, key)`` is unique,
so an item is never counted twice. A lock beside the file keeps a second sweep out of the folder.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import InputError
from harness.record import SCHEMA_VERSION, ItemRow

if TYPE_CHECKING:
    import pandas as pd

_SCHEMA = """
CREATE TABLE IF NOT EXISTS run (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS variants (
  name TEXT PRIMARY KEY, position INTEGER NOT NULL, reference INTEGER NOT NULL,
  identity TEXT NOT NULL, scoring_identity TEXT NOT NULL, spec TEXT NOT NULL, model TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS cells (
  cell_id TEXT PRIMARY KEY, suite TEXT NOT NULL, part TEXT NOT NULL, variant TEXT NOT NULL,
  state TEXT NOT NULL DEFAULT 'pending', error TEXT, seconds REAL NOT NULL DEFAULT 0) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS variant_cells (
  variant TEXT NOT NULL, cell_id TEXT NOT NULL, PRIMARY KEY (variant, cell_id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS items (
  cell_id TEXT NOT NULL, key TEXT NOT NULL, kind TEXT NOT NULL, payload TEXT NOT NULL,
  PRIMARY KEY (cell_id, key)) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class CellRow:
    """One cell as stored: a part of a suite, for all variants that share it.

    Attributes:
        variant: The variant that runs it.
        state: pending | done | failed.
        error: Why it failed, in one line.
        seconds: Wall time spent in it so far.
    """

    cell_id: str
    suite: str
    part: str
    variant: str
    state: str = "pending"
    error: str | None = None
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class VariantRow:
    """One variant as stored. ``spec`` (engine settings) and ``model`` (where the file came from) are plain JSON."""

    name: str
    reference: bool
    identity: str
    scoring_identity: str
    spec: Mapping[str, Any]
    model: Mapping[str, Any]


def dumps(value: object) -> str:
    """Strict JSON: no NaN, no infinity; text in any language kept as it is."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """What the database cannot do, in one line: not a database, damaged, the disk full."""
    try:
        yield
    except (sqlite3.Error, json.JSONDecodeError) as error:
        said = str(error).partition(" with text ")[0]
        raise InputError(
            f"{path}: cannot be used ({said}); expected run.sqlite of a sweep, and room on the disk; "
            "restore it from a copy, or sweep anew with --fresh"
        ) from error


class RunLock:
    """Keeps a folder to one writer while it is held; freed by the system when the process ends, however it ends."""

    def __init__(self, folder: Path) -> None:
        """Take the lock. Raises InputError when another sweep holds it."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = (folder / ".lock").open("w")
        except OSError as error:
            raise InputError(
                f"{folder}: cannot be written ({error.strerror or error}); choose another folder with --out"
            ) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.close()
            raise InputError(
                f"{folder}: another sweep is writing here; wait for it, or choose another folder with --out"
            ) from error

    def release(self) -> None:
        """Let others in."""
        self._file.close()


class Store:
    """The run file."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        """Use ``open`` or ``create``."""
        self._db = connection
        self.path = path

    @classmethod
    def create(cls, path: Path) -> Store:
        """Make the file, or open it to go on. Raises InputError for a damaged file or one of another schema."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with _explained(path):
            db = sqlite3.connect(path)
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=NORMAL")
            db.executescript(_SCHEMA)
        store = cls(db, path)
        if store.get("schema_version") is None:
            store.put("schema_version", SCHEMA_VERSION)
        store._check()
        return store

    @classmethod
    def open(cls, path: Path) -> Store:
        """Open an existing run for reading. Raises InputError where there is none."""
        if path.is_dir():
            path = path / "run.sqlite"
        if not path.is_file():
            raise InputError(f"{path}: no run here; expected a folder written by 'python -m harness sweep'")
        with _explained(path):
            # As a URI, in which signs such as % and ? are escaped. Reading needs a log beside the file, unless the file
            # is said not to change; in a folder that cannot be written, it cannot.
            mode = "rw" if os.access(path.parent, os.W_OK) and os.access(path, os.W_OK) else "ro&immutable=1"
            db = sqlite3.connect(f"{path.absolute().as_uri()}?mode={mode}", uri=True)
        store = cls(db, path)
        store._check()
        return store

    def _check(self) -> None:
        version = self.get("schema_version")
        if version != SCHEMA_VERSION:
            raise InputError(
                f"{self.path}: schema version {version}, expected {SCHEMA_VERSION}; "
                "open it with the harness that wrote it, or sweep again with --fresh"
            )

    def _rows(self, query: str, values: tuple[object, ...] = ()) -> list[Any]:
        with _explained(self.path):
            return self._db.execute(query, values).fetchall()

    def _change(self, statement: str, *rows: tuple[object, ...]) -> None:
        """One transaction."""
        with _explained(self.path), self._db:
            self._db.executemany(statement, rows)

    def _value(self, text: str) -> Any:
        with _explained(self.path):
            return json.loads(text)

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def get(self, key: str) -> Any:
        """A fact about the run, or None."""
        rows = self._rows("SELECT value FROM run WHERE key = ?", (key,))
        return self._value(rows[0][0]) if rows else None

    def put(self, key: str, value: object) -> None:
        """Set a fact about the run."""
        self._change("INSERT OR REPLACE INTO run VALUES (?, ?)", (key, dumps(value)))

    def add_variant(self, position: int, row: VariantRow) -> None:
        """Register a variant once."""
        plain = (dumps(row.spec), dumps(row.model))
        self._change(
            "INSERT OR IGNORE INTO variants VALUES (?, ?, ?, ?, ?, ?, ?)",
            (row.name, position, int(row.reference), row.identity, row.scoring_identity, *plain),
        )

    def variants(self) -> list[VariantRow]:
        """All variants in the order of the configuration."""
        rows = self._rows(
            "SELECT name, reference, identity, scoring_identity, spec, model FROM variants ORDER BY position"
        )
        return [VariantRow(n, bool(r), i, s, self._value(p), self._value(m)) for n, r, i, s, p, m in rows]

    def add_cell(self, cell: CellRow, variants: Iterable[str]) -> None:
        """Register a cell once, and every variant that it counts for."""
        self._change(
            "INSERT OR IGNORE INTO cells (cell_id, suite, part, variant) VALUES (?, ?, ?, ?)",
            (cell.cell_id, cell.suite, cell.part, cell.variant),
        )
        self._change("INSERT OR IGNORE INTO variant_cells VALUES (?, ?)", *[(name, cell.cell_id) for name in variants])

    def cells(self) -> list[CellRow]:
        """All cells."""
        rows = self._rows("SELECT cell_id, suite, part, variant, state, error, seconds FROM cells")
        return [CellRow(*row) for row in rows]

    def cells_of(self, variant: str) -> list[CellRow]:
        """The cells that hold a variant's rows, its own and those it shares."""
        rows = self._rows(
            "SELECT c.cell_id, suite, part, c.variant, state, error, seconds FROM cells c "
            "JOIN variant_cells v USING (cell_id) WHERE v.variant = ? ORDER BY suite, part",
            (variant,),
        )
        return [CellRow(*row) for row in rows]

    def set_state(self, cell_id: str, state: str, error: str | None = None) -> None:
        """Close or reopen a cell."""
        self._change("UPDATE cells SET state = ?, error = ? WHERE cell_id = ?", (state, error, cell_id))

    def add_seconds(self, cell_id: str, seconds: float) -> None:
        """Add wall time to a cell."""
        self._change("UPDATE cells SET seconds = seconds + ? WHERE cell_id = ?", (seconds, cell_id))

    def add_item(self, row: ItemRow) -> None:
        """Store one item; a key that is there already keeps its first row."""
        self._change(
            "INSERT OR IGNORE INTO items VALUES (?, ?, ?, ?)", (row.cell_id, row.key, row.kind, dumps(row.payload))
        )

    def keys(self, cell_id: str) -> set[str]:
        """Keys already stored in a cell."""
        return {key for (key,) in self._rows("SELECT key FROM items WHERE cell_id = ?", (cell_id,))}

    def items(self, cell_id: str) -> list[ItemRow]:
        """All rows of a cell, by key."""
        rows = self._rows("SELECT key, kind, payload FROM items WHERE cell_id = ? ORDER BY key", (cell_id,))
        return [ItemRow(cell_id, key, kind, self._value(payload)) for key, kind, payload in rows]

    def frame(self) -> pd.DataFrame:
        """Every raw row as a pandas frame: variant, suite, part, key, kind, payload (JSON text)."""
        import pandas as pd

        query = (
            "SELECT v.variant, c.suite, c.part, i.key, i.kind, i.payload FROM items i "
            "JOIN cells c USING (cell_id) JOIN variant_cells v USING (cell_id) "
            "ORDER BY v.variant, c.suite, c.part, i.key"
        )
        columns = ["variant", "suite", "part", "key", "kind", "payload"]
        return pd.DataFrame(self._rows(query), columns=columns)
