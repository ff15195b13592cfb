"""Greedy agreement by length: a chart of texts still equal to the reference's, and a table of where they part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.report import figures
from harness.report.figures import About, Figure
from harness.report.look import Look
from harness.report.tables import Column, Grid, Row
from harness.report.text import DASH, Cell, Json
from harness.units import significant

_COLUMNS = (
    Column("equal to the end", "texts", "Texts that never leave the reference's, of all prompts"),
    Column("earliest parting", "tokens", "Tokens that agree before the first that differs, where it comes first"),
    Column("margin there, median", "nats", "How far the reference put its own token ahead of its second best"),
    Column("near ties", "of partings", "Partings where noise alone can swap the reference's two best tokens"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Agreement:
    """The section's chart and table."""

    chart: Figure | None
    table: Grid


def section(given: Mapping[str, Json], order: Sequence[str], look: Mapping[str, Look]) -> Agreement | None:
    """The part on greedy texts; None where no variant was compared.

    Args:
        given: ``greedy_by_length`` of the run's series.
        order: Variants in the page's order.
        look: How each variant looks.
    """
    kept = {name: given[name] for name in order if name in given}
    if not kept:
        return None
    about = About(
        "fig-greedy", "Texts still equal to the reference's", "Share of greedy texts, by tokens written.",
        "top1_agreement", "texts equal",
    )  # fmt: skip
    chart = figures.lines(about, "tokens", {name: found["points"] for name, found in kept.items()}, look)
    rows = tuple(Row(name, _cells(found["partings"])) for name, found in kept.items())
    return Agreement(chart, Grid("Where greedy texts leave the reference's", _COLUMNS, rows))


def _cells(found: Json) -> tuple[Cell, ...]:
    parted = found["n"] - found["equal"]
    first, margin, ties, limit = (found[key] for key in ("first", "median_margin", "near_ties", "limit"))
    none = "no text parts" if parted == 0 else ""
    ended = f"; in {found['without_margin']} the reference's text had ended" if found["without_margin"] else ""
    counted = f"n = {parted} partings{ended}"
    noise = f"{counted}; noise can turn {significant(limit, 2)} nats" if limit is not None else ""
    return (
        Cell(f"{found['equal']}/{found['n']}", title=f"n = {found['n']} prompts"),
        _cell(None if first is None else f"{first:,}", counted, none),
        _cell(None if margin is None else significant(margin, 2), counted, none or "the reference's texts had ended"),
        _cell(
            f"{ties}/{parted}" if ties is not None and parted else None,
            noise,
            none or "the reference's noise floor was not measured",
        ),
    )


def _cell(text: str | None, title: str, why: str) -> Cell:
    return Cell(DASH, title=why, missing=True) if text is None else Cell(text, title=title)
