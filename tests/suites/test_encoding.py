"""Joint encoding of context and continuation, against a toy tokenizer that merges across the join."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.suites.encoding import encode_pair, windows

WORDS = {"Answer": 1, ": A": 2, ":": 3, " B": 4, " A": 5, "x": 6, "y": 7, " ": 8}
WORDS |= {letter: 10 + n for n, letter in enumerate("ABnswer")}
BOS = 0


def toy(text: str) -> list[int]:
    """Longest match first; "Answer: A" -> [Answer][: A], "Answer: B" -> [Answer][:][ B]."""
    ids, at = [], 0
    while at < len(text):
        word = max((w for w in WORDS if text.startswith(w, at)), key=len)
        ids.append(WORDS[word])
        at += len(word)
    return ids


def with_bos(text: str) -> list[int]:
    return [BOS, *toy(text)]


def test_a_merge_across_the_join_never_leaves_the_continuation_empty() -> None:
    assert encode_pair(toy, "Answer:", " A") == ([1], [2])
    assert encode_pair(toy, "Answer:", " B") == ([1, 3], [4])
    # The wrong winner: a continuation sliced at len(encode(context)) is empty for A and would score 0.
    assert toy("Answer: A")[len(toy("Answer:")) :] == []


def test_with_the_right_encoding_b_wins_and_a_is_strictly_negative() -> None:
    logprob = {(1, 2): -1.5, (3, 4): -0.2, (3, 5): -2.0}
    scores = {}
    for option in (" A", " B"):
        head, tail = encode_pair(toy, "Answer:", option)
        scores[option] = sum(logprob[(a, b)] for a, b in zip([head[-1], *tail], tail, strict=False))
    assert scores[" A"] < 0
    assert max(scores, key=scores.__getitem__) == " B"


def test_white_space_at_the_end_of_the_context_goes_to_the_continuation() -> None:
    assert encode_pair(toy, "Answer: ", "B") == ([1, 3], [4])


def test_an_empty_context_is_bos_or_the_prefix() -> None:
    assert encode_pair(with_bos, "", "xy") == ([0], [6, 7])
    assert encode_pair(toy, "", "xy", prefix=9) == ([9], [6, 7])


def test_nothing_to_score_is_an_error() -> None:
    with pytest.raises(ValueError, match="nothing to score"):
        encode_pair(toy, "", "xy")
    with pytest.raises(ValueError, match="nothing to score"):
        encode_pair(toy, "", "")


@given(
    st.lists(st.sampled_from(sorted(WORDS)), min_size=1, max_size=8),
    st.lists(st.sampled_from(sorted(WORDS)), min_size=1, max_size=8),
)
def test_both_parts_are_never_empty_and_join_to_the_whole(left: list[str], right: list[str]) -> None:
    context, continuation = "".join(left), "".join(right)
    if not (context.strip() and (context + continuation).strip()):
        return
    head, tail = encode_pair(with_bos, context, continuation)
    assert head and tail
    assert head + tail == with_bos(context + continuation)
    assert head[0] == BOS and BOS not in tail


@pytest.mark.parametrize(("n", "room"), [(1, 2), (5, 2), (7, 7), (8, 7), (30, 7), (100, 33)])
def test_windows_score_every_token_once_in_full_windows(n: int, room: int) -> None:
    found = list(windows(range(n + 1), room))
    assert [token for _, continuation in found for token in continuation] == list(range(1, n + 1))
    for context, continuation in found:
        assert context and len(context) + len(continuation) <= room
        assert [*context, *continuation] == list(range(context[0], continuation[-1] + 1))
    if n + 1 > room:
        assert all(len(context) + len(continuation) == room for context, continuation in found)
