"""From the store to plain values. Derives nothing."""

from __future__ import annotations

from harness.results.model import PartRows, RunData, VariantRun
from harness.store import Store

FACTS = (
    "run_id", "created", "harness_version", "preset", "state", "machine", "suites", "mmlu_data", "energy", "warnings",
    "bandwidth",
)  # fmt: skip


def collect(store: Store) -> RunData:
    """Read a whole run."""
    rows = {cell.cell_id: tuple(item.payload for item in store.items(cell.cell_id)) for cell in store.cells()}
    variants = []
    for variant in store.variants():
        parts = {}
        for cell in store.cells_of(variant.name):
            shared = cell.variant != variant.name
            parts[cell.suite, cell.part] = PartRows(rows[cell.cell_id], cell.state, cell.error, shared)
        variants.append(
            VariantRun(variant.name, variant.reference, variant.identity, variant.spec, variant.model, parts)
        )
    return RunData({key: store.get(key) for key in FACTS}, tuple(variants))
