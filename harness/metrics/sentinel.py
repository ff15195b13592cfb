"""What the sentinel's readings say of each round of trials: whether the machine changed its speed meanwhile. Pure.

A reading is a stored payload: ``{"block", "end": "before" | "after", "replaces", "bandwidth": bytes/s or None,
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
# The repeat of round b is round AGAIN + b.
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
    """Rounds whose trials do not count: of a round and its repeat, the one over which the machine moved more.

    A repeat that was broken off does not count.
    """
    changes = by_block(rows)
    dropped = set()
    for again, block in {row["block"]: row["replaces"] for row in rows if row["replaces"] is not None}.items():
        first, second = changes.get(block), changes.get(again)
        dropped.add(block if second is not None and (first is None or second < first) else again)
    return dropped


def in_order(rows: Sequence[Reading]) -> list[Reading]:
    """Readings in the order of the schedule: before and after each round, then before and after its repeat.

    Not by the clock, which starts anew where a run was resumed after a restart.
    """

    def place(row: Reading) -> tuple[int, bool, bool]:
        again = row["replaces"] is not None
        return int(row["replaces"] if again else row["block"]), again, bool(row["end"] == "after")

    return sorted(rows, key=place)


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
