"""Where drafts come from: the text so far, or a smaller model. Both forget what the target refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from harness.backends.llama_cpp.library import Context, spans
from harness.backends.llama_cpp.speculate import NgramIndex, Probabilities, Shared, draw, greedy


class Policy(Protocol):
    """How the request chooses tokens."""

    greedy: bool
    rng: np.random.Generator

    def p(self, logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
        """The distribution that is sampled from."""
        ...


class Drafter(Protocol):
    """Proposes tokens."""

    limit: int

    def start(self, prompt: Sequence[int], policy: Policy) -> None:
        """Begin a request: read the prompt."""
        ...

    def draft(self, token: int, k: int) -> tuple[list[int], list[Probabilities | None]]:
        """Up to ``k`` tokens after ``token``, and the distribution each was drawn from (None: certain)."""
        ...

    def accepted(self, emitted: Sequence[int]) -> None:
        """What the target emitted instead of the last draft."""
        ...


class LookupDrafter:
    """Prompt lookup over the prompt and the output so far."""

    def __init__(self, ngram: int, limit: int) -> None:
        self.limit, self._ngram = limit, ngram
        self._index, self._fresh = NgramIndex([], ngram), True

    def start(self, prompt: Sequence[int], policy: Policy) -> None:
        """Index the prompt."""
        self._index, self._fresh = NgramIndex(prompt, self._ngram), True

    def draft(self, token: int, k: int) -> tuple[list[int], list[Probabilities | None]]:
        """What followed the same words before."""
        if self._fresh:  # the first token after the prompt comes from no verification
            self._index.extend([token])
            self._fresh = False
        drafts = self._index.draft(k) if k > 0 else []
        return drafts, [None] * len(drafts)

    def accepted(self, emitted: Sequence[int]) -> None:
        """Index the emitted tokens."""
        self._index.extend(emitted)


class ModelDrafter:
    """A smaller model with its own context."""

    def __init__(self, context: Context, limit: int, shared: Shared) -> None:
        self.limit, self._context, self._shared = limit, context, shared
        self._pending: list[int] = []  # emitted, not yet in the draft's cache
        self._at = 0  # positions in the draft's cache that the target agreed with
        self._drafts: list[int] = []

    def start(self, prompt: Sequence[int], policy: Policy) -> None:
        """Read the prompt."""
        self._policy = policy
        self._pending, self._drafts, self._at = [], [], len(prompt)
        self._context.clear()
        tokens = np.asarray(self._shared.readable(prompt), np.int32)
        for start, stop in spans(len(tokens), self._context.capacity):
            self._context.decode(self._context.put(0, tokens[start:stop], start))

    def draft(self, token: int, k: int) -> tuple[list[int], list[Probabilities | None]]:
        """Greedy drafts, or samples under the request's own limits where it samples."""
        self._drafts = []
        probs: list[Probabilities | None] = []
        self._pending = self._pending or [token]
        if k < 1:
            return [], []
        context, feed = self._context, self._shared.readable(self._pending)
        self._pending = []
        for _ in range(k):
            n = context.put(0, feed, self._at)
            context.want[n - 1] = 1
            context.decode(n)
            self._at += n
            feed, q = self._choose(context.row(n - 1))
            self._drafts += feed
            probs.append(q)
        return list(self._drafts), probs

    def _choose(self, logits: npt.NDArray[np.float32]) -> tuple[list[int], Probabilities | None]:
        logits = self._shared.cut(logits)
        if self._policy.greedy:
            return [greedy(logits)], None
        q = self._shared.pad(self._policy.p(logits))
        return [draw(q, self._policy.rng)], q

    def accepted(self, emitted: Sequence[int]) -> None:
        """Roll the cache back to what both models agree on; the rest is fed with the next draft.

        The last draft was never fed, so where all were accepted the cache lacks it and the token after it.
        """
        kept = len(emitted) - 1
        cached = max(0, len(self._drafts) - 1)  # drafts in the cache
        self._at -= max(0, cached - kept)
        self._context.cut(0, self._at)
        self._pending += emitted[min(kept, cached) :]
