"""Log-likelihoods: every shared prefix is evaluated once, and continuations fork from it.

Sequence 0 holds the current prefix. Contexts come in an order in which neighbours share the longest prefixes (a walk
through their prefix tree, depth first), so cutting sequence 0 back to the common prefix and going on evaluates each
shared prefix once. One decode takes the rest of a context (in all its sequences at once) and its continuations (one
sequence each).

On a CPU a context is never evaluated beside another one: its cells in the cache, and with them every rounding, then
depend on nothing else that is scored, and results don't depend on the order of the requests, to the bit. That costs
no speed: a decode of 32 tokens takes about as long per token as one of 256, and attention doesn't pass over the cells
of other contexts. On a GPU small decodes waste it, so there neighbouring contexts share a decode (``together``), and
scores don't depend on their company beyond rounding.

Decodes hold at least SMALLEST tokens where there are as many, since llama.cpp's CPU kernels for fewer than 7 round
differently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import isfinite, log

import numpy as np
import numpy.typing as npt

from harness.backends.base import ScoreResult
from harness.backends.llama_cpp.library import Context, spans
from harness.backends.llama_cpp.score_plan import Group, Sum, Tokens, common, gather

OnResult = Callable[[int, ScoreResult], None]
SMALLEST = 8
SEQUENCES = 64
# Rows of logits that leave the engine at once: a row of 150,000 tokens is 0.6 MB.
PIECE = 64


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive tokens of one decode.

    Attributes:
        tokens, start: What is evaluated, and the position of its first token.
        first_seq, n_seq: The sequences that it belongs to.
        sums: Continuations whose tokens it gives; none where its logits are not wanted.
        wanted: Index of its first token whose logits are wanted: they give the continuations' token ``gives``.
        gives: See ``wanted``; later tokens give later ones.
    """

    tokens: Tokens
    start: int
    first_seq: int
    n_seq: int
    sums: list[Sum]
    wanted: int
    gives: int


def trunk(tokens: Tokens, start: int, first_seq: int, n_seq: int, sums: list[Sum]) -> Run:
    """The rest of a context; its last token gives the first token of every continuation in ``sums``."""
    return Run(tokens, start, first_seq, n_seq, sums, len(tokens) - 1 if sums else len(tokens), 0)


def branch(total: Sum, start: int, seq: int) -> Run:
    """A continuation of several tokens in its own sequence."""
    return Run(np.asarray(total.continuation[:-1], np.int32), start, seq, 1, [total], 0, 1)


class Scorer:
    """Scores on one context, which it owns while it works."""

    def __init__(self, context: Context, step: int, *, can_roll_back: bool, together: bool = False) -> None:
        self.context, self._step, self._can_roll_back = context, step, can_roll_back
        self._together = together and can_roll_back
        self.cells = context.n_ctx
        self._current: Tokens = np.empty(0, np.int32)
        self._scratch = np.empty(context.n_vocab, np.float32)

    def forget(self) -> None:
        """Empty the cache."""
        self.context.clear()
        self._current = np.empty(0, np.int32)

    def run(self, groups: Iterable[Group], on_result: OnResult) -> None:
        """Score all groups, from an empty cache."""
        self.forget()
        batches = gather(groups, self._step, SEQUENCES) if self._together else (([group], 0) for group in groups)
        for batch, shared in batches:
            if not self._can_roll_back:
                for group in batch:
                    for total in group.sums:
                        self._alone(group.context, total)
            elif len(batch) > 1:
                self._side_by_side(batch, shared)
            else:
                self._group(batch[0])
            for total in (total for group in batch for total in group.sums):
                result = _result(total)
                for index in total.indices:
                    on_result(index, result)

    def _alone(self, whole: Tokens, total: Sum) -> None:
        """One continuation in one sequence, for memories that can be neither cut nor forked (recurrent models)."""
        self.forget()
        context, n = self.context, len(whole)
        tokens = np.concatenate([whole, np.asarray(total.continuation[:-1], np.int32)])
        for start, stop in spans(len(tokens), self._step, SMALLEST):
            context.put(0, tokens[start:stop], start)
            wanted = range(max(start, n - 1), stop)
            context.want[: stop - start] = np.arange(start, stop) >= n - 1
            context.decode(stop - start)
            for i in wanted:
                self._row(context.row(i - start), [(total, total.continuation[i - n + 1])])

    def logits(self, tokens: Tokens, step: int) -> Iterator[tuple[int, npt.NDArray[np.float32]]]:
        """Logits at every position, from an empty cache, decoded ``step`` at a time; copies of at most PIECE rows."""
        self.forget()
        context = self.context
        for start, stop in spans(len(tokens), step, SMALLEST):
            n = context.put(0, tokens[start:stop], start)
            context.want[:n] = 1
            context.decode(n)
            for at in range(0, n, PIECE):
                yield start + at, np.stack([context.row(i) for i in range(at, min(at + PIECE, n))])

    def _group(self, group: Group) -> None:
        """One context in sequence 0, its continuations in as many waves as they need."""
        n, known = len(group.context), common(self._current, group.context)
        for i, wave in enumerate(self._waves(group)):
            firsts = group.sums if i == 0 else []  # the context's last token gives every continuation's first
            branch_tokens = sum(len(total.continuation) - 1 for total in wave)
            done = self._cut(max(0, min(known, n - bool(firsts), n + branch_tokens - SMALLEST)))
            runs = [trunk(group.context[done:], done, 0, len(wave) + 1, firsts)]
            self._evaluate(runs + [branch(total, n, 1 + j) for j, total in enumerate(wave)])
            known = n
        self._current = group.context

    def _side_by_side(self, batch: list[Group], shared: int) -> None:
        """Several contexts: what they share in all sequences at once, then each rest with its continuations."""
        prefix = batch[0].context[:shared]
        done = self._cut(min(common(self._current, prefix), shared))
        runs: list[Run] = []
        seq = 1
        for group in batch:
            branches = [total for total in group.sums if len(total.continuation) > 1]
            runs.append(trunk(group.context[shared:], shared, seq, 1 + len(branches), group.sums))
            runs += [branch(total, len(group.context), seq + 1 + j) for j, total in enumerate(branches)]
            seq += 1 + len(branches)
        self._evaluate([trunk(prefix[done:], done, 0, seq, []), *runs])
        self._current = prefix

    def _cut(self, done: int) -> int:
        """Keep the first ``done`` cells of sequence 0; returns how many could be kept."""
        if self.context.cut(0, done):
            return done
        self.context.clear()
        return 0

    def _waves(self, group: Group) -> list[list[Sum]]:
        """Continuations that need branches, as many at once as sequences, cells and one decode allow."""
        room = max(1, min(self._step, self.cells - len(group.context)))
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

    def _evaluate(self, runs: list[Run]) -> None:
        """Evaluate runs that fork from what sequence 0 holds, and drop every sequence but that one."""
        context = self.context
        n_seq = max(run.first_seq + run.n_seq for run in runs)
        for seq in range(1, n_seq):
            context.fork(0, seq)
        sizes = [len(run.tokens) for run in runs]
        owners = np.repeat(np.arange(len(runs)), sizes)
        tokens = np.concatenate([run.tokens for run in runs])
        offsets = np.arange(len(tokens)) - np.repeat(np.cumsum([0, *sizes[:-1]]), sizes)
        starts, firsts, counts, wanted = (
            np.array(values)[owners]
            for values in zip(*[(run.start, run.first_seq, run.n_seq, run.wanted) for run in runs], strict=True)
        )
        for start, stop in spans(len(tokens), self._step, SMALLEST):
            now = slice(start, stop)
            want = offsets[now] >= wanted[now]
            context.fill(tokens[now], offsets[now] + starts[now], firsts[now], counts[now], want)
            context.decode(stop - start)
            for i in np.flatnonzero(want):
                run = runs[int(owners[start + i])]
                token = run.gives + int(offsets[start + i]) - run.wanted
                self._row(context.row(int(i)), [(total, total.continuation[token]) for total in run.sums])
        for seq in range(1, n_seq):
            context.cut(seq, -1)

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


def _result(total: Sum) -> ScoreResult:
    n = len(total.continuation)
    if total.left:
        raise AssertionError(f"{total.left} of {n} tokens were not scored")
    if not isfinite(total.logprob):
        return ScoreResult(0.0, False, n, finite=False)
    return ScoreResult(total.logprob, total.greedy, n)
