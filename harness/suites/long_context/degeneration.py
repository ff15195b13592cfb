"""Repetition in a text the model wrote itself. Knows tokens only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

WINDOW = 500


@dataclass(frozen=True, slots=True)
class WindowScore:
    """Repetition within one window.

    Attributes:
        seq_rep_4: ``1 - distinct 4-grams / 4-grams``; 0 means no repetition.
        distinct_1, distinct_2: Distinct n-grams / n-grams.
        n_tokens: Tokens in the window.
    """

    seq_rep_4: float
    distinct_1: float
    distinct_2: float
    n_tokens: int


def distinct(tokens: Sequence[int], n: int) -> float:
    """Distinct n-grams / n-grams.

    Raises:
        ValueError: If there are fewer than ``n`` tokens.

    Source: Li et al., "A Diversity-Promoting Objective Function for Neural Conversation Models", 2016 (distinct-n).

    >>> distinct([1, 2, 1, 2, 1], 2)
    0.5
    """
    total = len(tokens) - n + 1
    if total < 1:
        raise ValueError(f"distinct: expected at least {n} tokens, found {len(tokens)}")
    return len({tuple(tokens[i : i + n]) for i in range(total)}) / total


def window_scores(tokens: Sequence[int], window: int = WINDOW) -> tuple[WindowScore, ...]:
    """Scores of consecutive windows; a last piece shorter than half a window is left out unless it is the only one.

    A text of fewer than 4 tokens has no 4-gram and gives no window.

    Source: Welleck et al., "Neural Text Generation With Unlikelihood Training", 2020 (seq-rep-n).

    >>> round(window_scores([7] * 500)[0].seq_rep_4, 3)
    0.998
    """
    pieces = [tokens[i : i + window] for i in range(0, len(tokens), window)]
    kept = [piece for i, piece in enumerate(pieces) if i == 0 or len(piece) * 2 >= window]
    return tuple(
        WindowScore(1 - distinct(piece, 4), distinct(piece, 1), distinct(piece, 2), len(piece))
        for piece in kept
        if len(piece) >= 4
    )
