"""One context that grows from depth to depth, on the toy engine."""

from __future__ import annotations

import numpy as np
import pytest

from harness.backends.base import GenerateRequest
from harness.backends.llama_cpp.deepen import check, deepen
from harness.backends.llama_cpp.generate import generate_plain
from harness.errors import CellError, InputError

from .conftest import TOY_VOCAB, ToyContext, ToyVocab

TEXT = tuple(np.random.default_rng(3).integers(0, TOY_VOCAB, 45).tolist())


def generated(depth: int, n: int) -> list[int]:
    *emissions, _ = generate_plain(ToyContext(), ToyVocab(), GenerateRequest(TEXT[:depth], n, ignore_eos=True))
    return [token for emission in emissions for token in emission.tokens]


@pytest.mark.parametrize("n", [1, 5])
def test_each_depth_gives_what_a_fresh_generation_from_there_gives(n):
    """Nothing that was generated before is left in the cache, and nothing of the text is read twice."""
    context = ToyContext()
    found = [emission.tokens for emission in deepen(context, TEXT, (10, 30, 45), n)]
    assert all(len(tokens) == 1 for tokens in found)
    flat = [tokens[0] for tokens in found]
    assert [flat[i : i + n] for i in range(0, 3 * n, n)] == [generated(depth, n) for depth in (10, 30, 45)]
    assert len(context.evaluated) == 45 + 3 * (n - 1)


def test_nothing_is_read_beyond_a_depth_before_its_tokens_are_out():
    """The caller stamps what it gets: tokens must come as they are, between the readings."""
    context, seen = ToyContext(), []
    for _ in deepen(context, TEXT, (10, 30), 3):
        seen.append(len(context.evaluated))
    assert seen == [10, 11, 12, 32, 33, 34]


def test_nonfinite_logits_end_the_pass_with_their_depth():
    def poisoned(history):
        return np.full(TOY_VOCAB, np.nan if len(history) > 20 else 0.0, np.float32)

    with pytest.raises(CellError, match="at depth 30"):
        list(deepen(ToyContext(poisoned), TEXT, (10, 30), 2))


@pytest.mark.parametrize(
    ("depths", "n", "said"),
    [((30, 10), 1, "ascending"), ((10, 10), 1, "ascending"), ((46,), 1, "within the text"), ((), 1, "ascending"),
     ((10,), 0, "at least 1 token"), ((0,), 1, "ascending"), ((45,), 20, "= 65; the context holds 64")],
)  # fmt: skip
def test_depths_that_do_not_exist_are_refused(depths, n, said):
    with pytest.raises(InputError, match=said):
        check(TEXT, depths, n, 64)
