"""The lm-eval tasks of a run: every metric of every task, by variant, and against the reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from harness.metrics import tasks
from harness.metrics.quality import at_chance
from harness.record import Figure
from harness.results.model import Payload, RunData, VariantRun

PARTS = ("scored", "written")


def by_task(run: RunData) -> list[dict[str, Any]]:
    """One entry for each task in the order they were run: what it is, and its metrics with figures by variant.

    ``delta`` compares with the reference, paired by document: a difference, or a ratio where ``relative``.
    ``cut`` counts documents whose prompt lost its beginning.
    """
    named: dict[str, tuple[str, Payload]] = {}
    for variant in run.variants:
        for part in PARTS:
            for row in variant.rows("lm_eval", part):
                if row["row"] == "task":
                    named.setdefault(row["task"], (part, row))
    return [_entry(run, part, totals) for part, totals in named.values()]


def _entry(run: RunData, part: str, totals: Payload) -> dict[str, Any]:
    main = tasks.main_metric([metric["key"] for metric in totals["metrics"]])
    chance = 1 / totals["options"] if totals["options"] else None
    metrics = [_metric(run, part, totals, metric) for metric in totals["metrics"]]
    base = next((m["variants"].get(run.reference.name) for m in metrics if m["key"] == main), None)
    dull = chance is not None and base is not None and main is not None and main.startswith("acc")
    return {
        **{key: totals[key] for key in ("task", "kind", "version", "shots", "n", "of")},
        "main": main,
        "chance": chance,
        "at_chance": dull and base is not None and at_chance(_figure(base), chance or 0.0),
        "metrics": metrics,
        "cut": {v.name: n for v in run.variants if (n := _cut(v, part, totals["task"]))},
    }


def _metric(run: RunData, part: str, totals: Payload, metric: Payload) -> dict[str, Any]:
    base = _judged(run.reference, part, totals["task"])
    entry: dict[str, Any] = {
        "key": metric["key"],
        "better": {True: "higher", False: "lower"}.get(metric["higher_is_better"], "none"),
        "variants": {},
    }
    for variant in run.variants:
        own = _totals(variant, part, totals["task"], metric["key"])
        if own is None:
            continue
        judged = _judged(variant, part, totals["task"])
        found = {**_json(tasks.figure(judged, own)), "delta": None}
        shared = variant.shared("lm_eval", part)
        if shared:
            found["reasons"] = ["shared_scoring"]
        if not variant.reference and (compared := tasks.compare(judged, base, own)) is not None:
            plain = asdict(compared)
            found["delta"] = {
                **_json(compared.delta),
                **{key: plain[key] for key in ("relative", "fixed", "broken", "p")},
            }
        entry["variants"][variant.name] = found
    return entry


def _json(figure: Figure) -> dict[str, Any]:
    return {
        "value": figure.value, "low": figure.low, "high": figure.high, "n": figure.n, "reasons": list(figure.reasons),
    }  # fmt: skip


def _figure(entry: Payload) -> Figure:
    return Figure(entry["value"], entry["low"], entry["high"], entry["n"], tuple(entry["reasons"]))


def _judged(variant: VariantRun, part: str, task: str) -> Sequence[Payload]:
    return [row for row in variant.rows("lm_eval", part) if row["row"] == "judged" and row["task"] == task]


def _totals(variant: VariantRun, part: str, task: str, key: str) -> Payload | None:
    for row in variant.rows("lm_eval", part):
        if row["row"] == "task" and row["task"] == task:
            return next((metric for metric in row["metrics"] if metric["key"] == key), None)
    return None


def _cut(variant: VariantRun, part: str, task: str) -> int:
    rows = (row for row in variant.rows("lm_eval", part) if row["row"] == "answer" and row["task"] == task)
    return sum(any(one.get("cut") for one in row["responses"]) for row in rows)
