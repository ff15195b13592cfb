"""Greedy tokens at growing depths of one context. Stamps nothing: it yields as soon as a token is chosen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.backends.base import Emission
from harness.backends.llama_cpp.generate import read
from harness.backends.llama_cpp.library import Context
from harness.backends.llama_cpp.speculate import NonFinite, greedy
from harness.errors import CellError, InputError


def check(tokens: Sequence[int], depths: Sequence[int], n_tokens: int, n_ctx: int) -> None:
    """Raise InputError for depths that this text or this context does not have."""
    if n_tokens < 1 or not depths or list(depths) != sorted({*depths}) or depths[0] < 1 or depths[-1] > len(tokens):
        raise InputError(
            f"depths {list(depths)} of {len(tokens)} tokens, {n_tokens} generated at each; "
            "expected ascending depths within the text, and at least 1 token"
        )
    if depths[-1] + n_tokens > n_ctx:
        raise InputError(
            f"depth {depths[-1]} + {n_tokens} to generate = {depths[-1] + n_tokens}; the context holds {n_ctx}; "
            "raise ctx or lower the depth"
        )


def deepen(context: Context, tokens: Sequence[int], depths: Sequence[int], n_tokens: int) -> Iterator[Emission]:
    """Grow from an empty cache to each depth, emit ``n_tokens`` there, cut them off and grow on.

    The cache must be one that can be cut. Raises CellError where the logits are not finite.
    """
    context.clear()
    begin = 0
    for depth in depths:
        try:
            token = greedy(read(context, tokens[begin:depth], begin))
            for at in range(depth, depth + n_tokens):
                yield Emission([token])
                if at + 1 == depth + n_tokens:
                    break
                context.put(0, [token], at)
                context.want[0] = 1
                context.decode(1)
                token = greedy(context.row(0))
        except NonFinite as error:
            raise CellError(f"NaN or infinite logits at depth {depth}") from error
        context.cut(0, depth)
        begin = depth
