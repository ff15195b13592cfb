"""MMLU beyond its three figures: by field of subjects, and what the comparison with the reference rests on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.metrics import quality
from harness.metrics.flips import flips
from harness.metrics.subjects import by_field
from harness.record import Figure
from harness.results.feel import plain
from harness.results.model import Payload, RunData, VariantRun
from harness.suites import floor as floors


def mmlu(run: RunData) -> dict[str, Any]:
    """The ``mmlu`` entry of results.json, by variant; a variant without answers is left out.

    ``overall`` and each of ``fields`` have accuracy, clustered by subject, and ``paired``: None for the reference, for
    a variant that shares another's scores, and where no question was answered by both. ``near_ties`` are flips that
    noise can explain, None where the variant's noise floor is not known.
    """
    base = run.reference.rows("mmlu", "docs")
    return {v.name: _variant(v, rows, base) for v in run.variants if (rows := v.rows("mmlu", "docs"))}


def _variant(variant: VariantRun, rows: Sequence[Payload], base: Sequence[Payload]) -> dict[str, Any]:
    shared = variant.shared("mmlu", "docs")
    reference: Sequence[Payload] = () if variant.reference or shared else base
    floor = floors.figures(variant.rows("fidelity", "floor"))["logprob_floor"].value
    return {
        "shared": shared,
        "overall": _entry(rows, reference, floor),
        "fields": {field: _entry(docs, reference, floor) for field, docs in by_field(rows).items()},
        "subjects": {subject: {"correct": right, "n": n} for subject, (right, n) in quality.by_subject(rows).items()},
    }


def _entry(docs: Sequence[Payload], reference: Sequence[Payload], floor: float | None) -> dict[str, Any]:
    accuracy: Figure = quality.accuracy(docs)
    pair = quality.paired(docs, reference)
    if pair is None:
        return {"accuracy": plain(accuracy), "paired": None}
    changed = flips(docs, reference, floor)
    return {
        "accuracy": plain(accuracy),
        "paired": {
            "n": pair.n,
            "delta": plain(pair.delta),
            "flips": len(changed),
            "near_ties": None if floor is None else sum(bool(flip.near_tie) for flip in changed),
            "fixed": pair.fixed,
            "broken": pair.broken,
            "p": pair.p,
            "mde": pair.mde,
        },
    }
