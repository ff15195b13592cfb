"""The generation loop, with and without speculation. Stamps nothing: it yields as soon as a token is chosen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite
from time import perf_counter

import numpy as np
import numpy.typing as npt

from harness.backends.base import Emission, GenerateEnd, GenerateRequest
from harness.backends.llama_cpp.draft import Drafter
from harness.backends.llama_cpp.library import Context, spans
from harness.backends.llama_cpp.speculate import (
    NonFinite,
    draw,
    greedy,
    margin,
    next_length,
    probabilities,
    verify_greedy,
    verify_sampled,
)
from harness.backends.llama_cpp.vocab import Vocab
from harness.errors import InputError


def check(request: GenerateRequest, vocab: Vocab, n_ctx: int) -> None:
    """Raise InputError for a request that cannot be served whole."""
    if not request.prompt:
        raise InputError("prompt: no tokens; expected at least one")
    if request.max_tokens < 1:
        raise InputError(f"max_tokens: {request.max_tokens}; expected at least 1")
    n = len(request.prompt) + request.max_tokens
    if n > n_ctx:
        raise InputError(
            f"prompt of {len(request.prompt)} tokens + {request.max_tokens} to generate = {n}; "
            f"the context holds {n_ctx}; raise ctx or shorten them"
        )
    if min(request.prompt) < 0 or max(request.prompt) >= vocab.size:
        raise InputError(f"prompt: token outside 0 to {vocab.size - 1}; tokenize it with this model")


def prefill(context: Context, tokens: Sequence[int]) -> npt.NDArray[np.float32]:
    """Evaluate a prompt into an emptied cache. Returns the logits after its last token."""
    context.clear()
    return read(context, tokens, 0)


def read(context: Context, tokens: Sequence[int], at: int) -> npt.NDArray[np.float32]:
    """Evaluate tokens from position ``at`` on. Returns the logits after the last one."""
    prompt = np.asarray(tokens, np.int32)
    n = 0
    for start, stop in spans(len(prompt), context.capacity):
        n = context.put(0, prompt[start:stop], at + start)
        context.want[n - 1] = stop == len(prompt)
        context.decode(n)
    return context.row(n - 1)


class Chooser:
    """Turns logits into tokens for one request."""

    def __init__(self, request: GenerateRequest) -> None:
        self.greedy = request.temperature <= 0
        self.rng = np.random.default_rng(request.seed)
        self._limits = (request.temperature, request.top_k, request.top_p)
        self._margins: list[float] | None = [] if request.margins and self.greedy else None

    def p(self, logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
        """The distribution that is sampled from."""
        return probabilities(logits, *self._limits)

    def __call__(self, logits: npt.NDArray[np.float32]) -> int:
        """One token. Raises NonFinite."""
        if not self.greedy:
            return draw(self.p(logits), self.rng)
        token = greedy(logits)
        if self._margins is not None:
            self._margins.append(margin(logits, token))
        return token

    def emission(self, tokens: list[int]) -> Emission:
        """The tokens with their margins, which start anew."""
        if self._margins is None:
            return Emission(tokens)
        margins, self._margins = self._margins[: len(tokens)], []
        return Emission(tokens, margins)


class Output:
    """What was emitted, and when it is enough."""

    def __init__(self, request: GenerateRequest, vocab: Vocab) -> None:
        self._vocab, self._left, self._ignore_end = vocab, request.max_tokens, request.ignore_eos
        self._stops = [text.encode() for text in request.stop if text]
        self._window = max((len(stop) for stop in self._stops), default=0) - 1
        self._tail = b""
        self.tokens: list[int] = []

    def take(self, tokens: list[int]) -> tuple[list[int], str | None]:
        """Those of the tokens that belong to the output, and the reason to end, if any. An end token is not output."""
        for i, token in enumerate(tokens):
            if not self._ignore_end and self._vocab.is_end(token):
                return tokens[:i], "stop"
            self.tokens.append(token)
            self._left -= 1
            if self._stops and self._stopped(token):
                return tokens[: i + 1], "stop"
            if not self._left:
                return tokens[: i + 1], "length"
        return tokens, None

    @property
    def left(self) -> int:
        """Tokens that may still be emitted."""
        return self._left

    def _stopped(self, token: int) -> bool:
        text = self._tail + self._vocab.piece(token)
        self._tail = text[-self._window :] if self._window else b""
        return any(stop in text for stop in self._stops)

    def text(self) -> str:
        """Everything emitted, cut before the earliest stop text. Broken UTF-8 becomes U+FFFD."""
        raw = self._vocab.detokenize(self.tokens)
        found = [at for stop in self._stops if (at := raw.find(stop)) >= 0]
        return raw[: min(found, default=len(raw))].decode("utf-8", errors="replace")


def generate_plain(context: Context, vocab: Vocab, request: GenerateRequest) -> Iterator[Emission | GenerateEnd]:
    """One token per decode."""
    choose, out, reason = Chooser(request), Output(request, vocab), None
    at = len(request.prompt)
    try:
        token = choose(prefill(context, request.prompt))
        context.put(0, [0], 0)
        context.want[0] = 1
        while True:
            tokens, reason = out.take([token])
            if tokens:
                yield choose.emission(tokens)
            if reason:
                break
            context.token[0], context.pos[0] = token, at
            context.decode(1)
            at += 1
            token = choose(context.row(0))
    except NonFinite:
        reason = "nonfinite"
    yield GenerateEnd(reason or "length", out.text())


def generate_speculative(
    context: Context, vocab: Vocab, request: GenerateRequest, drafter: Drafter, *, adapt: bool = False
) -> Iterator[Emission | GenerateEnd]:
    """Draft, verify in one decode, keep what the target agrees with, and forget the rest.

    Every decode of the target after the prompt counts as a verification, also where nothing was drafted, so that
    tokens per verification are tokens per pass over the weights. The drafter reads the prompt before the first token
    is emitted: that work is prompt work and shows in the time to first token. With ``adapt`` the draft length follows
    acceptance, from the drafter's limit anew for each request.
    """
    choose, out, reason = Chooser(request), Output(request, vocab), None
    counts, length = _Counts(drafter.limit), drafter.limit
    try:
        token = choose(prefill(context, request.prompt))
        drafter.start(request.prompt, choose)
        tokens, reason = out.take([token])
        if tokens:
            yield choose.emission(tokens)
        at = len(request.prompt)
        while not reason:
            drafted, emitted = _step(context, drafter, choose, counts, token, at, min(length, out.left - 1))
            if adapt:
                length = next_length(length, drafted, len(emitted) - 1, drafter.limit)
            at += len(emitted)
            token = emitted[-1]
            tokens, reason = out.take(emitted)
            if tokens:
                yield choose.emission(tokens)
    except NonFinite:
        reason = "nonfinite"
    yield counts.end(reason or "length", out.text())


class _Counts:
    """What speculation did in one request."""

    def __init__(self, limit: int) -> None:
        self.drafted_at, self.accepted_at = [0] * limit, [0] * limit
        self.steps, self.draft_s, self.verify_s = 0, 0.0, 0.0

    def add(self, drafted: int, accepted: int, draft_s: float, verify_s: float) -> None:
        """Take in one step."""
        for i in range(drafted):
            self.drafted_at[i] += 1
        for i in range(accepted):
            self.accepted_at[i] += 1
        self.steps += 1
        self.draft_s += draft_s
        self.verify_s += verify_s

    def end(self, reason: str, text: str) -> GenerateEnd:
        """The end of the request."""
        return GenerateEnd(
            reason,
            text,
            sum(self.drafted_at),
            sum(self.accepted_at),
            self.steps,
            self.drafted_at,
            self.accepted_at,
            self.draft_s,
            self.verify_s,
        )


def _step(
    context: Context, drafter: Drafter, choose: Chooser, counts: _Counts, token: int, at: int, k: int
) -> tuple[int, list[int]]:
    """One draft of up to ``k`` and its verification: how many were drafted, and the tokens that follow ``token``.

    ``token`` sits at position ``at``.
    """
    began = perf_counter()
    drafts, q = drafter.draft(token, k)
    drafted = perf_counter()
    n = context.put(0, [token, *drafts], at)
    context.want[:n] = 1
    context.decode(n)
    if choose.greedy:
        emitted = verify_greedy(drafts, lambda i: choose(context.row(i)))
    else:
        emitted = verify_sampled(drafts, q, lambda i: choose.p(context.row(i)), choose.rng)
    accepted = len(emitted) - 1
    context.cut(0, at + 1 + accepted)
    drafter.accepted(emitted)
    counts.add(len(drafts), accepted, drafted - began, perf_counter() - drafted)
    return len(drafts), emitted


def margins(context: Context, prompt: Sequence[int], output: Sequence[int], batch: int) -> list[float | None]:
    """How far each token of ``output`` is ahead of its best rival, with the output evaluated ``batch`` at a time."""
    found = [_lead(prefill(context, prompt), output[0])]
    for start in range(0, len(output) - 1, batch):
        part = list(output[start : min(start + batch, len(output) - 1)])
        n = context.put(0, part, len(prompt) + start)
        context.want[:n] = 1
        context.decode(n)
        found += [_lead(context.row(i), output[start + 1 + i]) for i in range(n)]
    return found


def _lead(logits: npt.NDArray[np.float32], token: int) -> float | None:
    lead = margin(logits, token)
    return lead if isfinite(lead) else None
