"""Multiple-choice questions whose chosen answer changed, and whether noise alone can have done it.

Knows stored answers (``harness.metrics.quality``), not how they came about: the other side may be the reference, or the
same variant scored in another way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from harness.metrics.quality import Doc, is_valid


@dataclass(frozen=True, slots=True)
class Flip:
    """A question that both sides answered validly and differently.

    Attributes:
        subject, doc_id, gold: Which question, and its right answer.
        reference_pred, pred: The answers of the other side and of this one.
        reference_margin, margin: How far each side puts its answer ahead of its second best, in natural-log units.
        limit: The margin that noise can turn; None where no floor is known.
    """

    subject: str
    doc_id: int
    gold: int
    reference_pred: int
    pred: int
    reference_margin: float
    margin: float
    limit: float | None

    @property
    def near_tie(self) -> bool | None:
        """Whether the smaller of the two margins is at most the limit."""
        return None if self.limit is None else min(self.margin, self.reference_margin) <= self.limit


def flips(docs: Sequence[Doc], reference: Sequence[Doc], floor: float | None = None) -> list[Flip]:
    """All flipped questions in the order of ``docs``, each with its margins and the margin that noise can turn.

    An answer's score is a sum over its tokens, and a margin the difference of two such sums. Where each token's
    log-probability moves by up to ``floor``, and independently, a margin over ``k`` tokens moves by up to
    ``floor x sqrt(k)``; k counts the tokens of the best and the second best answer, on the side with the smaller
    margin. Were the moves not independent, it would be up to ``floor x k``; the smaller limit excuses fewer flips.

    A flip is a near tie where the smaller of the two sides' margins is within that limit: one side was then as good as
    undecided between its two best answers.

    Args:
        docs: Documents of the variant.
        reference: Documents of the side that it is compared with.
        floor: The variant's ``logprob_floor``; None where it is not known.

    >>> doc = {"subject": "s", "doc_id": 1, "gold": 0, "finite": True, "n_tokens": [1, 3]}
    >>> ours = {**doc, "logprobs": [-2.0, -1.5], "pred": 1, "correct": False}
    >>> theirs = {**doc, "logprobs": [-1.0, -3.0], "pred": 0, "correct": True}
    >>> (flip,) = flips([ours], [theirs], floor=0.3)
    >>> flip.margin, flip.reference_margin, flip.limit, flip.near_tie
    (0.5, 2.0, 0.6, True)
    """
    theirs = {(doc["subject"], doc["doc_id"]): doc for doc in reference if is_valid(doc)}
    found = []
    for doc in docs:
        other = theirs.get((doc["subject"], doc["doc_id"]))
        if other is None or not is_valid(doc) or doc["pred"] == other["pred"]:
            continue
        (margin, tokens), (reference_margin, reference_tokens) = _margin(doc), _margin(other)
        k = tokens if margin <= reference_margin else reference_tokens
        found.append(
            Flip(
                doc["subject"],
                doc["doc_id"],
                doc["gold"],
                other["pred"],
                doc["pred"],
                reference_margin,
                margin,
                None if floor is None else floor * math.sqrt(k),
            )
        )
    return found


def _margin(doc: Doc) -> tuple[float, int]:
    """Best minus second-best log-likelihood, and the tokens of both."""
    second, best = sorted(range(len(doc["logprobs"])), key=lambda i: float(doc["logprobs"][i]))[-2:]
    return doc["logprobs"][best] - doc["logprobs"][second], doc["n_tokens"][best] + doc["n_tokens"][second]
