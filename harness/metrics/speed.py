"""Speed figures of a variant from its trials, by catalogue key. Knows no engine, no suite and no file."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

from harness.metrics import estimators as est
from harness.metrics import request, speculation
from harness.metrics.request import Trial, trial_from_payload
from harness.metrics.trials import Usable, prompt_groups, usable
from harness.record import Figure, RequestRecord, missing
from harness.stats import compare
from harness.stats.compare import ALONE, Launches

__all__ = [
    "Trial",
    "block_log_rates",
    "block_log_ttft",
    "figure_of",
    "launches",
    "speed_figures",
    "speedup",
    "tps_by_prompt",
    "trial_from_payload",
    "ttft_by_prompt",
    "ttft_ratio",
]

# Codes without effect on a figure: the end-to-end time is valid without a stream, decode with a cached prompt.
ONLY_END = frozenset({"not_streamed"})
CACHED = frozenset({"cached_prompt"})


def _stall_s(record: RequestRecord) -> float | None:
    found = request.stalls(record)
    return None if found is None else found[1]


def _chunks(record: RequestRecord) -> float | None:
    return float(len(request.content_events(record))) or None


_FIGURES: Mapping[str, tuple[Callable[[Sequence[Trial]], Figure], frozenset[str]]] = {
    "decode_tps": (lambda ts: est.pooled(ts, request.decode_tokens, request.decode_span_s), CACHED),
    "peak_tps": (lambda ts: est.median(ts, request.peak_tps), CACHED),
    "output_tps": (lambda ts: est.pooled(ts, request.output_tokens, request.e2e_s), ONLY_END),
    "prefill_tps": (est.prefill, frozenset()),
    "ttft_s": (lambda ts: est.median(ts, request.ttft_s), frozenset()),
    "answer_ttft_s": (lambda ts: est.median(ts, request.answer_ttft_s), frozenset()),
    "ttft_p95_s": (lambda ts: est.p95(ts, request.ttft_s), frozenset()),
    "tpot_s": (lambda ts: est.median(ts, request.tpot_s), CACHED),
    "e2e_s": (lambda ts: est.median(ts, request.e2e_s), ONLY_END),
    "chars_per_s": (lambda ts: est.pooled(ts, request.chars_after_first, request.decode_span_s), CACHED),
    "bytes_per_s": (lambda ts: est.pooled(ts, request.bytes_after_first, request.decode_span_s), CACHED),
    "jitter_pct": (lambda ts: est.jitter(ts, request.e2e_s), ONLY_END),
    "ttft_jitter_pct": (lambda ts: est.jitter(ts, request.ttft_s), frozenset()),
    "icl_jitter_pct": (est.gap_jitter, CACHED),
    "icl_p95_s": (est.gap_p95, CACHED),
    "playout_lag_s": (lambda ts: est.median(ts, request.playout_lag_s), CACHED),
    "stall_s": (lambda ts: est.mean(ts, _stall_s), CACHED),
    "tokens_per_chunk": (lambda ts: est.pooled(ts, request.output_tokens, _chunks), CACHED),
    "accept_rate": (speculation.accept_rate, CACHED),
    "accept_len": (speculation.accept_len, CACHED),
    "draft_share": (speculation.draft_share, CACHED),
}


def _conditions(chosen: Usable) -> dict[str, Any]:
    lengths = sorted(set(prompt_groups(chosen.trials)))
    outputs = sorted({n for t in chosen.trials if (n := request.output_tokens(t.record)) is not None})
    conditions: dict[str, Any] = {
        "prompt_tokens": lengths,
        "output_tokens": outputs[:1] + outputs[1:][-1:],
        "blocks": len({t.block for t in chosen.trials}),
    }
    return {**conditions, "excluded": dict(chosen.excluded)} if chosen.excluded else conditions


def figure_of(trials: Sequence[Trial], compute: Callable[[Sequence[Trial]], Figure], allow: frozenset[str]) -> Figure:
    """A figure of the trials that count, with conditions and reason codes; ``allow``: codes without effect on it."""
    chosen = usable(trials, allow)
    if not chosen.trials:
        return replace(missing(*chosen.reasons), conditions=_conditions(chosen))
    figure = compute(chosen.trials)
    reasons = tuple(dict.fromkeys((*figure.reasons, *chosen.reasons)))
    return replace(figure, reasons=reasons, conditions=_conditions(chosen))


def speed_figures(trials: Sequence[Trial]) -> dict[str, Figure]:
    """Every absolute speed and speculation figure of one variant, by catalogue key.

    Blocks that took only some variants do not count: the machine may have been another one by then.
    """
    common = [trial for trial in trials if not trial.extra]
    return {key: figure_of(common, compute, allow) for key, (compute, allow) in _FIGURES.items()}


def _log_rates(trials: Sequence[Trial]) -> dict[int, float]:
    rows = est.amounts(trials, request.decode_tokens, request.decode_span_s)
    if not rows:
        return {}
    value = sum(r.amount for r in rows) / sum(r.per for r in rows)
    return {block: math.log(value * ratio) for block, ratio in est.block_ratios(rows).items()}


def block_log_rates(trials: Sequence[Trial]) -> dict[int, float]:
    """Natural logarithm of the decode rate in each block, put on equal prompt lengths."""
    return _log_rates(usable(trials, CACHED).trials)


def block_log_ttft(trials: Sequence[Trial]) -> dict[int, float]:
    """Natural logarithm of the TTFT in each block, put on equal prompt lengths around the variant's median."""
    return est.block_log_medians(usable(trials).trials, request.ttft_s)


def speedup(trials: Sequence[Trial], reference: Sequence[Trial] | None, launched: Launches = ALONE) -> Figure:
    """Decode rate over the reference's, paired by block, on the prompt lengths both have.

    ``reference`` is None for the reference itself: 1 by definition. ``launched``: ``launches`` of the run.
    """
    return _paired("decode_tps", trials, reference, launched)


def ttft_ratio(trials: Sequence[Trial], reference: Sequence[Trial] | None, launched: Launches = ALONE) -> Figure:
    """TTFT over the reference's, paired by block: below 1 is quicker.

    Formula: ``exp(mean over blocks of (mean ln TTFT - the reference's))`` over the prompt lengths both have there.
    ``reference`` is None for the reference itself: 1 by definition. ``launched``: ``launches`` of the run.
    """
    return _paired("ttft_s", trials, reference, launched)


def launches(key: str, variants: Sequence[Sequence[Trial]], reference: Sequence[Trial]) -> Launches:
    """``stats.compare.launches`` over the comparisons of all variants with the reference.

    Args:
        key: "decode_tps" or "ttft_s".
        variants: Trials of each variant but the reference.
        reference: Trials of the reference.
    """
    theirs = {trial.block: trial.launch for trial in reference}
    compared = []
    for trials in variants:
        mine = {trial.block: trial.launch for trial in trials}
        logs = block_log_ratios(key, trials, reference)
        compared.append((list(logs.values()), [(mine[block], theirs[block]) for block in logs]))
    return compare.launches(compared)


def block_log_ratios(key: str, trials: Sequence[Trial], reference: Sequence[Trial]) -> dict[int, float]:
    """Natural logarithm of a figure over the reference's in each block, on the prompt lengths both have there.

    Args:
        key: "decode_tps" or "ttft_s".
        trials: Of the variant.
        reference: Of the reference.
    """
    allow, by_cell, of_blocks = _PAIRED[key]
    mine, theirs = by_cell(usable(trials, allow).trials, usable(reference, allow).trials)
    cells = mine.keys() & theirs.keys()
    ours, base = of_blocks(mine, cells), of_blocks(theirs, cells)
    return {block: ours[block] - base[block] for block in sorted(ours.keys() & base.keys())}


def _paired(key: str, trials: Sequence[Trial], reference: Sequence[Trial] | None, launched: Launches) -> Figure:
    if reference is None:
        return Figure(1.0, 1.0, 1.0, len({t.block for t in trials}), ("is_reference",))
    logs = block_log_ratios(key, trials, reference)
    figure = compare.paired_ratio(logs, dict.fromkeys(logs, 0.0), launched=launched)
    allow = _PAIRED[key][0]
    codes = sorted({*usable(trials, allow).reasons, *usable(reference, allow).reasons})
    return replace(figure, reasons=tuple(dict.fromkeys((*figure.reasons, *codes))))


Cell = tuple[int, int]


def _by_cell(*sides: Sequence[Trial]) -> list[dict[Cell, tuple[float, float]]]:
    """Tokens and seconds of each (block, prompt length), for each side, with lengths labelled alike."""
    labels = iter(prompt_groups([trial for side in sides for trial in side]))
    found = []
    for side in sides:
        cells: dict[Cell, tuple[float, float]] = {}
        for trial in side:
            key = (trial.block, next(labels))
            tokens, seconds = request.decode_tokens(trial.record), request.decode_span_s(trial.record)
            if tokens is not None and seconds:
                before = cells.get(key, (0.0, 0.0))
                cells[key] = (before[0] + tokens, before[1] + seconds)
        found.append(cells)
    return found


def _log_ttft_by_cell(*sides: Sequence[Trial]) -> list[dict[Cell, float]]:
    """Mean ln TTFT of each (block, prompt length), for each side, with lengths labelled alike."""
    labels = iter(prompt_groups([trial for side in sides for trial in side]))
    found = []
    for side in sides:
        cells: dict[Cell, list[float]] = {}
        for trial in side:
            key = (trial.block, next(labels))
            if value := request.ttft_s(trial.record):
                cells.setdefault(key, []).append(math.log(value))
        found.append({key: math.fsum(logs) / len(logs) for key, logs in cells.items()})
    return found


def _block_means(cells: Mapping[Cell, float], wanted: Set[Cell]) -> dict[int, float]:
    """Mean of each block over the wanted cells."""
    blocks: dict[int, list[float]] = {}
    for (block, length), value in sorted(cells.items()):
        if (block, length) in wanted:
            blocks.setdefault(block, []).append(value)
    return {block: math.fsum(values) / len(values) for block, values in blocks.items()}


def _raw_log_rates(cells: Mapping[Cell, tuple[float, float]], wanted: Set[Cell]) -> dict[int, float]:
    """ln(rate) of each block over the wanted cells; as measured, since both sides have the same lengths there."""
    sums: dict[int, tuple[float, float]] = {}
    for (block, length), (tokens, seconds) in sorted(cells.items()):
        if (block, length) in wanted:
            before = sums.get(block, (0.0, 0.0))
            sums[block] = (before[0] + tokens, before[1] + seconds)
    return {block: math.log(tokens / seconds) for block, (tokens, seconds) in sums.items() if tokens > 0}


# How a figure is compared block by block: codes without effect, its value by cell, and from cells to blocks.
_PAIRED: Mapping[str, tuple[frozenset[str], Callable[..., Any], Callable[..., dict[int, float]]]] = {
    "decode_tps": (CACHED, _by_cell, _raw_log_rates),
    "ttft_s": (frozenset(), _log_ttft_by_cell, _block_means),
}


def _by_prompt(trials: Sequence[Trial], key: str) -> list[dict[str, Any]]:
    timed = [t for t in trials if t.block >= 0 and not t.extra]
    rows = []
    labels = prompt_groups(timed)
    for length in sorted(set(labels)):
        figure = figure_of([t for t, g in zip(timed, labels, strict=True) if g == length], *_FIGURES[key])
        if figure.value is not None:
            rows.append(
                {"prompt_tokens": length, "value": figure.value, "low": figure.low, "high": figure.high, "n": figure.n}
            )
    return rows


def ttft_by_prompt(trials: Sequence[Trial]) -> list[dict[str, Any]]:
    """Median TTFT for each prompt length, seconds: rows of prompt_tokens, value, low, high, n."""
    return _by_prompt(trials, "ttft_s")


def tps_by_prompt(trials: Sequence[Trial]) -> list[dict[str, Any]]:
    """Decode tokens/s for each prompt length: rows of prompt_tokens, value, low, high, n."""
    return _by_prompt(trials, "decode_tps")
