"""The work of the generation loop per token is the same at any length of the context, counted, not timed."""

from __future__ import annotations

import sys

import pytest

from harness.backends.base import GenerateRequest
from harness.backends.llama_cpp.draft import LookupDrafter
from harness.backends.llama_cpp.generate import generate_plain, generate_speculative

from .conftest import ToyContext, ToyVocab, toy_logits

COUNTED = 50  # emissions


class FlatContext(ToyContext):
    """An engine whose own work does not depend on its cache: every row is the same."""

    def __init__(self):
        super().__init__(capacity=512, n_ctx=1_000_000)
        self.same = toy_logits(())

    def decode(self, n):
        self.sizes.append(n)

    def row(self, index):
        return self.same


def calls(kind, prompt_tokens, skipped, **settings):
    """Function calls, Python's and C's, while ``COUNTED`` emissions are taken after those skipped."""
    request = GenerateRequest((1, 2, 3) * (prompt_tokens // 3), 10_000, ignore_eos=True, **settings)
    if kind == "plain":
        stream = generate_plain(FlatContext(), ToyVocab(), request)
    else:
        stream = generate_speculative(FlatContext(), ToyVocab(), request, LookupDrafter(3, 4))
    for _ in range(skipped):
        next(stream)
    seen = 0

    def count(frame, event, argument):
        nonlocal seen
        seen += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        for _ in range(COUNTED):
            next(stream)
    finally:
        sys.setprofile(before)
    return seen


GREEDY = [{}, {"margins": True}, {"stop": ("no such text",)}]


@pytest.mark.parametrize(
    ("kind", "settings"),
    # Of sampled speculation the draws decide how much is accepted, so its work is not the same at any two places.
    [*(("plain", s) for s in GREEDY), *(("lookup", s) for s in GREEDY), ("plain", {"temperature": 0.8, "top_k": 4})],
    ids=repr,
)
def test_no_work_of_the_loop_grows_with_the_context(kind, settings):
    near = calls(kind, 30, 20, **settings)
    assert near >= 3 * COUNTED
    assert calls(kind, 30_000, 20, **settings) == near
    assert calls(kind, 30, 1500, **settings) == near
