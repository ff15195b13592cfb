"""The sweep: prepare, open the run's folder, measure what is missing, derive, write the report."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from harness import __version__
from harness.costs import DEMO, SAMPLE_SHARE, ModelSize, cell_s, default_machine, size_of_file
from harness.decide.view import speculation_faults
from harness.errors import CellError, InputError
from harness.meters import cuda
from harness.meters.bandwidth import PASSES, bandwidth, both
from harness.meters.cpus import effective_cpus
from harness.meters.memory import available_bytes
from harness.record import ItemRow
from harness.run.depths import run_depths
from harness.run.energy import run_energy
from harness.run.environment import last_level_cache
from harness.run.folder import RunFolder, check_folder, open_folder
from harness.run.prepare import Prepared, SweepOptions, prepare
from harness.run.progress import Meter
from harness.run.quality import run_quality
from harness.run.session import Session
from harness.run.timed import run_speed
from harness.store import CellRow, Store
from harness.suites.tasks import PARTS

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
    with closing(prepared.energy):
        return _swept(options, prepared, console, say)


def _swept(options: SweepOptions, prepared: Prepared, console: Console, say: Callable[[str], None]) -> SweepOutcome:
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
    """The decision in a sentence, from results.json; how quiet the machine was; and whose speculation changed text."""
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    lead = "Provisional, from a smoke run. " if results["preset"] == "smoke" else ""
    fault = speculation_faults(results["variants"])
    quiet = results["quiet"]["sentence"]
    lines = [f"{lead}{results['decision']['reason']}", quiet, f"FAULT: {fault}" if fault else ""]
    return "\n".join(line for line in lines if line)


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
        "energy": prepared.energy.describe(),
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
    items = Counter[str]()
    for task in prepared.tasks:
        items[PARTS[task.kind]] += len(task.chosen)
    return {
        (cell.variant, cell.suite, cell.part): shares.get(cell.suite, 1.0)
        * cell_s(cell, by_name[cell.variant], prepared.suites, size, machine, items)
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
            run_quality(session)  # first, so that the last trials can go to variants that may be chosen
            run_speed(session)
            run_depths(session)
            run_energy(session)
        finally:
            session.pool.close()
        _machine_again(session)
        meter.done()


def _machine(session: Session) -> None:
    """Memory bandwidth, before anything runs: with every usable CPU, each variant's threads, and of the GPU if used."""
    store, specs = session.store, session.prepared.specs.values()
    every = effective_cpus()
    found: dict[str, Any] = dict(store.get("bandwidths") or {})
    for threads in sorted({every, *(spec.threads for spec in specs)}):
        if str(threads) not in found:
            session.meter.now(f"memory bandwidth, {threads} threads")
            found[str(threads)] = bandwidth(threads=threads, cache_bytes=_cache(session)).as_dict()
    if "gpu" not in found and any(spec.gpu_layers for spec in specs):
        session.meter.now("memory bandwidth of the GPU")
        found["gpu"] = cuda.bandwidth()
    _keep(store, found, every)


def _machine_again(session: Session) -> None:
    """The same of the CPUs once all is measured, if memory allows: other load at the start must not lower a ceiling."""
    found = dict(session.store.get("bandwidths") or {})
    for name, first in found.items():
        size = first.get("array_bytes")
        if name == "gpu" or not size or first["n"] > PASSES or size > (available_bytes() or 0) // 4:
            continue
        session.meter.now(f"memory bandwidth again, {name} threads")
        found[name] = both(first, bandwidth(threads=int(name), cache_bytes=_cache(session), size=size).as_dict())
    _keep(session.store, found, effective_cpus())


def _cache(session: Session) -> int | None:
    return last_level_cache(session.prepared.machine.get("caches") or {})


def _keep(store: Store, found: dict[str, Any], every: int) -> None:
    """``bandwidths`` by threads; ``bandwidth`` is the one with every usable CPU."""
    store.put("bandwidths", found)
    if str(every) in found:
        store.put("bandwidth", found[str(every)])


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
