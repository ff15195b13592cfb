"""Choosing tokens and verifying drafts of them. Pure: knows no engine.

Source of the rule: Leviathan et al., "Fast Inference from Transformers via Speculative Decoding", arXiv 2211.17192;
Chen et al., "Accelerating Large Language Model Decoding with Speculative Sampling", arXiv 2302.01318.
Adapting draft length: transformers' assisted generation (``next_length``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite

import numpy as np
import numpy.typing as npt

Probabilities = npt.NDArray[np.float64]


class NonFinite(Exception):
    """Logits with NaN, with +infinity, or all -infinity: no token can be chosen."""


def greedy(logits: npt.NDArray[np.float32]) -> int:
    """Index of the largest logit. argmax returns a NaN's index if there is one, so this one check finds any NaN."""
    token = int(logits.argmax())
    if not isfinite(logits[token]):
        raise NonFinite
    return token


def margin(logits: npt.NDArray[np.float32], best: int) -> float:
    """Largest logit minus the second largest, which equals the difference of their log-probabilities."""
    rest = [part.max() for part in (logits[:best], logits[best + 1 :]) if part.size]
    return float(logits[best] - max(rest)) if rest else float("inf")


def probabilities(
    logits: npt.NDArray[np.float32], temperature: float, top_k: int = 0, top_p: float = 1.0
) -> Probabilities:
    """Distribution that is sampled from: softmax(logits / temperature), cut to top_k, then to top_p, renormalised.

    Top-p keeps the smallest set of most likely tokens whose mass reaches ``top_p``. Shape (n_vocab,), float64.

    >>> probabilities(np.log(np.array([0.5, 0.3, 0.2], np.float32)), 1.0, top_k=2).round(3).tolist()
    [0.625, 0.375, 0.0]
    """
    scaled = logits.astype(np.float64) / temperature
    top = scaled.max()
    if not isfinite(top):
        raise NonFinite
    p: Probabilities = np.exp(scaled - top)
    if 0 < top_k < p.size:
        keep = np.argpartition(-p, top_k - 1)[:top_k]
        cut = np.zeros_like(p)
        cut[keep] = p[keep]
        p = cut
    p /= p.sum()
    if top_p < 1.0:
        order = np.argsort(-p, kind="stable")
        before = np.cumsum(p[order]) - p[order]
        p[order[before >= top_p]] = 0.0
        p /= p.sum()
    return p


def draw(p: Probabilities, rng: np.random.Generator) -> int:
    """One index, by inverting the cumulative distribution: one uniform number per draw."""
    cumulative = p.cumsum()
    return int(np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right"))


def next_length(length: int, drafted: int, accepted: int, most: int) -> int:
    """Tokens to draft next: two more where all drafts were accepted, else one fewer; from 1 to ``most``.

    Source: transformers, ``num_assistant_tokens_schedule="heuristic"``
    (https://huggingface.co/docs/transformers/main_classes/text_generation). Where nothing was drafted, nothing was
    learnt.

    >>> next_length(4, 4, 4, 8), next_length(4, 4, 3, 8), next_length(1, 1, 0, 8), next_length(7, 7, 7, 8)
    (6, 3, 1, 8)
    """
    if not drafted:
        return length
    return min(most, length + 2) if accepted == drafted else max(1, length - 1)


def verify_greedy(drafts: Sequence[int], choose: Callable[[int], int]) -> list[int]:
    """Tokens that one verification emits under greedy decoding: the agreeing drafts and one more.

    Args:
        drafts: Drafted tokens.
        choose: ``choose(i)`` is the target's token after the first i drafts.
    """
    out: list[int] = []
    for i in range(len(drafts) + 1):
        token = choose(i)
        out.append(token)
        if i == len(drafts) or token != drafts[i]:
            break
    return out


def verify_sampled(
    drafts: Sequence[int],
    draft_probs: Sequence[Probabilities | None],
    target: Callable[[int], Probabilities],
    rng: np.random.Generator,
) -> list[int]:
    """Tokens that one verification emits under sampling; distributed exactly as the target alone.

    Draft x from q is kept with probability min(1, p(x)/q(x)); the first refused one is replaced by a draw from
    max(0, p - q), renormalised; after the last kept one a further token is drawn from p.

    Args:
        drafts: Drafted tokens.
        draft_probs: The distribution each was drawn from; None where it was certain (q is one-hot).
        target: ``target(i)`` is p after the first i drafts.
        rng: Source of randomness.
    """
    out: list[int] = []
    for i, (token, q) in enumerate(zip(drafts, draft_probs, strict=True)):
        p = target(i)
        likely = 1.0 if q is None else float(q[token])
        if rng.random() * likely < p[token]:
            out.append(token)
            continue
        rest = p.copy() if q is None else np.maximum(p - q, 0.0)
        if q is None:
            rest[token] = 0.0
        if not rest.any():  # p equals q up to rounding
            rest = p
        return [*out, draw(rest, rng)]
    return [*out, draw(target(len(drafts)), rng)]


@dataclass(frozen=True, slots=True)
class Shared:
    """What a draft model's vocabulary shares with its target's: the ids below ``size``.

    Vocabularies of one family are padded to different sizes; the draft may only propose what both know.

    Attributes:
        size: Ids that mean the same to both.
        target_size: Size of the target's vocabulary.
        stand_in: Fed to the draft in place of an id that only the target knows.
    """

    size: int
    target_size: int
    stand_in: int = 0

    def readable(self, tokens: Sequence[int]) -> list[int]:
        """The tokens as the draft can read them."""
        return [token if token < self.size else self.stand_in for token in tokens]

    def cut(self, logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """The draft's logits of the shared ids, shape (size,)."""
        return logits[: self.size]

    def pad(self, q: Probabilities) -> Probabilities:
        """A distribution over the shared ids as one over the target's, shape (target_size,).

        >>> Shared(2, 4).pad(np.array([0.25, 0.75])).tolist()
        [0.25, 0.75, 0.0, 0.0]
        """
        return np.pad(q, (0, self.target_size - len(q)))


class NgramIndex:
    """Prompt lookup: where the last n tokens occurred before, and what followed. Constant time per token.

    From ``longest`` down to two tokens (one only where ``longest`` is 1): drafts after a single token that matched are
    refused so often that they cost more than they save.

    >>> index = NgramIndex([1, 2, 3, 9, 1, 2], longest=3)
    >>> index.draft(3)
    [3, 9, 1]
    """

    def __init__(self, tokens: Sequence[int], longest: int) -> None:
        if longest < 1:
            raise ValueError(f"longest n-gram must be at least 1, found {longest}")
        self._tokens: list[int] = []
        self._after: dict[int, dict[tuple[int, ...], int]] = {n: {} for n in range(longest, min(1, longest - 1), -1)}
        self.extend(tokens)

    def extend(self, tokens: Sequence[int]) -> None:
        """Append tokens. An n-gram is entered once the token after it is known, so it never finds itself."""
        seen = self._tokens
        for token in tokens:
            here = len(seen)
            for n, table in self._after.items():
                if n <= here:
                    table[tuple(seen[here - n :])] = here
            seen.append(token)

    def draft(self, k: int) -> list[int]:
        """Up to ``k`` tokens that followed the latest earlier occurrence of the longest matching ending.

        Where that occurrence overlaps the end, the text is periodic and the period is continued.
        """
        seen = self._tokens
        for n, table in self._after.items():
            start = table.get(tuple(seen[-n:]))
            if start is not None:
                period = len(seen) - start
                return [seen[start + j % period] for j in range(k)]
        return []
