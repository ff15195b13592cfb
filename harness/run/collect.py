"""From the store to plain values. Derives nothing."""

from __future__ import annotations

from harness.metrics.sentinel import CELL, replaced
from harness.results.model import PartRows, RunData, VariantRun
from harness.store import Store

# Kind of the rows that hold the readings around a stretch of scoring.
ENERGY = "energy"
FACTS = (
    "run_id", "created", "harness_version", "preset", "state", "machine", "suites", "mmlu_data", "energy", "warnings",
    "bandwidth", "bandwidths", "race",
)  # fmt: skip


def collect(store: Store) -> RunData:
    """Read a whole run."""
    sentinels = tuple(item.payload for item in store.items(CELL))
    dropped = frozenset(replaced(sentinels))
    rows, energy = {}, {}
    for cell in store.cells():
        items = store.items(cell.cell_id)
        rows[cell.cell_id] = tuple(item.payload for item in items if item.kind != ENERGY)
        energy[cell.cell_id] = tuple(item.payload for item in items if item.kind == ENERGY)
    variants = []
    for variant in store.variants():
        parts = {}
        for cell in store.cells_of(variant.name):
            if cell.cell_id == CELL:
                continue
            shared = cell.variant != variant.name
            parts[cell.suite, cell.part] = PartRows(
                rows[cell.cell_id], cell.state, cell.error, shared, energy[cell.cell_id], cell.seconds
            )
        variants.append(
            VariantRun(variant.name, variant.reference, variant.identity, variant.spec, variant.model, parts, dropped)
        )
    return RunData({**{key: store.get(key) for key in FACTS}, "sentinels": sentinels}, tuple(variants))
