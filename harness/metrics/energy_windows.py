"""Energy per token and per correct answer from windows of many requests. Knows no meter and no clock.

A window: ``{"kind": "idle" | "prefill" | "generation", "window", "length", "requests", "prompt_tokens",
"output_tokens", "record": {"codes"}, "energy": readings}``. Prefill windows ask for one token a request, so that
nothing but the prompt is paid for; generation windows are whole requests; idle ones do nothing with the model loaded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.metrics.energy import Reading, disagreement, is_counted, total_joules, window_s
from harness.record import INFORMATIVE_CODES, Figure, missing
from harness.stats.interval import ratio_interval

Row = Mapping[str, Any]
KEYS = ("energy_j_per_token", "energy_net_j_per_token", "energy_prefill_j_per_token", "energy_decode_j_per_token")


@dataclass(frozen=True, slots=True)
class Window:
    """One window with its energy, joules, and its length, seconds."""

    number: int
    joules: float
    seconds: float
    row: Row

    def count(self, what: str) -> int:
        """Requests, prompt tokens or output tokens in it."""
        return int(self.row[what])

    @property
    def readings(self) -> Sequence[Reading]:
        """Of its meters."""
        found: Sequence[Reading] = self.row["energy"]
        return found


def windows(rows: Sequence[Row], kind: str) -> tuple[list[Window], tuple[str, ...]]:
    """The windows of a kind that count, and the codes that a figure from them carries; or none, and why.

    A disturbed window counts only where more than half of them are, and then the figure says so.
    """
    ours = [row for row in rows if row["kind"] == kind]
    found = [(row, *total_joules(row["energy"])) for row in ours]
    valid = [Window(int(row["window"]), j, window_s(row["energy"]), row) for row, j, _ in found if j is not None]
    if not valid:
        return [], tuple(sorted({reason for _, _, reason in found if reason})) or ("not_measured",)
    codes = {window.number: _voiding(window.row) for window in valid}
    clean = [window for window in valid if not codes[window.number]]
    if 2 * len(clean) >= len(valid):
        return clean, ()
    return valid, tuple(sorted({code for found in codes.values() for code in found}))


def _voiding(row: Row) -> set[str]:
    return set(row["record"]["codes"]) - INFORMATIVE_CODES


def window_figures(rows: Sequence[Row]) -> dict[str, Figure]:
    """Joules per token of one variant from its windows.

    Formulas, sums over windows: gross ``J / N``; net ``(J - idle watts x seconds) / N``, idle of the same turn where it
    has one; prefill ``J_p / P_p`` over the prefill windows, per prompt token; decode ``(J - j_p P) / (N - R)``, ``j_p``
    the prefill energy of the same turn. N output tokens, P prompt tokens, R requests of the generation windows: the
    first token of a request comes with its prompt, so N - R are decoded. Intervals: t, over windows.

    Returns:
        Figures by ``KEYS``.
    """
    generation, why = windows(rows, "generation")
    prefill, why_no_prefill = windows(rows, "prefill")
    idle, why_no_idle = windows(rows, "idle")
    found = {} if generation else dict.fromkeys(KEYS, missing(*why))
    found["energy_prefill_j_per_token"] = _prefill(prefill, why_no_prefill)
    if not generation:
        return found
    made = [window.count("output_tokens") for window in generation]
    found["energy_j_per_token"] = _figure(generation, [w.joules for w in generation], made, why)
    found["energy_net_j_per_token"] = _net(generation, idle, why, why_no_idle)
    found["energy_decode_j_per_token"] = _decode(generation, prefill, why, why_no_prefill)
    return found


def _prefill(prefill: Sequence[Window], codes: Sequence[str]) -> Figure:
    if not prefill:
        return missing(*codes)
    return _figure(prefill, [w.joules for w in prefill], [w.count("prompt_tokens") for w in prefill], codes)


def _net(generation: Sequence[Window], idle: Sequence[Window], why: Sequence[str], whence: Sequence[str]) -> Figure:
    if not idle:
        return missing(*whence)
    watts = _by_turn(idle, generation, lambda window: window.seconds)
    joules = [w.joules - rate * w.seconds for w, rate in zip(generation, watts, strict=True)]
    mean_w = sum(w.joules for w in idle) / sum(w.seconds for w in idle)
    return _figure(generation, joules, [w.count("output_tokens") for w in generation], (*why, *whence), idle_w=mean_w)


def _decode(
    generation: Sequence[Window], prefill: Sequence[Window], why: Sequence[str], whence: Sequence[str]
) -> Figure:
    if not prefill:
        return missing(*whence)
    each = _by_turn(prefill, generation, lambda window: window.count("prompt_tokens"))
    joules = [w.joules - rate * w.count("prompt_tokens") for w, rate in zip(generation, each, strict=True)]
    decoded = [w.count("output_tokens") - w.count("requests") for w in generation]
    return _figure(generation, joules, decoded, (*why, *whence))


def _by_turn(base: Sequence[Window], wanted: Sequence[Window], size: Callable[[Window], float]) -> list[float]:
    """Joules over size of the window of the same turn as each wanted one; pooled where there is none."""
    own = {window.number: window.joules / size(window) for window in base}
    pooled = sum(window.joules for window in base) / sum(map(size, base))
    return [own.get(window.number, pooled) for window in wanted]


def _figure(
    used: Sequence[Window], joules: Sequence[float], tokens: Sequence[int], reasons: Sequence[str], **more: Any
) -> Figure:
    found = ratio_interval(joules, tokens)
    # A difference of energies at or below 0 is noise, and would win every comparison.
    if found is None or found.value <= 0:
        return missing("undefined")
    codes = (*reasons, "small_n") if found.low is None else tuple(reasons)
    low = (
        None if found.low is None else max(found.low, 0.0)
    )  # few windows make wide intervals; energy is never negative
    return Figure(found.value, low, found.high, len(used), tuple(dict.fromkeys(codes)), _conditions(used) | more)


def _conditions(used: Sequence[Window]) -> dict[str, Any]:
    counted = [reading for window in used for reading in window.readings if is_counted(reading)]
    conditions: dict[str, Any] = {
        "scope": sorted({str(reading["domain"]) for reading in counted}),
        "method": sorted({str(reading["method"]) for reading in counted}),
        "resolution_s": max((float(reading.get("resolution_s") or 0.0) for reading in counted), default=0.0),
        "window_s": sum(window.seconds for window in used) / len(used),
        "prompt_tokens": int(used[0].row["length"]),
        "output_tokens": round(
            sum(window.count("output_tokens") for window in used) / sum(window.count("requests") for window in used)
        ),
    }
    doubt = next((text for window in used if (text := disagreement(window.readings))), None)
    return conditions | ({"disagreement": doubt} if doubt else {})


def log_rates(rows: Sequence[Row]) -> dict[int, float]:
    """ln(joules per token) of each generation window that counts, by its turn; for resampling."""
    found, _ = windows(rows, "generation")
    return {
        window.number: math.log(window.joules / window.count("output_tokens"))
        for window in found
        if window.joules > 0 and window.count("output_tokens")
    }


def per_correct(stretches: Sequence[Row], docs: Sequence[Mapping[str, Any]], accuracy: Figure) -> Figure:
    """Joules spent on a suite over its correct answers.

    Formula: ``sum joules / correct``. The interval is the accuracy's: at its high end the same joules give more.

    Args:
        stretches: ``{"energy": readings, "items", "codes"}`` of each stretch in which the suite ran without a break.
        docs: The suite's documents, ``correct`` each.
        accuracy: Share of the valid documents that are correct.

    Returns:
        The figure; `unmetered` where not every document was answered within a stretch.
    """
    if accuracy.value is None:
        return missing(*accuracy.reasons)
    if sum(int(stretch["items"]) for stretch in stretches) != len(docs):
        return missing("unmetered")
    found = [total_joules(stretch["energy"]) for stretch in stretches]
    if reasons := sorted({reason for value, reason in found if value is None and reason}):
        return missing(*reasons)
    correct = sum(bool(doc["correct"]) for doc in docs)
    if not correct:
        return missing("undefined")
    value = sum(joules or 0.0 for joules, _ in found) / correct
    low, high = (value * accuracy.value / share if share else None for share in (accuracy.high, accuracy.low))
    codes = sorted({str(code) for stretch in stretches for code in stretch["codes"]})
    counted = [reading for stretch in stretches for reading in stretch["energy"] if is_counted(reading)]
    conditions = {
        "scope": sorted({str(reading["domain"]) for reading in counted}),
        "method": sorted({str(reading["method"]) for reading in counted}),
        "window_s": sum(window_s(stretch["energy"]) for stretch in stretches),
    }
    reasons_of = tuple(dict.fromkeys((*accuracy.reasons, *codes)))
    return Figure(value, low, high, len(docs), reasons_of, conditions)
