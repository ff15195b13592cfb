"""lm-eval's own MMLU requests as token ids, what they cost with and without sharing, and each question scored alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.backends.base import EngineSpec, ScoreRequest
from harness.backends.llama_cpp.library import Context, spans
from harness.backends.llama_cpp.load import Model, new_context
from harness.suites.encoding import encode_pair
from harness.suites.lm_eval import build_mmlu, run_mmlu
from harness.suites.mmlu import find_mmlu, load_mmlu, pick


@dataclass(frozen=True, slots=True)
class Question:
    """One question: its name in the data, the text pairs that lm-eval asks for, and their token ids."""

    key: str
    gold: int
    pairs: tuple[tuple[str, str], ...]
    requests: tuple[ScoreRequest, ...]

    @property
    def one_pass(self) -> bool:
        """Whether one set of logits answers all options: one context and single tokens."""
        return len({r.context for r in self.requests}) == 1 and all(len(r.continuation) == 1 for r in self.requests)


@dataclass(frozen=True)
class MmluRequests:
    """MMLU in one form."""

    form: str
    shots: int
    tokenize: Callable[[str], Sequence[int]]

    @cached_property
    def source(self) -> Any:
        """Where the questions come from."""
        return find_mmlu(None, os.environ)

    @cached_property
    def parts(self) -> dict[str, Any]:
        """Questions by subject."""
        parts: dict[str, Any] = load_mmlu(self.source)[0]
        return parts

    def tasks(self, subject: str) -> dict[str, Any]:
        """lm-eval's task over one subject."""
        return build_mmlu({subject: self.parts[subject]}, self.form, self.shots)

    def chosen(self, items: int | None) -> dict[str, list[int]]:
        """Question numbers by subject, the same draw as a sweep's."""
        return pick({name: len(part["test"]) for name, part in self.parts.items()}, items, 0)

    def questions(self, subject: str, items: int | None) -> list[Question]:
        """A subject's requests, in lm-eval's order."""
        pairs: list[tuple[str, str]] = []
        rows: dict[str, Mapping[str, Any]] = {}

        def take(found: Sequence[tuple[str, str]], on_result: Callable[[int, Any], None]) -> None:
            pairs.extend(found)
            for index in range(len(found)):  # any answer will do: only the requests are wanted
                on_result(index, {"logprob": -1.0 - index % 4, "is_greedy": False, "n_tokens": 1, "finite": True})

        run_mmlu(self.tasks(subject), {subject: self.chosen(items)[subject]}, {}, take, rows.__setitem__)
        asked = list(zip(*[iter(pairs)] * 4, strict=True))
        return [
            Question(key, int(row["gold"]), four, tuple(self._request(*pair) for pair in four))
            for (key, row), four in zip(rows.items(), asked, strict=True)
        ]

    def _request(self, context: str, continuation: str) -> ScoreRequest:
        head, tail = encode_pair(self.tokenize, context, continuation, self.tokenize("\n")[0])
        return ScoreRequest(tuple(head), tuple(tail))


def tokens_alone(questions: Iterable[Question]) -> int:
    """Tokens to evaluate with one pass a question, or one an option where options have several tokens."""
    return sum(
        len(question.requests[0].context)
        if question.one_pass
        else sum(len(request.context) + len(request.continuation) - 1 for request in question.requests)
        for question in questions
    )


def tokens_shared(requests: Iterable[ScoreRequest]) -> int:
    """Tokens to evaluate when every shared prefix is evaluated once: the nodes of the prefix tree.

    >>> tokens_shared([ScoreRequest((1, 2, 3), (4,)), ScoreRequest((1, 2), (5, 6)), ScoreRequest((1, 2, 3), (7,))])
    4
    """
    total = 0
    before: tuple[int, ...] = ()
    for tokens in sorted({(*request.context, *request.continuation[:-1]) for request in requests}):
        shared = next((i for i, (a, b) in enumerate(zip(before, tokens, strict=False)) if a != b), None)
        total += len(tokens) - (min(len(before), len(tokens)) if shared is None else shared)
        before = tokens
    return total


class Alone:
    """Scores each question from an empty cache in one sequence, sharing nothing: what the scorer is held against."""

    def __init__(self, model: Model, spec: EngineSpec) -> None:
        self.context: Context = new_context(model, spec, n_ctx=spec.ctx)

    def __call__(self, question: Question) -> list[float]:
        """Log-likelihood of each option."""
        if question.one_pass:
            (row,) = self._rows(question.requests[0].context, 1)
            return [float(row[request.continuation[0]]) for request in question.requests]
        found = []
        for request in question.requests:
            rows = self._rows((*request.context, *request.continuation[:-1]), len(request.continuation))
            found.append(float(sum(row[token] for row, token in zip(rows, request.continuation, strict=True))))
        return found

    def _rows(self, tokens: Sequence[int], last: int) -> list[npt.NDArray[np.float64]]:
        """Log-probabilities at the last positions."""
        context, array, found = self.context, np.asarray(tokens, np.int32), []
        context.clear()
        for start, stop in spans(len(array), context.capacity):
            n = context.put(0, array[start:stop], start)
            first = max(start, len(array) - last)
            context.want[first - start : n] = 1
            context.decode(n)
            for index in range(first - start, n):
                row = context.row(index).astype(np.float64)
                found.append(row - row.max() - np.log(np.exp(row - row.max()).sum()))
        return found
