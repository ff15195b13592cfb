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

__all__ = [
    "Trial",
    "block_log_rates",
    "block_log_ttft",
    "speed_figures",
    "speedup",
    "tps_by_prompt",
    "trial_from_payload",
    "ttft_by_prompt",
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
    "ttft_p95_s": (est.ttft_p95, frozenset()),
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


def _figure(trials: Sequence[Trial], compute: Callable[[Sequence[Trial]], Figure], allow: frozenset[str]) -> Figure:
    chosen = usable(trials, allow)
    if not chosen.trials:
        return replace(missing(*chosen.reasons), conditions=_conditions(chosen))
    figure = compute(chosen.trials)
    reasons = tuple(dict.fromkeys((*figure.reasons, *chosen.reasons)))
    return replace(figure, reasons=reasons, conditions=_conditions(chosen))


def speed_figures(trials: Sequence[Trial]) -> dict[str, Figure]:
    """Every speed and speculation figure of one variant, by catalogue key."""
    return {key: _figure(trials, compute, allow) for key, (compute, allow) in _FIGURES.items()}


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


def speedup(trials: Sequence[Trial], reference: Sequence[Trial] | None) -> Figure:
    """Decode rate over the reference's, paired by block, on the prompt lengths both have.

    ``reference`` is None for the reference itself: 1 by definition.
    """
    if reference is None:
        return Figure(1.0, 1.0, 1.0, len({t.block for t in trials}), ("is_reference",))
    chosen, base = usable(trials, CACHED), usable(reference, CACHED)
    mine, theirs = _by_cell(chosen.trials, base.trials)
    cells = mine.keys() & theirs.keys()
    figure = compare.paired_ratio(_raw_log_rates(mine, cells), _raw_log_rates(theirs, cells))
    codes = sorted({*chosen.reasons, *base.reasons})
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


def _raw_log_rates(cells: Mapping[Cell, tuple[float, float]], wanted: Set[Cell]) -> dict[int, float]:
    """ln(rate) of each block over the wanted cells; as measured, since both sides have the same lengths there."""
    sums: dict[int, tuple[float, float]] = {}
    for (block, length), (tokens, seconds) in sorted(cells.items()):
        if (block, length) in wanted:
            before = sums.get(block, (0.0, 0.0))
            sums[block] = (before[0] + tokens, before[1] + seconds)
    return {block: math.log(tokens / seconds) for block, (tokens, seconds) in sums.items() if tokens > 0}


def _by_prompt(trials: Sequence[Trial], key: str) -> list[dict[str, Any]]:
    timed = [t for t in trials if t.block >= 0]
    rows = []
    labels = prompt_groups(timed)
    for length in sorted(set(labels)):
        figure = _figure([t for t, g in zip(timed, labels, strict=True) if g == length], *_FIGURES[key])
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
