"""Speed prompts have their exact length and share no beginning; the schedule is fair to every variant."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import InputError
from harness.suites import SUITES, speed

BOS = 1
_WORDS: dict[str, int] = {}


def tokenize(text: str) -> list[int]:
    """One token a word, BOS in front."""
    return [BOS] + [_WORDS.setdefault(piece, len(_WORDS) + 2) for piece in re.findall(r" ?\w+|[^\w]", text)]


def test_exact_lengths_and_unique_beginnings():
    rounds = speed.prompts([16, 64, 300], 20, 1, tokenize)
    assert len(rounds) == 20
    for made in rounds:
        assert {length: len(tokens) for length, tokens in made.items()} == {16: 16, 64: 64, 300: 300}
    every = [tokens for made in rounds for tokens in made.values()]
    assert all(tokens[0] == BOS for tokens in every)
    assert len({tokens[1] for tokens in every}) == len(every) == 60


def test_more_prompts_than_openings_differ_soon_after():
    every = [tokens for made in speed.prompts([8, 12], 100, 1, tokenize) for tokens in made.values()]
    assert len({tokens[1:4] for tokens in every}) == len(every) == 200


def test_seeded():
    assert speed.prompts([32], 3, 7, tokenize) == speed.prompts([32], 3, 7, tokenize)
    assert speed.prompts([32], 3, 8, tokenize) != speed.prompts([32], 3, 7, tokenize)


def test_prompts_do_not_share_their_body():
    first, second = (made[300] for made in speed.prompts([300], 2, 1, tokenize))
    ours, others = ({tokens[i : i + 5] for i in range(296)} for tokens in (first, second))
    assert len(ours & others) < 0.2 * len(ours)


def test_too_short_or_too_many_is_an_input_error():
    with pytest.raises(InputError, match="at least 4"):
        speed.prompts([3], 1, 1, tokenize)
    with pytest.raises(InputError, match="openings"):
        speed.prompts([4], 3, 1, lambda text: [0, 1, 2, 3, 4, 5, 6] if text else [0])


@given(st.integers(1, 9), st.integers(0, 12), st.integers(0, 1000))
def test_rounds_are_palindromes_of_all_variants(n: int, rounds: int, seed: int):
    plan = speed.schedule(n, rounds, seed)
    assert len(plan) == rounds
    for turn in plan:
        assert turn == turn[::-1]
        assert Counter(turn) == dict.fromkeys(range(n), 2)


def test_linear_drift_falls_on_all_alike():
    """Identical variants that slow down steadily: each one's mean place in a round is the same."""
    for turn in speed.schedule(9, 5, 3):
        assert {sum(place for place, variant in enumerate(turn) if variant == v) for v in range(9)} == {17}
    assert len(set(speed.schedule(9, 5, 3))) > 1


def test_suites_are_described():
    assert set(SUITES) == {"mmlu", "long_context", "code_syntax", "speed", "fidelity"}
    assert all("\n" not in text for text in SUITES.values())
