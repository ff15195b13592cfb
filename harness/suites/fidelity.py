"""How far a variant's predictions are from the reference's. Knows logits and stored rows, but no engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from harness.record import Figure, missing
from harness.stats.interval import t_interval, wilson
from harness.suites.data import suite_file, suite_yaml
from harness.suites.resample import Floats, middle_95

BLOCK = 32
_CHUNK = 16
_P99_MIN = 100
_DRAWS = 1000

Row = Mapping[str, Any]


class KlRows(NamedTuple):
    """Per position: KL divergence in nats, whether the most likely token is the same, whether all logits are finite."""

    kl: Floats
    top1: npt.NDArray[np.bool_]
    finite: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class GreedyPrompt:
    """A prompt that both models continue greedily."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where a greedy text leaves the reference's.

    Attributes:
        prompt: Id of the prompt.
        index: Tokens that agree before the first that differs; the whole length where the texts are equal.
        equal: Whether the two texts are the same.
        reference_margin: Difference of the reference's top two log-probabilities at ``index``; small means a near tie.
    """

    prompt: str
    index: int
    equal: bool
    reference_margin: float | None


def text() -> str:
    """The fixed text whose every position is compared."""
    return suite_file("fidelity/text.txt").read_text(encoding="utf-8")


def greedy_prompts(limit: int | None = None) -> tuple[GreedyPrompt, ...]:
    """The first ``limit`` prompts for greedy agreement; all of them without a limit."""
    return tuple(GreedyPrompt(item["id"], item["prompt"]) for item in suite_yaml("fidelity")["greedy_prompts"])[:limit]


def kl_rows(ref_logits: npt.ArrayLike, var_logits: npt.ArrayLike) -> KlRows:
    """Exact KL(reference || variant) over the full vocabulary at each position.

    Formula: ``sum_v p_ref(v) (log p_ref(v) - log p_var(v))``, log-softmax in float64, a few positions at a time.
    Positions with a NaN or infinite logit on either side get ``finite`` False, KL 0 and top1 False: leave them out.

    Args:
        ref_logits: Shape (positions, vocabulary).
        var_logits: The same shape.

    Raises:
        ValueError: If the shapes differ or are not two-dimensional.

    >>> float(kl_rows([[0.0, 0.0]], [[0.0, np.log(3.0)]]).kl[0].round(4))
    0.1438
    """
    ref, var = np.asarray(ref_logits), np.asarray(var_logits)
    if ref.ndim != 2 or ref.shape != var.shape:
        raise ValueError(f"kl_rows: expected two arrays (positions, vocabulary), found {ref.shape} and {var.shape}")
    n = len(ref)
    kl, top1, finite = np.zeros(n), np.zeros(n, dtype=np.bool_), np.zeros(n, dtype=np.bool_)
    for start in range(0, n, _CHUNK):
        p, q = ref[start : start + _CHUNK].astype(np.float64), var[start : start + _CHUNK].astype(np.float64)
        good = np.isfinite(p).all(axis=1) & np.isfinite(q).all(axis=1)
        at = start + np.flatnonzero(good)
        log_p, log_q = log_softmax(p[good]), log_softmax(q[good])
        kl[at] = np.maximum((np.exp(log_p) * (log_p - log_q)).sum(axis=1), 0.0)  # rounding may reach -1e-17
        top1[at] = log_p.argmax(axis=1) == log_q.argmax(axis=1)
        finite[at] = True
    return KlRows(kl, top1, finite)


def log_softmax(logits: Floats) -> Floats:
    """Natural-log probabilities along the last axis; shape (positions, vocabulary), finite."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    result: Floats = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return result


def kl_payload(start: int, rows: KlRows) -> dict[str, Any]:
    """Strict-JSON payload of kind "kl"; a piece with a non-finite position keeps no values."""
    good = bool(rows.finite.all())
    kl, top1 = ([float(x) for x in rows.kl], [int(x) for x in rows.top1]) if good else ([], [])
    return {"start": start, "kl": kl, "top1": top1, "finite": good}


def figures(
    kl: Sequence[Row],
    greedy: Sequence[Row],
    reference_greedy: Sequence[Row],
    *,
    is_reference: bool = False,
    seed: int = 0,
) -> dict[str, Figure]:
    """All fidelity figures of one variant.

    ``kl_mean`` and ``top1_agreement`` are means over positions with a t interval over blocks of 32 positions;
    ``kl_p99`` is the 99th percentile (>= 100 positions) with a bootstrap over blocks; ``greedy_agree_tokens`` is the
    mean first divergence over prompts with a t interval.

    Args:
        kl: Payloads of kind "kl".
        greedy: Payloads of kind "greedy".
        reference_greedy: The same of the reference.
        is_reference: Whether the variant is the reference: then the figures hold by definition.
        seed: Of the bootstrap.
    """
    if is_reference:
        return _of_reference([len(row["tokens"]) for row in greedy])
    good = sorted((row for row in kl if row["finite"]), key=lambda row: int(row["start"]))
    reasons = ("nonfinite",) if len(good) < len(kl) else ()
    values = np.array([x for row in good for x in row["kl"]], dtype=np.float64)
    agreed = np.array([x for row in good for x in row["top1"]], dtype=np.float64)
    return {
        "kl_mean": block_mean(values, reasons, upper=None),
        "kl_p99": _p99(values, reasons, seed),
        "top1_agreement": block_mean(agreed, reasons, upper=1.0),
        "greedy_agree_tokens": _greedy(divergences(greedy, reference_greedy)),
    }


def _of_reference(lengths: Sequence[int]) -> dict[str, Figure]:
    code = "is_reference"
    fixed = {"kl_mean": 0.0, "kl_p99": 0.0, "top1_agreement": 1.0}
    found = {key: Figure(value, value, value, 0, (code,)) for key, value in fixed.items()}
    mean = sum(lengths) / len(lengths) if lengths else None
    agree = missing(code, "not_measured") if mean is None else Figure(mean, mean, mean, len(lengths), (code,))
    return found | {"greedy_agree_tokens": agree}


def divergences(greedy: Sequence[Row], reference_greedy: Sequence[Row]) -> list[Divergence]:
    """First divergence of each prompt that both models continued, in the variant's order.

    Where one text is the beginning of the other, they part where the shorter one ends.
    """
    references = {row["prompt"]: row for row in reference_greedy}
    found: list[Divergence] = []
    for row in greedy:
        reference = references.get(row["prompt"])
        if reference is None:
            continue
        ours, theirs = row["tokens"], reference["tokens"]
        differs = (i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b)
        index = next(differs, min(len(ours), len(theirs)))
        equal, margins = ours == theirs, reference["margins"] or []
        margin = None if equal or index >= len(margins) else float(margins[index])
        found.append(Divergence(row["prompt"], index, equal, margin))
    return found


def _blocks(values: Floats, size: int) -> list[Floats]:
    """Consecutive blocks of ``size`` positions; a rest of fewer than half of that joins the last block."""
    edges = list(range(size, len(values), size))
    if edges and len(values) - edges[-1] < size // 2:
        edges.pop()
    return np.split(values, edges)


def block_mean(values: Floats, reasons: tuple[str, ...], upper: float | None, size: int = BLOCK) -> Figure:
    """Mean over positions with a t interval over blocks of ``size``, cut at 0 and ``upper``."""
    if len(values) == 0:
        return missing(*(reasons or ("not_measured",)))
    mean = float(values.mean())
    found = t_interval(np.array([block.mean() for block in _blocks(values, size)]))
    if found.low is None or found.high is None:
        return Figure(mean, None, None, len(values), (*reasons, "small_n"))
    low, high = max(0.0, min(found.low, mean)), max(found.high, mean)
    if upper is None:
        return Figure(mean, low, high, len(values), reasons)
    if mean == upper:  # no disagreement at all: the blocks show no spread, so ask how many positions agree
        low = wilson(len(values), len(values)).low or 0.0
    return Figure(mean, low, min(upper, high), len(values), reasons)


def _p99(values: Floats, reasons: tuple[str, ...], seed: int) -> Figure:
    if len(values) < _P99_MIN:
        return missing(*reasons, "small_n" if len(values) else "not_measured", n=len(values))
    whole = values[: len(values) // BLOCK * BLOCK].reshape(-1, BLOCK)
    picks = np.random.default_rng(seed).integers(0, len(whole), size=(_DRAWS, len(whole)))
    draws = np.percentile(whole[picks].reshape(_DRAWS, -1), 99, axis=1)
    low, high = middle_95(draws)
    value = float(np.percentile(values, 99))
    return Figure(value, min(low, value), max(high, value), len(values), reasons)


def _greedy(found: Sequence[Divergence]) -> Figure:
    if not found:
        return missing("not_measured")
    lengths = np.array([d.index for d in found], dtype=np.float64)
    mean, conditions = t_interval(lengths), {"identical": sum(d.equal for d in found)}
    if mean.low is None:
        return Figure(mean.value, None, None, mean.n, ("small_n",), conditions)
    return Figure(mean.value, max(0.0, mean.low), mean.high, mean.n, (), conditions)
