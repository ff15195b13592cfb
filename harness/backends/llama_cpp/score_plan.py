"""What is scored in which order: requests become groups that share a context. Knows no engine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from harness.backends.base import ScoreRequest
from harness.errors import InputError

Tokens = npt.NDArray[np.int32]
# At most one token in so many is evaluated twice for the sake of a larger batch.
LITTLE = 8
# A scoring context grows by this many cells, so that it isn't made anew for every longer request.
CELLS = 1024


@dataclass(slots=True)
class Sum:
    """Running log-likelihood of one continuation, wanted by the requests ``indices``."""

    continuation: tuple[int, ...]
    indices: list[int]
    logprob: float = 0.0
    greedy: bool = True
    left: int = 0

    def add(self, value: float, is_best: bool) -> None:
        """Take in one token."""
        self.logprob += value
        self.greedy &= is_best
        self.left -= 1


@dataclass(slots=True)
class Group:
    """One context and its continuations."""

    context: Tokens
    sums: list[Sum] = field(default_factory=list)

    @property
    def branch_tokens(self) -> int:
        """Tokens of the continuations that must be evaluated: all but each last one."""
        return sum(len(total.continuation) - 1 for total in self.sums)


def cells(longest: int, n_ctx: int, step: int) -> int:
    """Cells of a scoring context for requests of ``longest`` tokens: by steps of 1024, and a batch for branches.

    >>> cells(600, 4096, 512), cells(3900, 4000, 512)
    (1536, 4512)
    """
    return min(n_ctx, -(-longest // CELLS) * CELLS) + step


def check(requests: Iterable[tuple[int, ScoreRequest]], n_ctx: int, n_vocab: int) -> int:
    """Tokens of the longest request; ``before`` tokens precede each. 0 without requests.

    Raises:
        InputError: A request is empty, too long or outside the vocabulary.
    """
    longest = 0
    for i, (before, request) in enumerate(requests):
        if not request.continuation or not (request.context or before):
            raise InputError(
                f"request {i}: context {len(request.context)} tokens, continuation {len(request.continuation)}; "
                "expected both non-empty"
            )
        n = before + len(request.context) + len(request.continuation)
        longest = max(longest, n)
        if n > n_ctx:
            raise InputError(f"request {i}: {n} tokens; the context holds {n_ctx}; raise ctx or shorten it")
        both = request.context + request.continuation
        if min(both) < 0 or max(both) >= n_vocab:
            raise InputError(f"request {i}: token outside 0 to {n_vocab - 1}; tokenize it with this model")
    return longest


def groups_of(requests: Sequence[ScoreRequest]) -> Iterator[Group]:
    """Requests by context, contexts and continuations in lexicographic order, equal requests once."""
    found: dict[tuple[int, ...], dict[tuple[int, ...], list[int]]] = {}
    for i, request in enumerate(requests):
        found.setdefault(request.context, {}).setdefault(request.continuation, []).append(i)
    for context in sorted(found):
        sums = [
            Sum(continuation, indices, left=len(continuation))
            for continuation, indices in sorted(found[context].items())
        ]
        yield Group(np.asarray(context, np.int32), sums)


def groups_at_depths(document: Sequence[int], probes: Sequence[tuple[int, ScoreRequest]]) -> Iterator[Group]:
    """Probes by depth, shallow first: the document is evaluated once, in order."""
    whole = np.asarray(document, np.int32)
    by_depth: dict[int, list[int]] = {}
    for i, (depth, _) in enumerate(probes):
        by_depth.setdefault(depth, []).append(i)
    for depth in sorted(by_depth):
        members = by_depth[depth]
        for group in groups_of([probes[i][1] for i in members]):
            for total in group.sums:
                total.indices = [members[i] for i in total.indices]
            yield Group(np.concatenate([whole[:depth], group.context]), group.sums)


def common(a: Tokens, b: Tokens) -> int:
    """Length of the common prefix.

    >>> common(np.array([1, 2, 3], np.int32), np.array([1, 2, 4], np.int32))
    2
    """
    n = min(len(a), len(b))
    differ = np.flatnonzero(a[:n] != b[:n])
    return int(differ[0]) if len(differ) else n


def gather(groups: Iterable[Group], room: int, sequences: int) -> Iterator[tuple[list[Group], int]]:
    """Neighbouring groups that fit into one decode beside each other, and the length of the prefix that they share.

    The shared prefix is evaluated once for the batch; it stays a token shorter than the shortest context, so that every
    context ends in a branch of its own. A group whose prefix is shorter than that of the batch so far joins only where
    little is evaluated twice for it.

    Args:
        groups: In an order in which neighbours share prefixes.
        room: Tokens beyond the shared prefix at most.
        sequences: Sequences at most: one for the prefix, one for each context and each continuation.
    """
    batch: list[Group] = []
    shared = 0
    for group in groups:
        if batch:
            joint = min(shared, common(batch[0].context, group.context), len(group.context) - 1)
            fresh = sum(len(g.context) - joint + g.branch_tokens for g in [*batch, group])
            twice = (shared - joint) * (len(batch) - 1)
            seats = 1 + sum(1 + len(g.sums) for g in [*batch, group])
            if fresh <= room and seats <= sequences and twice * LITTLE <= fresh:
                batch.append(group)
                shared = joint
                continue
            yield batch, shared
        batch, shared = [group], len(group.context) - 1
    if batch:
        yield batch, shared
