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
    lengths = [16, 64, 300] * 20
    made = speed.prompts(lengths, 1, tokenize)
    assert [len(tokens) for tokens in made] == lengths
    assert all(tokens[0] == BOS for tokens in made)
    assert len({tokens[1] for tokens in made}) == 60


def test_more_prompts_than_openings_differ_soon_after():
    made = speed.prompts([8, 12] * 100, 1, tokenize)
    assert len({tokens[1:4] for tokens in made}) == 200


def test_there_are_openings_for_the_longest_preset():
    """Two turns a round and as many again for rounds that are repeated."""
    assert len(speed.prompts([8] * 480, 1, tokenize)) == 480


def test_a_tokenizer_that_splits_finely_has_enough_openings_too():
    """Letters as tokens: the first three of a sentence are soon used up."""
    made = speed.prompts([24] * 480, 1, lambda text: [BOS, *text.encode()])
    assert len(set(made)) == 480


def test_seeded():
    assert speed.prompts([32] * 3, 7, tokenize) == speed.prompts([32] * 3, 7, tokenize)
    assert speed.prompts([32] * 3, 8, tokenize) != speed.prompts([32] * 3, 7, tokenize)


def test_prompts_do_not_share_their_body():
    first, second = speed.prompts([300, 300], 1, tokenize)
    ours, others = ({tokens[i : i + 5] for i in range(296)} for tokens in (first, second))
    assert len(ours & others) < 0.2 * len(ours)


def test_too_short_or_too_many_is_an_input_error():
    with pytest.raises(InputError, match="at least 4"):
        speed.prompts([3], 1, tokenize)
    with pytest.raises(InputError, match="openings"):
        speed.prompts([4] * 3, 1, lambda text: [0, 1, 2, 3, 4, 5, 6] if text else [0])


@given(st.integers(1, 9), st.integers(0, 12), st.integers(0, 1000))
def test_rounds_are_palindromes_of_all_variants(n: int, number: int, seed: int):
    names = [f"v{i}" for i in range(n)]
    turn = speed.palindrome(names, seed, number)
    assert turn == turn[::-1] == speed.palindrome(names, seed, number)
    assert Counter(turn) == dict.fromkeys(names, 2)


def test_linear_drift_falls_on_all_alike():
    """Identical variants that slow down steadily: each one's mean place in a round is the same."""
    turns = [speed.palindrome("abcdefghi", 3, number) for number in range(5)]
    for turn in turns:
        assert {sum(place for place, variant in enumerate(turn) if variant == v) for v in "abcdefghi"} == {17}
    assert len(set(turns)) > 1


def test_suites_are_described():
    assert set(SUITES) == {"mmlu", "lm_eval", "long_context", "code_syntax", "speed", "fidelity"}
    assert all("\n" not in text for text in SUITES.values())
