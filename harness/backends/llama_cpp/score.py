"""Log-likelihoods: every shared prefix is evaluated once, and continuations fork from it.

Sequence 0 holds the current context. Contexts come in an order in which neighbours share the longest prefixes, so
cutting sequence 0 back to the common prefix and going on evaluates each shared prefix once. One decode takes the rest
of a context (in all sequences at once) and its continuations (one sequence each). A group of continuations of one
context is evaluated in a fixed order and never beside another context, so its cells in the cache, and with them every
rounding, depend on nothing else that is scored: results don't depend on the order of the requests. (On CPUs that costs
no speed: a decode of 32 tokens takes about as long per token as one of 256.) Decodes hold at least SMALLEST tokens
where there are as many, since llama.cpp's kernels for fewer than 7 round differently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import isfinite, log

import numpy as np
import numpy.typing as npt

from harness.backends.base import ScoreRequest, ScoreResult
from harness.backends.llama_cpp.library import Context, spans
from harness.errors import InputError

Tokens = npt.NDArray[np.int32]
OnResult = Callable[[int, ScoreResult], None]
SMALLEST = 8
SEQUENCES = 64


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


def check(requests: Iterable[tuple[int, ScoreRequest]], n_ctx: int, n_vocab: int) -> None:
    """Raise InputError if a request is empty, too long or outside the vocabulary; ``before`` tokens precede it."""
    for i, (before, request) in enumerate(requests):
        if not request.continuation or not (request.context or before):
            raise InputError(
                f"request {i}: context {len(request.context)} tokens, continuation {len(request.continuation)}; "
                "expected both non-empty"
            )
        n = before + len(request.context) + len(request.continuation)
        if n > n_ctx:
            raise InputError(f"request {i}: {n} tokens; the context holds {n_ctx}; raise ctx or shorten it")
        both = request.context + request.continuation
        if min(both) < 0 or max(both) >= n_vocab:
            raise InputError(f"request {i}: token outside 0 to {n_vocab - 1}; tokenize it with this model")


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


class Scorer:
    """Scores on one context, which it owns while it works."""

    def __init__(self, context: Context, step: int, *, can_roll_back: bool) -> None:
        self._context, self._step, self._can_roll_back = context, step, can_roll_back
        self._cells = context.n_ctx
        self._current: Tokens = np.empty(0, np.int32)
        self._scratch = np.empty(context.n_vocab, np.float32)

    def forget(self) -> None:
        """Empty the cache."""
        self._context.clear()
        self._current = np.empty(0, np.int32)

    def run(self, groups: Iterable[Group], on_result: OnResult) -> None:
        """Score all groups, from an empty cache."""
        self.forget()
        for group in groups:
            if self._can_roll_back:
                self._group(group)
            else:
                for total in group.sums:
                    self._alone(group.context, total)
            for total in group.sums:
                result = _result(total)
                for index in total.indices:
                    on_result(index, result)

    def _alone(self, whole: Tokens, total: Sum) -> None:
        """One continuation in one sequence, for memories that can be neither cut nor forked (recurrent models)."""
        self.forget()
        context, n = self._context, len(whole)
        tokens = np.concatenate([whole, np.asarray(total.continuation[:-1], np.int32)])
        for start, stop in spans(len(tokens), self._step, SMALLEST):
            context.put(0, tokens[start:stop], start)
            wanted = range(max(start, n - 1), stop)
            context.want[: stop - start] = np.arange(start, stop) >= n - 1
            context.decode(stop - start)
            for i in wanted:
                self._row(context.row(i - start), [(total, total.continuation[i - n + 1])])

    def logits(self, tokens: Tokens, step: int) -> Iterator[tuple[int, npt.NDArray[np.float32]]]:
        """Logits at every position, from an empty cache, at most ``step`` positions at a time; copies."""
        self.forget()
        context = self._context
        for start, stop in spans(len(tokens), step, SMALLEST):
            n = context.put(0, tokens[start:stop], start)
            context.want[:n] = 1
            context.decode(n)
            yield start, np.stack([context.row(i) for i in range(n)])

    def _group(self, group: Group) -> None:
        n, known = len(group.context), _common(self._current, group.context)
        for i, wave in enumerate(self._waves(group)):
            firsts = group.sums if i == 0 else []  # the context's last token gives every continuation's first
            branch_tokens = sum(len(total.continuation) - 1 for total in wave)
            done = max(0, min(known, n - bool(firsts), n + branch_tokens - SMALLEST))
            if not self._context.cut(0, done):
                self._context.clear()
                done = 0
            self._wave(group.context, done, wave, firsts)
            known = n
        self._current = group.context

    def _waves(self, group: Group) -> list[list[Sum]]:
        """Continuations that need branches, as many at once as sequences, cells and one decode allow."""
        room = max(1, min(self._step, self._cells - len(group.context)))
        waves: list[list[Sum]] = [[]]
        used = 0
        for total in group.sums:
            n = len(total.continuation) - 1
            if n == 0:
                continue
            if waves[-1] and (used + n > room or len(waves[-1]) == SEQUENCES - 1):
                waves.append([])
                used = 0
            waves[-1].append(total)
            used += n
        return waves

    def _wave(self, whole: Tokens, done: int, branches: list[Sum], firsts: list[Sum]) -> None:
        """Evaluate ``whole[done:]`` in sequences 0..m and each branch in its own; then drop the branches."""
        context, m = self._context, len(branches)
        for seq in range(1, m + 1):
            context.fork(0, seq)
        parts = [whole[done:], *(np.asarray(total.continuation[:-1], np.int32) for total in branches)]
        owners = np.repeat(np.arange(m + 1), [len(part) for part in parts])
        tokens = np.concatenate(parts)
        starts = np.concatenate([[done], np.full(m, len(whole))])
        firsts_at = np.concatenate([[0], np.cumsum([len(part) for part in parts])])
        positions = np.arange(len(tokens)) - firsts_at[owners] + starts[owners]
        for start, stop in spans(len(tokens), self._step, SMALLEST):
            self._decode(tokens[start:stop], positions[start:stop], owners[start:stop], m, len(whole), branches, firsts)
        for seq in range(1, m + 1):
            context.cut(seq, -1)

    def _decode(
        self,
        tokens: Tokens,
        positions: npt.NDArray[np.int64],
        owners: npt.NDArray[np.int64],
        m: int,
        n_context: int,
        branches: list[Sum],
        firsts: list[Sum],
    ) -> None:
        context, n = self._context, len(tokens)
        wanted = (owners > 0) | ((positions == n_context - 1) & bool(firsts))
        context.fill(tokens, positions, owners, np.where(owners == 0, m + 1, 1), wanted)
        context.decode(n)
        for i in np.flatnonzero(wanted):
            row, owner = context.row(int(i)), int(owners[i])
            j = int(positions[i]) - n_context + 1
            self._row(
                row, [(total, total.continuation[j]) for total in (firsts if owner == 0 else [branches[owner - 1]])]
            )

    def _row(self, row: npt.NDArray[np.float32], targets: list[tuple[Sum, int]]) -> None:
        """Add the log-softmax of one row of logits at the target tokens."""
        best = int(row.argmax())
        top = float(row[best])
        if not isfinite(top):  # argmax finds a NaN if there is one
            for total, _ in targets:
                total.add(float("nan"), False)
            return
        np.subtract(row, row[best], out=self._scratch)
        np.exp(self._scratch, out=self._scratch)
        norm = top + log(float(self._scratch.sum(dtype=np.float64)))
        for total, token in targets:
            total.add(float(row[token]) - norm, token == best)


def _common(a: Tokens, b: Tokens) -> int:
    n = min(len(a), len(b))
    differ = np.flatnonzero(a[:n] != b[:n])
    return int(differ[0]) if len(differ) else n


def _result(total: Sum) -> ScoreResult:
    n = len(total.continuation)
    if total.left:
        raise AssertionError(f"{total.left} of {n} tokens were not scored")
    if not isfinite(total.logprob):
        return ScoreResult(0.0, False, n, finite=False)
    return ScoreResult(total.logprob, total.greedy, n)
