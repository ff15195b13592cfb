"""The page's table of code with and without speculation, paired by prompt."""

from __future__ import annotations

from collections.abc import Sequence

from harness.report.tables import Column, Grid, Row
from harness.report.text import DASH, Cell, Json

_LISTED = 8  # partings told in the hover text; the rest is counted


def grid(given: Sequence[Json]) -> Grid | None:
    """The table; None if no speculating variant wrote programs.

    Args:
        given: "code_speculation" of the run's series.
    """
    if not given:
        return None
    heads = (
        Column("with", "%", "programs that parse, of all; those cut by the token cap count as not parsed"),
        Column("without", "%", "the same prompts, the same settings without speculation"),
        Column("difference", "points", "with less without, mean over the prompts, and its 95% interval"),
        Column("parted", "prompts", "prompts on which the two wrote different tokens"),
        Column("first parting", "token", "tokens written alike before the first that differs; median"),
    )
    return Grid("Programs that parse with and without speculation, on the same prompts", heads, tuple(map(_row, given)))


def _row(one: Json) -> Row:
    if not one["n"]:
        return Row(str(one["variant"]), tuple(Cell(DASH, title=str(one["why"]), missing=True) for _ in range(5)))
    shares = tuple(_percent(one[key], one["n"]) for key in ("with", "without", "difference"))
    if not one["parted_of"]:
        return Row(str(one["variant"]), (*shares, *(Cell(DASH, title=str(one["why"]), missing=True) for _ in range(2))))
    listed = "; ".join(f"{at['prompt']} after {at['token']}" for at in one["parted"][:_LISTED])
    more = len(one["parted"]) - _LISTED
    title = (listed or "the same tokens on every prompt") + (f"; and {more} more" if more > 0 else "")
    first = one["first_parting"]
    where = Cell(DASH, title=title, missing=True) if first is None else Cell(f"{first:g}", title=title)
    return Row(str(one["variant"]), (*shares, Cell(f"{len(one['parted'])}/{one['parted_of']}", title=title), where))


def _percent(figure: Json, n: int) -> Cell:
    value, low, high = (100 * float(figure[key]) for key in ("value", "low", "high"))
    spread = f"[{low:.0f}, {high:.0f}]"
    return Cell(f"{round(value)}", spread, f"n = {n} prompts")
