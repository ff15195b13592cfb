"""The sweep: prepare, open the run's folder, measure what is missing, derive, write the report."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from harness import __version__
from harness.costs import DEMO, SAMPLE_SHARE, ModelSize, cell_s, default_machine, size_of_file
from harness.decide.view import speculation_faults
from harness.errors import CellError, InputError
from harness.meters import describe, open_meters
from harness.meters.bandwidth import bandwidth
from harness.meters.cpus import effective_cpus
from harness.record import ItemRow
from harness.run.depths import run_depths
from harness.run.folder import RunFolder, check_folder, open_folder
from harness.run.prepare import Prepared, SweepOptions, prepare
from harness.run.progress import Meter
from harness.run.quality import run_quality
from harness.run.session import Session
from harness.run.timed import run_speed
from harness.store import CellRow, Store

__all__ = ["SweepOptions", "SweepOutcome", "rebuild_report", "sweep"]


@dataclass(frozen=True, slots=True)
class SweepOutcome:
    """What a sweep leaves behind.

    Attributes:
        folder: Where run.sqlite, results.json and report.html are.
        failed_cells: "variant · suite: reason" of each failed cell.
    """

    folder: str
    failed_cells: list[str]


def sweep(options: SweepOptions) -> SweepOutcome:
    """Measure every cell that is not done yet and write the results.

    Raises:
        InputError: What was given is wrong; nothing was measured.
    """
    console = Console(stderr=True)

    def say(line: str) -> None:
        console.print(line, highlight=False, markup=False, soft_wrap=True)

    check_folder(options)
    prepared = prepare(options, lambda what: say(f"preparing {what}"))
    opened = open_folder(options, prepared, datetime.now(UTC))
    try:
        for line in prepared.warnings:
            say(f"note: {line}")
        _register(opened, prepared)
        left = _seconds_left(opened.store, prepared)
        if opened.resumed:
            say(f"resuming {opened.path}: {_done_line(opened.store)}")
        if any(cell.state != "done" for cell in opened.store.cells()):
            _measure(opened, prepared, left, console)
        opened.store.put("state", "complete")
        page = rebuild_report(opened.path, None)
        say(f"{_verdict(opened.path)}\nopen {page}")
        failed = [
            f"{cell.variant} · {cell.suite}: {cell.error}" for cell in opened.store.cells() if cell.state == "failed"
        ]
        return SweepOutcome(str(opened.path), failed)
    finally:
        opened.store.close()
        opened.lock.release()


def _verdict(folder: Path) -> str:
    """The decision in a sentence, from results.json, and a line on variants whose speculation changed their text."""
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    lead = "Provisional, from a smoke run. " if results["preset"] == "smoke" else ""
    fault = speculation_faults(results["variants"])
    return "\n".join([f"{lead}{results['decision']['reason']}", *([f"FAULT: {fault}"] if fault else [])])


def rebuild_report(run: Path, out: Path | None) -> Path:
    """Derive results.json and report.html anew from run.sqlite alone; returns the page's path."""
    from harness.report.page import render
    from harness.results import derive
    from harness.run.collect import collect
    from harness.store import dumps

    store = Store.open(run)
    try:
        if not any(variant.reference for variant in store.variants()):
            raise InputError(f"{run}: nothing in it yet, the sweep ended as it began; give the same command again")
        results, series = derive(collect(store))
    finally:
        store.close()
    folder = store.path.parent
    if out is None or os.access(folder, os.W_OK):  # of an archived run, only the page that is asked for
        _write(folder / "results.json", dumps(results))
    page = out if out is not None else folder / "report.html"
    _write(page, render(results, series))
    return page


def _write(path: Path, text: str) -> None:
    """Whole or not at all; a pipe or a terminal is written to, a link followed, and neither is replaced."""
    path = path.resolve()
    regular = path.is_file() or not path.exists()
    beside = path.with_name(f".{path.name}.part") if regular else path
    try:
        beside.write_text(text, encoding="utf-8")
        if regular:
            beside.replace(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror}); choose another place with --out") from error


def _register(opened: RunFolder, prepared: Prepared) -> None:
    """Put the plan into the run file; what is there already stays."""
    store = opened.store
    facts: Mapping[str, Any] = {
        "harness_version": __version__,
        "preset": prepared.preset,
        "machine": prepared.machine,
        "suites": {name: prepared.suites.settings_of(name) for name, _ in prepared.suites.items()},
        "mmlu_data": None
        if prepared.mmlu is None
        else {
            **asdict(prepared.mmlu.source),
            "digest": prepared.mmlu.digest,
            "is_sample": prepared.mmlu.source.is_sample,
        },
        "energy": describe(open_meters()),
        "warnings": list(prepared.warnings),
    }
    for key, value in facts.items():
        if store.get(key) is None:
            store.put(key, value)
    for position, variant in enumerate(prepared.variants):
        store.add_variant(position, prepared.row(variant))
    for cell in prepared.cells:
        store.add_cell(CellRow(str(cell.id), cell.suite, cell.part, cell.variant), [cell.variant])
    for row in store.cells():
        if row.state == "failed":
            store.set_state(row.cell_id, "pending")
    store.put("state", "running")


def _seconds_left(store: Store, prepared: Prepared) -> dict[tuple[str, str, str], float]:
    """Estimated seconds of every cell that is not done."""
    states = {row.cell_id: row.state for row in store.cells()}
    here = prepared.machine
    machine = default_machine(effective_cpus(), here["ram_bytes"], None)
    size = _model_size(prepared)
    by_name = {variant.name: variant for variant in prepared.variants}
    sample = prepared.mmlu is not None and prepared.mmlu.source.is_sample
    shares = {"mmlu": SAMPLE_SHARE} if sample else {}
    return {
        (cell.variant, cell.suite, cell.part): shares.get(cell.suite, 1.0)
        * cell_s(cell, by_name[cell.variant], prepared.suites, size, machine)
        for cell in prepared.cells
        if states[str(cell.id)] != "done" and cell.shared_with is None
    }


def _model_size(prepared: Prepared) -> ModelSize:
    if prepared.config.model == "demo":
        return DEMO
    model = prepared.models[prepared.reference.name]
    return size_of_file(Path(model["path"]).stat().st_size, model["file"])


def _done_line(store: Store) -> str:
    cells = store.cells()
    items = sum(len(store.keys(cell.cell_id)) for cell in cells)
    return f"{sum(cell.state == 'done' for cell in cells)} of {len(cells)} cells done, {items} items kept"


def _measure(
    opened: RunFolder, prepared: Prepared, left: Mapping[tuple[str, str, str], float], console: Console
) -> None:
    with Meter(sum(left.values()), console) as meter:
        session = Session(prepared, opened.store, opened.path, meter, left)
        try:
            _machine(session)
            _engines(session)
            meter.start()
            run_speed(session)
            run_depths(session)
            run_quality(session)
        finally:
            session.pool.close()
        meter.done()


def _machine(session: Session) -> None:
    """Memory bandwidth, once per run."""
    if session.store.get("bandwidth") is None:
        session.meter.now("memory bandwidth")
        cache = max((int(size) for size in (session.prepared.machine.get("caches") or {}).values()), default=0) or None
        session.store.put("bandwidth", bandwidth(threads=effective_cpus(), cache_bytes=cache).as_dict())


def _engines(session: Session) -> None:
    """Load every variant once: load time, memory and what the engine says it did."""
    for variant in session.prepared.variants:
        cell_id = f"engine-{session.prepared.row(variant).identity}"
        cell = CellRow(cell_id, "engine", "load", variant.name)
        session.store.add_cell(cell, [variant.name])
        if "load" in session.store.keys(cell_id):
            session.store.set_state(cell_id, "done")
            continue
        session.meter.now(f"loading {variant.name}")
        try:
            payload = session.loaded(variant.name)
        except CellError as error:
            session.store.set_state(cell_id, "failed", str(error))
            session.meter.say(f"{variant.name}: {error}")
            continue
        session.store.add_item(ItemRow(cell_id, "load", "load", payload))
        session.store.set_state(cell_id, "done")
