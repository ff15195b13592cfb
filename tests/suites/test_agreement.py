"""Greedy agreement by length on hand-worked rows."""

from __future__ import annotations

from math import sqrt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.suites.agreement import by_length, partings


def row(prompt: str, tokens: list[int], margin: float = 0.5) -> dict[str, Any]:
    return {"prompt": prompt, "tokens": tokens, "margins": [margin] * len(tokens)}


REFERENCE = [row("a", [1] * 64, 0.1), row("b", [1] * 64, 0.3), row("c", [1] * 10), row("d", [1] * 64, 2.0)]
OURS = [
    row("a", [1] * 16 + [2] * 48),
    row("b", [1] * 40 + [2]),
    row("c", [1] * 10),  # ended by itself, as the reference did
    row("d", [1] * 5 + [2] * 59),
    row("only ours", [1] * 64),
]


def test_shares_by_hand():
    found = [(p["tokens"], p["value"], p["n"]) for p in by_length(OURS, REFERENCE)]
    assert found == [(16, 0.75, 4), (32, 0.5, 4), (64, 0.25, 4)]  # a, b, c; b, c; c
    last = by_length(OURS, REFERENCE)[-1]
    z = 1.959963984540054  # Wilson for 1 of 4
    half = z * sqrt(0.25 * 0.75 / 4 + z * z / 64) / (1 + z * z / 4)
    assert last["high"] == pytest.approx((0.25 + z * z / 8) / (1 + z * z / 4) + half)


def test_partings_by_hand():
    """Margins .1, .3 and 2 where a, b and d part; noise turns .1 x sqrt(2) = .141, so one near tie."""
    found = partings(OURS, REFERENCE, 0.1)
    assert found == {
        "n": 4, "equal": 1, "first": 5, "median_margin": 0.3, "near_ties": 1, "without_margin": 0,
        "limit": pytest.approx(0.1 * sqrt(2)),
    }  # fmt: skip
    unknown = partings(OURS, REFERENCE, None)
    assert unknown is not None and unknown["near_ties"] is None and unknown["limit"] is None


def test_a_parting_after_the_references_end_has_no_margin():
    found = partings([row("a", [1, 1, 1])], [row("a", [1, 1])], 0.1)
    assert found is not None and (found["median_margin"], found["without_margin"], found["near_ties"]) == (None, 1, 0)


def test_no_prompt_in_common_gives_nothing():
    assert by_length([], REFERENCE) == [] and partings([row("x", [1])], REFERENCE, 0.1) is None


TEXTS = st.lists(st.integers(0, 1), min_size=1, max_size=70)


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=6))
def test_shares_only_fall_and_a_reference_agrees_with_itself(pairs: list[tuple[list[int], list[int]]]):
    theirs = [row(str(i), b) for i, (_, b) in enumerate(pairs)]
    shares = [p["value"] for p in by_length([row(str(i), a) for i, (a, _) in enumerate(pairs)], theirs)]
    assert shares == sorted(shares, reverse=True)
    assert all(p["value"] == 1.0 for p in by_length(theirs, theirs))
