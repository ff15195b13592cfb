"""How far a variant is from itself: its noise floor. Knows logits and stored rows, but no engine.

An engine that quantises activations rounds otherwise when it reads one token at a time (as in generating) than when it
reads a prompt (as in scoring). The same variant over the same text by both ways shows how much of a divergence or of a
changed answer such rounding alone can make. What lies inside that floor is no loss of quality.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from harness.record import Figure, missing
from harness.stats.interval import percentile_interval
from harness.stats.summary import enough_for_percentile, percentile
from harness.suites.fidelity import block_mean, kl_rows, log_softmax
from harness.suites.resample import Floats

# Tokens looked at where the largest change is sought: far down the list, changes are large and matter to nothing.
TOP = 50
# Rounding is drawn anew at each position, so blocks may be short; 8 keep an interval from 64 positions.
BLOCK = 8
# From fewer blocks the interval is too wide to say that a divergence lies inside it.
MIN_POSITIONS = 8 * BLOCK

Row = Mapping[str, Any]


class FloorRows(NamedTuple):
    """Per position, the prompt path against the single-token path.

    Attributes:
        kl: KL(prompt path || single-token path), nats.
        top1: Whether the most likely token is the same.
        largest: Largest absolute change of log-probability among the prompt path's 50 likeliest tokens.
        finite: Whether all logits are finite.
    """

    kl: Floats
    top1: npt.NDArray[np.bool_]
    largest: Floats
    finite: npt.NDArray[np.bool_]


def floor_rows(prompt: npt.ArrayLike, single: npt.ArrayLike) -> FloorRows:
    """Compare two sets of logits of the same variant over the same positions.

    Positions with a NaN or infinite logit on either side get ``finite`` False and zeros: leave them out.

    Args:
        prompt: Logits by the prompt path. Shape (positions, vocabulary).
        single: The same, read one token at a time.

    Raises:
        ValueError: If the shapes differ or are not two-dimensional.

    >>> rows = floor_rows([[0.0, 0.0]], [[0.0, np.log(3.0)]])  # (1/2, 1/2) becomes (1/4, 3/4)
    >>> float(rows.largest[0].round(4)), bool(rows.top1[0])
    (0.6931, False)
    """
    kl, top1, finite = kl_rows(prompt, single)
    largest = np.zeros(len(kl))
    if finite.any():
        p, q = (log_softmax(np.asarray(logits)[finite].astype(np.float64)) for logits in (prompt, single))
        top = np.argpartition(-p, min(TOP, p.shape[1]) - 1, axis=1)[:, :TOP]
        largest[finite] = np.abs(np.take_along_axis(q - p, top, axis=1)).max(axis=1)
    return FloorRows(kl, top1, largest, finite)


def floor_payload(start: int, rows: FloorRows) -> dict[str, Any]:
    """Strict-JSON payload of kind "floor"; a piece with a non-finite position keeps no values."""
    if not rows.finite.all():
        return {"start": start, "kl": [], "top1": [], "largest": [], "finite": False}
    return {
        "start": start,
        "kl": [float(x) for x in rows.kl],
        "top1": [int(x) for x in rows.top1],
        "largest": [float(x) for x in rows.largest],
        "finite": True,
    }


def figures(rows: Sequence[Row]) -> dict[str, Figure]:
    """The noise floor of one variant from payloads of kind "floor".

    ``kl_floor`` and ``top1_floor`` are means over positions with a t interval over blocks of 8; ``logprob_floor`` is
    the 95th percentile over positions (at least 20) of the largest change of log-probability among the 50 likeliest
    tokens, with an interval by order of the values (from 72 positions on) and the maximum in its conditions.
    """
    good = sorted((row for row in rows if row["finite"]), key=lambda row: int(row["start"]))
    reasons = ("nonfinite",) if len(good) < len(rows) else ()
    kl, top1, largest = (
        np.array([x for row in good for x in row[key]], dtype=np.float64) for key in ("kl", "top1", "largest")
    )
    return {
        "kl_floor": block_mean(kl, reasons, None, BLOCK),
        "top1_floor": block_mean(top1, reasons, 1.0, BLOCK),
        "logprob_floor": _p95(largest, reasons),
    }


def _p95(values: Floats, reasons: tuple[str, ...]) -> Figure:
    if not enough_for_percentile(95, len(values)) or not len(values):
        return missing(*reasons, "small_n" if len(values) else "not_measured", n=len(values))
    low, high = percentile_interval(values, 95) or (None, None)
    return Figure(percentile(values, 95), low, high, len(values), reasons, {"max": float(values.max())})


def beside(found: Mapping[str, Figure]) -> dict[str, Figure]:
    """``kl_mean`` and ``top1_agreement`` with the variant's own floor in their conditions.

    ``kl_mean`` gets ``within_noise`` where its interval begins at or below the end of the floor's: then the variant
    is not shown to be farther from the reference than it is from itself. Not said from fewer than 64 positions, whose
    interval is wide enough to hold anything, and not of the reference.
    """
    made = {
        key: replace(found[key], conditions={**found[key].conditions, "floor": floor.value})
        for key, own in (("kl_mean", "kl_floor"), ("top1_agreement", "top1_floor"))
        if (floor := found[own]).value is not None and key in found
    }
    score, floor = made.get("kl_mean"), found["kl_floor"]
    if score is None or score.low is None or floor.high is None or "is_reference" in score.reasons:
        return made
    if floor.n >= MIN_POSITIONS and score.low <= floor.high:
        made["kl_mean"] = replace(score, conditions={**score.conditions, "within_noise": True})
    return made
