"""Long-context figures from stored rows. Knows nothing of the texts but their ids."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

import numpy as np

from harness.record import Figure, missing
from harness.stats.interval import wilson
from harness.suites.long_context.degeneration import window_scores
from harness.suites.long_context.text import N_OPTIONS
from harness.suites.resample import DRAWS, Floats, middle_95, share_draws

CHANCE = 1 / N_OPTIONS
WEIGHTS: Mapping[str, float] = {"ledger_acc": 0.5, "tracking_acc": 0.25, "nondegeneration": 0.25}
FLOOR = CHANCE * (WEIGHTS["ledger_acc"] + WEIGHTS["tracking_acc"])
CEILING = 1.0
_FAMILIES = {"ledger_acc": ("ledger",), "tracking_acc": ("multikey", "tracking")}
_FEW_CLUSTERS = 10

Row = Mapping[str, Any]


def chosen(row: Row) -> int | None:
    """Index of the option with the highest summed log-probability; None on a tie for the first place.

    >>> chosen({"logprobs": [-3.0, -1.5, -2.0, -9.0]})
    1
    """
    scores = list(row["logprobs"])
    best = max(scores)
    return scores.index(best) if scores.count(best) == 1 else None


def finite(row: Row) -> bool:
    """Whether the engine called the row finite and every log-probability is a number."""
    return bool(row["finite"]) and all(p is not None and isfinite(p) for p in row["logprobs"])


def figures(probes: Sequence[Row], continuations: Sequence[Row], seed: int = 0) -> dict[str, Figure]:
    """All long-context figures of one variant.

    Accuracies are shares of probes whose highest summed log-probability is the gold option's; intervals redraw
    facts within texts (2,000 times). Rows with a non-finite log-probability are left out and the figure says so.

    ``coherence_1_10 = 1 + 9 clip((S - floor) / (ceiling - floor), 0, 1)`` with
    ``S = 0.5 ledger_acc + 0.25 tracking_acc + 0.25 nondegeneration``, floor = guessing and a forced loop
    (0.1875), ceiling = 1.

    Args:
        probes: Payloads of kind "probe".
        continuations: Payloads of kind "continuation".
        seed: Of the bootstrap.
    """
    good = [row for row in probes if finite(row)]
    draws: dict[str, Floats] = {}
    found: dict[str, Figure] = {}
    for shift, (key, families) in enumerate(_FAMILIES.items()):
        rows = [row for row in good if row["family"] in families]
        lost = sum(row["family"] in families for row in probes) - len(rows)
        hits = [float(chosen(row) == row["gold"]) for row in rows]
        found[key], draws[key] = _share([f"{row['text']}/{row['fact']}" for row in rows], hits, lost, seed + shift)
    found["inconsistency"] = _inconsistency(good, len(probes) - len(good), seed + 2)
    found["nondegeneration"], draws["nondegeneration"] = _nondegeneration(continuations, seed + 3)
    found["coherence_1_10"] = _coherence(found, draws)
    return found


def depth_series(probes: Sequence[Row], seed: int = 0) -> list[dict[str, float | int | None]]:
    """Share of all probes right at each depth, ascending: ``{"depth", "value", "low", "high", "n"}``."""
    series: list[dict[str, float | int | None]] = []
    for depth in sorted({row["depth"] for row in probes}):
        rows = [row for row in probes if row["depth"] == depth and finite(row)]
        hits = [float(chosen(row) == row["gold"]) for row in rows]
        figure, _ = _share([f"{row['text']}/{row['fact']}" for row in rows], hits, 0, seed)
        series.append({"depth": depth, "value": figure.value, "low": figure.low, "high": figure.high, "n": figure.n})
    return series


def at_chance(reference: Figure, chance: float = CHANCE) -> bool:
    """Whether the reference cannot be told from guessing: no value, or its interval's low end is not above chance."""
    return reference.value is None or reference.low is None or reference.low <= chance


def _share(clusters: Sequence[str], hits: Sequence[float], lost: int, seed: int) -> tuple[Figure, Floats]:
    """A share with its clustered interval, and the draws behind it."""
    reasons = ("nonfinite",) if lost else ()
    if not hits:
        return missing(*(reasons or ("not_measured",)), n=0), np.full(DRAWS, np.nan)
    value, groups = float(np.mean(hits)), len(set(clusters))
    draws = share_draws(clusters, hits, seed)
    low: float | None
    high: float | None
    low, high = middle_95(draws)
    if low == high:  # data without spread: redrawing them shows none either, so ask how many clusters agree
        sure = wilson(round(value * groups), groups)
        low, high = sure.low, sure.high
    few = ("small_n",) if groups < _FEW_CLUSTERS else ()
    return Figure(value, low, high, len(hits), reasons + few, {"clusters": groups}), draws


def _inconsistency(rows: Sequence[Row], lost: int, seed: int) -> Figure:
    """Share of facts, each at each depth, whose wordings do not all get the same answer."""
    asked: dict[tuple[str, str, int], dict[int, int | None]] = defaultdict(dict)
    for row in rows:
        asked[row["text"], row["fact"], row["depth"]][row["asked"]] = chosen(row)
    pairs = {key: list(answers.values()) for key, answers in asked.items() if len(answers) > 1}
    torn = [float(None in answers or len(set(answers)) > 1) for answers in pairs.values()]
    return _share([f"{text}/{fact}" for text, fact, _ in pairs], torn, lost, seed)[0]


def _nondegeneration(rows: Sequence[Row], seed: int) -> tuple[Figure, Floats]:
    texts: list[str] = []
    scores: list[float] = []
    distinct: list[float] = []
    good = [row for row in rows if row["finish_reason"] not in ("nonfinite", "error")]
    for row in good:
        windows = window_scores(row["tokens"])
        texts += [row["text"]] * len(windows)
        scores += [1 - window.seq_rep_4 for window in windows]
        distinct += [window.distinct_2 for window in windows]
    if good and not scores:
        return missing("undefined"), np.full(DRAWS, np.nan)
    figure, draws = _share(texts, scores, len(rows) - len(good), seed)
    if figure.value is None:
        return figure, draws
    low, high = (figure.low, figure.high) if len(set(texts)) > 1 else (None, None)
    conditions = {**figure.conditions, "distinct_2": float(np.mean(distinct))}
    return Figure(figure.value, low, high, figure.n, figure.reasons, conditions), draws


def _coherence(found: Mapping[str, Figure], draws: Mapping[str, Floats]) -> Figure:
    parts = {key: found[key] for key in WEIGHTS}
    reasons = tuple(dict.fromkeys(code for part in parts.values() for code in part.reasons))
    n = sum(part.n for part in parts.values())
    if any(part.value is None for part in parts.values()):
        return missing(*reasons, n=n)
    value = _points(np.array(sum(w * (parts[key].value or 0.0) for key, w in WEIGHTS.items())))
    low, high = middle_95(_points(sum((w * draws[key] for key, w in WEIGHTS.items()), np.zeros(DRAWS))))
    sub_scores = {key: part.value for key, part in parts.items()}
    return Figure(float(value), low, high, n, reasons, {**sub_scores, "floor": FLOOR, "ceiling": CEILING})


def _points(s: Floats) -> Floats:
    points: Floats = 1 + 9 * np.clip((s - FLOOR) / (CEILING - FLOOR), 0, 1)
    return points
