"""What ``plan`` answers: the cells with their estimated costs, as plain JSON and as a table."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.config import Config, Variant, expand, select
from harness.costs import (
    DEMO,
    Machine,
    ModelSize,
    cell_s,
    default_machine,
    disk_bytes,
    longest_scored,
    size_of_file,
    variant_cost,
)
from harness.load import load
from harness.meters import open_panel
from harness.meters.cpus import effective_cpus
from harness.meters.memory import available_bytes
from harness.plan import Cell, cells, model_note, warnings
from harness.presets import resolve, without_energy
from harness.suite_plans import SuitePlan

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def planned(
    config_path: Path, preset: str, only_variants: tuple[str, ...], only_suites: tuple[str, ...]
) -> dict[str, Any]:
    """The plan as plain JSON; ``null`` where the size of the model is not known.

    Raises:
        InputError: A fault in the configuration, or an unknown preset, variant or suite.
    """
    config = load(config_path)
    variants = select(expand(config), only_variants)
    suites = resolve(config, preset, only_suites)
    # A command is not started for a plan; the other meters are looked at.
    if config.energy.meter != "command" and not open_panel(config.energy).counted:
        suites = without_energy(suites)
    cores = effective_cpus()
    machine = default_machine(cores, available_bytes(), shutil.disk_usage(".").free)
    size = _model_size(config)
    rows = cells(variants, suites)
    costs = [_cell_row(cell, variants, suites, size, machine) for cell in rows]
    total = sum(row["seconds"] for row in costs) if size else None
    disk = disk_bytes(variants, size) if size else None
    answer: dict[str, Any] = {
        "preset": preset,
        "model": config.model,
        "reference": config.reference,
        "note": f"every figure is an estimate, within a factor of 2 to 3, for {cores} usable CPU cores",
        "total": {"cells": len(rows), "seconds": _round(total), "disk_bytes": _round(disk)},
        "variants": [_variant_row(variant, suites, size) for variant in variants],
        "cells": costs,
        "warnings": [*warnings(config, variants, cores), *filter(None, [model_note(config)])],
    }
    answer["warnings"] += _shortages(answer, machine)
    return answer


def _model_size(config: Config) -> ModelSize | None:
    if config.model == "demo":
        return DEMO
    if config.model.startswith("hf:"):
        return None
    from harness.backends.llama_cpp.gguf import read_header
    from harness.run.fit import vocabulary

    file = Path(config.model)
    header, guess = read_header(file), size_of_file(file.stat().st_size, file.name)
    heads, width = header.arch("attention.head_count"), header.arch("embedding_length")
    layers, kv_heads = header.arch("block_count"), header.arch("attention.head_count_kv", heads)
    if not header.elements or not all(map(_is_count, (heads, width, layers, kv_heads))):
        return guess
    length = header.arch("attention.key_length")
    length = length if _is_count(length) else width // heads
    # Keys and values of every layer, 2 bytes each.
    return replace(
        guess,
        n_params=header.elements,
        kv_bytes_per_token=2 * layers * kv_heads * length * 2,
        known=True,
        heads=heads,
        n_vocab=vocabulary(header),
    )


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and value > 0


def _round(value: float | None) -> int | None:
    return None if value is None else round(value)


def _cell_row(
    cell: Cell, variants: tuple[Variant, ...], suites: SuitePlan, size: ModelSize | None, machine: Machine
) -> dict[str, Any]:
    variant = next(variant for variant in variants if variant.name == cell.variant)
    seconds = cell_s(cell, variant, suites, size, machine) if size else None
    return {
        "variant": cell.variant,
        "suite": cell.suite,
        "part": cell.part,
        "shared_with": cell.shared_with,
        "seconds": None if seconds is None else round(seconds, 1),
    }


def _variant_row(variant: Variant, suites: SuitePlan, size: ModelSize | None) -> dict[str, Any]:
    from harness.backends.llama_cpp.score_plan import cells as scoring_cells

    settings = variant.settings
    longest = longest_scored(suites, settings.ctx)
    scored = scoring_cells(longest, settings.ctx, min(settings.batch, settings.ubatch)) if longest else 0
    cost = variant_cost(variant, size, scored) if size else None
    return {
        "name": variant.name,
        "reference": variant.reference,
        "settings": settings.model_dump(mode="json"),
        "file_bytes": _round(cost.file_bytes) if cost else None,
        "memory_bytes": _round(cost.memory_bytes) if cost else None,
    }


def _shortages(answer: dict[str, Any], machine: Machine) -> list[str]:
    found = []
    for row in answer["variants"]:
        if row["memory_bytes"] and machine.ram_bytes and row["memory_bytes"] > machine.ram_bytes:
            found.append(
                f"{row['name']}: about {row['memory_bytes'] / 1e9:.1f} GB of memory; "
                f"{machine.ram_bytes / 1e9:.1f} GB are free; sweep refuses what cannot fit; lower ctx or the bits"
            )
    disk = answer["total"]["disk_bytes"]
    if disk and machine.free_disk_bytes and disk > machine.free_disk_bytes:
        found.append(f"about {disk / 1e9:.1f} GB of disk; {machine.free_disk_bytes / 1e9:.1f} GB are free here")
    return found


def render(answer: dict[str, Any]) -> None:
    """Print the plan: a row per variant, a column per suite, in seconds."""
    from rich.console import Console
    from rich.table import Table

    suites = list(dict.fromkeys(cell["suite"] for cell in answer["cells"]))
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("variant", no_wrap=True)
    for title in (*suites, "total", "file", "memory"):
        table.add_column(title.replace("_", " "), justify="right")
    for row in answer["variants"]:
        own = [cell for cell in answer["cells"] if cell["variant"] == row["name"]]
        seconds = [_sum([cell["seconds"] for cell in own if cell["suite"] == suite]) for suite in suites]
        name = f"{row['name']} (ref)" if row["reference"] else row["name"]
        sizes = [megabytes(row["file_bytes"]), megabytes(row["memory_bytes"])]
        table.add_row(name, *[_time(s) for s in seconds], _time(_sum(seconds)), *sizes)
    console = Console(highlight=False)
    total = answer["total"]
    console.print(f"{answer['model']}, preset {answer['preset']}: {total['cells']} cells", markup=False)
    print_whole(console, table)
    console.print(f"total: about {_time(total['seconds'])}, disk {megabytes(total['disk_bytes'])}")
    console.print(f"({answer['note']})", markup=False)
    for warning in answer["warnings"]:
        console.print(f"note: {warning}", markup=False)


def print_whole(console: Console, table: Table) -> None:
    """Print a table without cutting or breaking its figures: wider than the terminal, if need be."""
    from rich.console import Console
    from rich.measure import Measurement

    for column in table.columns:
        # Only a title may be broken, between its words.
        column.min_width = max(map(len, [*str(column.header).split(), *map(str, column.cells)]))
    needed = Measurement.get(console, console.options.update(max_width=10_000), table).minimum
    Console(width=max(console.width, needed), highlight=False).print(table, crop=False)


def _sum(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _time(seconds: float | None) -> str:
    """Seconds for people.

    >>> _time(42.2), _time(600), _time(None), _time(9000)
    ('42 s', '10 min', '?', '2.5 h')
    """
    if seconds is None:
        return "?"
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def megabytes(n_bytes: float | None) -> str:
    """Bytes for people, in MB or GB."""
    if n_bytes is None:
        return "?"
    return f"{n_bytes / 1e6:.0f} MB" if n_bytes < 1e9 else f"{n_bytes / 1e9:.1f} GB"
