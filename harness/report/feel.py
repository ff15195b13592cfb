"""The section on what a reader feels: one row per variant, in words and waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness.metrics.catalog import METRICS
from harness.report import tables
from harness.report.tables import Grid, Row, Wording, metric
from harness.report.text import DASH, Cell, Json, cell, common_codes, quantity
from harness.units import quantity as of_unit
from harness.units import significant

_KEYS = ("completion_s", "completion_share", "agent5_s", "agent10_s", "reading_wait_s")
_WORST = {"agent5_s": "agent5_p95_s", "agent10_s": "agent10_p95_s", "reading_wait_s": "reading_wait_p95_s"}
_BANDS = "sluggish below 50 tokens/s, passable to 100, fluent to 150, brisk to 300, instant from 300"
_FEW = "few: less than 20 agents or requests stand behind that p95"


@dataclass(frozen=True, slots=True)
class Feel:
    """The table, what its words mean, what it holds under, and how one fares who only skims."""

    grid: Grid
    bands: str
    conditions: str
    skimming: str


def section(results: Json, ordered: Sequence[Json]) -> Feel | None:
    """The section, or None where nothing was timed or the run is older than these figures.

    Args:
        results: The content of results.json.
        ordered: Variants in the page's order.
    """
    given: Json = results.get("feel") or {}
    felt: Json = given.get("variants") or {}
    timed = [v for v in ordered if v["name"] in felt]
    if not timed:
        return None
    columns = (
        replace(tables.column("decode_tps", timed, Wording()), label="it feels", unit="by decode speed", title=_BANDS),
        *(replace(tables.column(key, timed, Wording()), label=_heading(key, given)) for key in _KEYS),
    )
    rows = tuple(_row(v, felt[v["name"]], timed) for v in timed)
    grid = Grid("What a reader feels of each variant", columns, rows)
    return Feel(grid, _BANDS, _conditions(given, timed, rows), _pace(given, timed))


def _heading(key: str, given: Json) -> str:
    tokens = given.get("completion_tokens")
    return {
        "completion_s": f"first {tokens} tokens",
        "completion_share": f"there within {of_unit(given.get('budget_s'), 's').replace('.00', '')}",
        "agent5_s": "5 calls in a row",
        "agent10_s": "10 calls in a row",
        "reading_wait_s": "reader's wait",
    }[key]


def _row(variant: Json, felt: Json, timed: Sequence[Json]) -> Row:
    cells = [_band(variant, felt, common_codes(metric(v, "decode_tps") for v in timed))]
    for key in _KEYS:
        hoisted = common_codes(metric(v, key) for v in timed)
        own = cell(key, metric(variant, key), tables.scale(key, timed), hoisted)
        cells.append(replace(own, below=_below(key, felt)) if not own.missing else own)
    return Row(variant["name"], tuple(cells), reference=bool(variant.get("reference")))


def _band(variant: Json, felt: Json, hoisted: Sequence[str]) -> Cell:
    own = cell("decode_tps", metric(variant, "decode_tps"), tables.scale("decode_tps", [variant]), hoisted)
    if not felt.get("band"):
        return own
    beside = f"{own.text} {own.spread}" if own.spread.startswith("±") else own.spread or own.text
    return Cell(felt["band"], beside, f"{felt['band']}; {own.title}", own.chips, muted=own.muted)


def _below(key: str, felt: Json) -> tuple[str, ...]:
    """What stands under a figure: its 95th percentile, or the share by prompt length where lengths differ in it."""
    if key == "completion_share":
        return tuple(_by_prompt(felt.get("by_prompt") or ()))
    worst = (felt.get("figures") or {}).get(_WORST.get(key, "")) or {}
    if worst.get("value") is None or worst.get("low") is None:
        return ()
    few = " (few)" if "small_n" in (worst.get("reasons") or ()) else ""
    return (f"p95 {quantity(key, worst['value'])}{few}",)


def _by_prompt(rows: Sequence[Json]) -> list[str]:
    known = [(row["prompt_tokens"], row["completion_share"]["value"]) for row in rows]
    if len({share for _, share in known}) < 2:
        return []
    return [f"after {length:,}: {DASH if share is None else f'{share:.0%}'}" for length, share in known]


def _conditions(given: Json, timed: Sequence[Json], rows: Sequence[Row]) -> str:
    """What the table holds under, in one line."""
    found: dict[str, Any] = next((c for v in timed if (c := (metric(v, "agent5_s") or {}).get("conditions"))), {})
    lengths = [f"{n:,}" for n in found.get("prompt_tokens") or ()]
    outputs = [f"{n:,}" for n in found.get("output_tokens") or ()]
    asked = [f"prompts of {' · '.join(lengths)} tokens"] if lengths else []
    asked += [f"answers of {' to '.join(dict.fromkeys(outputs))}"] if outputs else []
    readers = given.get("readers_tps") or {}
    asked.append("a call is one of these requests, and calls in a row followed each other in the run")
    if readers.get("reading"):
        asked.append(f"the reader takes {significant(readers['reading'], 2)} tokens/s, about 250 words a minute")
    if any("(few)" in line for row in rows for c in row.cells for line in c.below):
        asked.append(_FEW)
    text = "; ".join(asked)
    return f"{text[:1].upper()}{text[1:]}."


def _pace(given: Json, timed: Sequence[Json]) -> str:
    """How long one who skims waits for each variant, in a sentence; empty where none was timed."""
    tps = (given.get("readers_tps") or {}).get("skimming")
    waits = {v["name"]: given["variants"][v["name"]]["figures"]["skimming_wait_s"] for v in timed}
    known = {name: wait["value"] for name, wait in waits.items() if wait["value"] is not None}
    if not known or tps is None:
        return ""
    slow = {name: value for name, value in known.items() if value > METRICS["reading_wait_s"].tolerance}
    if not slow:
        return f"One who skims, at {tps:g} tokens/s, is never kept waiting."
    listed = ", ".join(f"{name} {quantity('reading_wait_s', value)}" for name, value in slow.items())
    return f"One who skims, at {tps:g} tokens/s, waits: {listed}."
