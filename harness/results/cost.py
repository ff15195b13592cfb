"""What each suite cost: wall time and items by variant."""

from __future__ import annotations

from typing import Any

from harness.results.model import PartRows, RunData

# Rows that are not items of their own: what became of a document, and a task's totals.
_NO_ITEM = ("judged", "task")
_UNITS = {
    ("mmlu", "docs"): "question",
    ("lm_eval", "scored"): "document",
    ("lm_eval", "written"): "document",
    ("long_context", "probes"): "probe",
    ("long_context", "continuation"): "text",
    ("code_syntax", "programs"): "program",
    ("speed", "trials"): "trial",
    ("speed", "depth"): "timing",
    ("speed", "energy"): "window",
    ("fidelity", "kl"): "stretch",
    ("fidelity", "floor"): "stretch",
    ("fidelity", "greedy"): "text",
    ("fidelity", "audit"): "text",
}


def cost(run: RunData) -> list[dict[str, Any]]:
    """The ``cost`` entry of results.json: one for each part of a suite and variant.

    ``seconds`` is wall time in that part over all attempts, loading the model apart. ``seconds`` and ``items_per_s``
    are None where another variant's scores serve, or where the store holds no time for the part.
    """
    return [
        {
            "variant": variant.name,
            "suite": suite,
            "part": part,
            **_entry(rows),
            "unit": _UNITS.get((suite, part), "row"),
        }
        for variant in run.variants
        for (suite, part), rows in variant.parts.items()
        if suite != "engine"
    ]


def _entry(rows: PartRows) -> dict[str, Any]:
    items = sum(row.get("row") not in _NO_ITEM for row in rows.rows)
    seconds = None if rows.shared or not rows.seconds else rows.seconds
    return {
        "state": rows.state,
        "shared": rows.shared,
        "seconds": seconds,
        "items": items,
        "items_per_s": items / seconds if seconds and items else None,
    }
