"""Changed answers and the margin that noise can turn, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from harness.metrics.flips import flips


def doc(logprobs: list[float | None], n_tokens: list[int] | None = None, number: int = 0) -> dict[str, Any]:
    finite = None not in logprobs
    pred = logprobs.index(max(logprobs)) if finite else None  # type: ignore[type-var]
    return {
        "subject": "s", "doc_id": number, "gold": 0, "logprobs": logprobs, "n_tokens": n_tokens or [1] * len(logprobs),
        "pred": pred, "correct": None if pred is None else pred == 0, "finite": finite,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("ours", "theirs", "near"),
    [
        ([-2.0, -1.9, -9.0, -9.0], [-1.0, -5.0, -9.0, -9.0], True),  # this side is undecided: 0.1 <= 0.3 sqrt(2)
        ([-5.0, -1.0, -9.0, -9.0], [-1.0, -1.4, -9.0, -9.0], True),  # the other side is: 0.4 <= 0.424
        ([-5.0, -1.0, -9.0, -9.0], [-1.0, -1.5, -9.0, -9.0], False),  # 0.5 > 0.424
    ],
)
def test_the_smaller_margin_is_held_against_the_floor(ours: list[float], theirs: list[float], near: bool):
    (flip,) = flips([doc(ours)], [doc(theirs)], 0.3)
    assert flip.near_tie is near
    assert flip.limit == pytest.approx(0.3 * 2**0.5)
    assert (flip.pred, flip.reference_pred) == (1, 0)


def test_an_answer_of_several_tokens_is_a_sum_whose_noise_grows_with_the_root():
    """Best and second best have 4 + 12 tokens: 0.3 x 4 = 1.2; a token each: 0.42. The third answer's do not count."""
    ours, theirs = [-3.0, -2.0, -9.0], [-2.0, -9.0, -3.5]
    (long,) = flips([doc(ours, [4, 12, 99])], [doc(theirs, [4, 12, 99])], 0.3)
    assert (long.margin, long.reference_margin, long.limit) == (1.0, 1.5, pytest.approx(1.2))
    assert long.near_tie
    assert flips([doc(ours)], [doc(theirs)], 0.3)[0].near_tie is False


def test_the_tokens_are_those_of_the_side_with_the_smaller_margin():
    """The other side's two best are answers 0 and 2, of 1 + 8 tokens."""
    (flip,) = flips([doc([-9.0, -1.0, -8.0], [1, 1, 8])], [doc([-2.0, -9.0, -2.5], [1, 1, 8])], 0.1)
    assert (flip.reference_margin, flip.limit) == (0.5, pytest.approx(0.3))


def test_what_did_not_flip_or_cannot_be_compared_is_left_out():
    same, bad = doc([-1.0, -2.0]), doc([None, -2.0])
    assert flips([same], [same], 0.3) == []
    assert flips([bad], [same], 0.3) == flips([same], [bad], 0.3) == []
    assert flips([doc([-2.0, -1.0], number=1)], [same], 0.3) == []


def test_without_a_floor_the_flips_are_listed_and_not_judged():
    (flip,) = flips([doc([-2.0, -1.0])], [doc([-1.0, -4.0])])
    assert (flip.margin, flip.reference_margin, flip.limit, flip.near_tie) == (1.0, 3.0, None, None)
