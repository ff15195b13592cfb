"""The page's table of what each suite cost: seconds, items and items a second, by variant."""

from __future__ import annotations

from collections.abc import Sequence

from harness import units
from harness.report.tables import Column, Grid, Row
from harness.report.text import DASH, Cell, Json, chip, plural

_PLURALS = {"stretch": "stretches"}


def grid(given: Sequence[Json], variants: Sequence[Json]) -> Grid | None:
    """Suites as columns; None for a run that did not record it.

    Args:
        given: ``cost`` of results.json.
        variants: Of results.json, in the order of the page.
    """
    suites = list(dict.fromkeys(str(one["suite"]) for one in given))
    if not suites:
        return None
    rows = []
    for variant in variants:
        own = [one for one in given if one["variant"] == variant["name"]]
        cells = tuple(_cell([one for one in own if one["suite"] == suite]) for suite in suites)
        total = [one["seconds"] for one in own if one["seconds"] is not None]
        rows.append(Row(str(variant["name"]), (*cells, _seconds(total)), reference=bool(variant.get("reference"))))
    heads = [Column(suite.replace("_", " "), "s") for suite in suites]
    return Grid("What it cost: wall time, items, items a second", (*heads, Column("in all", "s")), tuple(rows))


def _seconds(found: Sequence[float]) -> Cell:
    return Cell(units.significant(sum(found))) if found else Cell(DASH, title="no time recorded", missing=True)


def _cell(parts: Sequence[Json]) -> Cell:
    if not parts:
        return Cell(DASH, chips=(chip("not_measured"),), missing=True)
    found = [part["seconds"] for part in parts if part["seconds"] is not None]
    if not found and any(part["shared"] for part in parts):
        return Cell(
            DASH, title="another variant's identical scores serve", chips=(chip("shared_scoring"),), missing=True
        )
    plain = _seconds(found)
    return Cell(plain.text, title=plain.title, below=tuple(map(_line, parts)), missing=plain.missing)


def _line(part: Json) -> str:
    unit = part["unit"]
    items = (
        f"{part['items']:,} {_PLURALS[unit]}"
        if unit in _PLURALS and part["items"] != 1
        else plural(part["items"], unit)
    )
    if part["shared"]:
        return f"{part['part']}: shared"
    rate = part["items_per_s"]
    return f"{items}, {units.significant(rate, 2)}/s" if rate else items
