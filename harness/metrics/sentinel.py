"""What the sentinel's readings say of each round of trials: whether the machine changed its speed meanwhile. Pure.

A reading is a stored payload: ``{"block", "end": "before" | "after", "replaces", "anew", "bandwidth": bytes/s or None,
"gap_s": seconds or None, "by", ...}``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

Reading = Mapping[str, Any]
# The cell that holds the readings.
CELL = "speed-blocks"
# Take k of round b is block b + k AGAIN.
AGAIN = 10_000
# Change of the machine's own speed over a round above which the round is run again.
LIMIT = 0.05


def movement(before: Reading, after: Reading) -> float | None:
    """How far the machine's speed moved: the larger ``|ln(after / before)|`` of bandwidth and decode gap.

    None where neither was read at both ends, or another variant made the second reading's gap.

    >>> round(movement({"bandwidth": 100.0, "gap_s": None}, {"bandwidth": 105.0, "gap_s": None}), 4)
    0.0488
    """
    keys = ("bandwidth", "gap_s") if before.get("by") == after.get("by") else ("bandwidth",)
    pairs = [(before.get(key), after.get(key)) for key in keys]
    changes = [abs(math.log(b / a)) for a, b in pairs if a and b]
    return max(changes) if changes else None


def moved(before: Reading, after: Reading) -> bool:
    """Whether a round's sentinel moved by more than 5%."""
    change = movement(before, after)
    return change is not None and change > LIMIT


def by_block(rows: Sequence[Reading]) -> dict[int, float | None]:
    """Movement over each round that has a reading at both ends, by its number."""
    ends = {(row["block"], row["end"]): row for row in rows}
    blocks = sorted({row["block"] for row in rows})
    return {
        block: movement(ends[block, "before"], ends[block, "after"])
        for block in blocks
        if (block, "before") in ends and (block, "after") in ends
    }


def replaced(rows: Sequence[Reading]) -> set[int]:
    """Blocks whose trials do not count: of all takes of a round, one counts, that over which the machine moved least.

    A take that was broken off does not count, nor one from before a take that was run anew.
    """
    changes = by_block(rows)
    takes: dict[int, list[Reading]] = {}
    for row in in_order(rows):
        if row["end"] == "before":
            takes.setdefault(round_of(row), []).append(row)
    dropped = set()
    for own in takes.values():
        ended = [row for row in own if row["block"] in changes]
        start = max((place for place, row in enumerate(ended) if row.get("anew")), default=0)
        best = min(ended[start:] or own[:1], key=lambda row: _or_most(changes.get(row["block"])))
        dropped |= {row["block"] for row in own if row is not best}
    return dropped


def round_of(row: Reading) -> int:
    """Number of the round that a reading's block is a take of."""
    return int(row["block"] if row["replaces"] is None else row["replaces"])


def _or_most(change: float | None) -> float:
    return math.inf if change is None else change


def in_order(rows: Sequence[Reading]) -> list[Reading]:
    """Readings in the order of the schedule: before and after each take of a round, then those of the next round.

    Not by the clock, which starts anew where a run was resumed after a restart.
    """
    return sorted(rows, key=lambda row: (round_of(row), row["block"], row["end"] == "after"))


def speeds(rows: Sequence[Reading]) -> list[dict[str, float | None]]:
    """``{"bandwidth", "decode"}`` of each reading over the medians of all: 1 is as usual, less is slower.

    Decode speed is 1 / gap, over the median of the readings by the same variant. None where a reading has none.
    """
    usual = _median_by([("", row["bandwidth"]) for row in rows])
    gaps = _median_by([(row["by"], row["gap_s"]) for row in rows])
    return [
        {
            "bandwidth": row["bandwidth"] / usual[""] if row["bandwidth"] else None,
            "decode": gaps[row["by"]] / row["gap_s"] if row["gap_s"] else None,
        }
        for row in rows
    ]


def _median_by(pairs: Sequence[tuple[str, float | None]]) -> dict[str, float]:
    names = {name for name, value in pairs if value}
    return {name: median([value for other, value in pairs if value and other == name]) for name in names}
