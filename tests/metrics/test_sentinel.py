"""When a round counts as moved, and which of a round and its repeat counts."""

from __future__ import annotations

import math
from typing import Any

import pytest

from harness.metrics.sentinel import by_block, moved, movement, replaced


def reading(
    block: int, end: str, gap_s: float | None = 0.01, bandwidth: float | None = 1e9, by: str = "a", anew: bool = False
) -> dict[str, Any]:
    return {
        "block": block,
        "end": end,
        "replaces": block % 10_000 if block >= 10_000 else None,
        "anew": anew,
        "gap_s": gap_s,
        "bandwidth": bandwidth,
        "by": by,
    }


def pair(block: int, change: float, anew: bool = False) -> list[dict[str, Any]]:
    """A round over which the decode gap grew by this factor."""
    return [reading(block, "before", anew=anew), reading(block, "after", 0.01 * change, anew=anew)]


def test_movement_is_the_larger_change_either_way() -> None:
    before, after = reading(0, "before", 0.010, 1e9), reading(0, "after", 0.011, 0.8e9)
    assert movement(before, after) == pytest.approx(math.log(1.25))
    assert movement(after, before) == pytest.approx(math.log(1.25))


@pytest.mark.parametrize(("change", "is_moved"), [(1.04, False), (1.06, True), (1 / 1.04, False), (1 / 1.06, True)])
def test_five_percent_either_way(change: float, is_moved: bool) -> None:
    assert moved(*pair(0, change)) is is_moved


def test_gaps_of_two_variants_are_not_compared() -> None:
    before, after = reading(0, "before", 0.010), reading(0, "after", 0.020, by="b")
    assert movement(before, after) == 0.0
    assert movement(reading(0, "before", None, None), after) is None
    assert not moved(reading(0, "before", None, None), after)


def test_the_calmer_of_a_round_and_its_repeat_counts() -> None:
    rows = [*pair(0, 1.2), *pair(10_000, 1.02), *pair(1, 1.1), *pair(10_001, 1.3), *pair(2, 1.0)]
    assert by_block(rows)[10_001] == pytest.approx(math.log(1.3))
    assert replaced(rows) == {0, 10_001}


def test_a_repeat_that_was_broken_off_does_not_count() -> None:
    rows = [*pair(0, 1.2), reading(10_000, "before")]
    assert replaced(rows) == {10_000}
    assert by_block(rows).keys() == {0}


def test_of_several_takes_one_counts_and_none_from_before_one_that_was_run_anew() -> None:
    first = [reading(0, "before"), *pair(10_000, 1.2, anew=True), *pair(20_000, 1.1)]
    assert replaced(first) == {0, 10_000}
    lacking = [*pair(0, 1.0), *pair(10_000, 1.3, anew=True)]
    assert replaced(lacking) == {0}
    assert replaced([*lacking, *pair(20_000, 1.4)]) == {0, 20_000}
    assert replaced([*pair(0, 1.0), reading(10_000, "before", anew=True)]) == {10_000}  # still being run


def test_where_nothing_can_be_read_the_first_take_counts_unless_another_was_run_anew() -> None:
    def blind(block: int, anew: bool = False) -> list[dict[str, Any]]:
        return [reading(block, end, None, None, anew=anew) for end in ("before", "after")]

    assert replaced([*blind(0), *blind(10_000)]) == {10_000}
    assert replaced([*blind(0)[:1], *blind(10_000, anew=True)]) == {0}
