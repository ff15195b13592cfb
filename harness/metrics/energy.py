"""From raw readings of energy counters to joules per token. Knows no meter and no clock.

A reading: ``{"domain": "package-0", "method": "rapl" | "nvml" | "estimate:...", "unit": "uj" | "mj" | "j",
"resolution_s", "before", "after", "range", "window_s", "power_j", "low_j", "high_j", "reason"}``; the counter before
and after a window.

The energy of a window is the sum over counters that do not contain one another: processor packages, memory,
GPUs. If one of them has no valid delta, the window has none: a partial sum would look frugal. Estimates
are used only where there is no counter at all, carry `estimated_energy` and never rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness.metrics.request import Trial, output_tokens
from harness.metrics.trials import usable
from harness.record import Figure, missing

Reading = Mapping[str, Any]
JOULES_PER_UNIT: Mapping[str, float] = {"uj": 1e-6, "mj": 1e-3, "j": 1.0}
# Where a reading does not tell its own: RAPL steps about every 1 ms, NVML every 100 ms. Three steps: the error at the
# edges, up to one step, then averages out over windows.
STEP_S: Mapping[str, float] = {"rapl": 0.001, "nvml": 0.1}
MIN_STEPS = 3
# No processor package draws more, no other device, and no hall of them: a counter that would have had to grow or wrap
# faster was reset, or its reading is garbage.
MOST_W: Mapping[str, float] = {"rapl": 1e3, "command": 1e6}
MOST_DEVICE_W = 1e4
# psys holds the packages, and a package holds its core and uncore: adding those would count twice.
COUNTED = ("package", "dram", "gpu")
# A device reports power as an average over about a second; shorter windows are not compared with it, nor energies so
# small that rounding shows.
POWER_WINDOW_S = 4.0
POWER_TOLERANCE = 0.25
# Energy does not depend on how the text arrived.
ALLOW = frozenset({"not_streamed"})


@dataclass(frozen=True, slots=True)
class EnergyTrial:
    """A request with the estimate taken around it."""

    trial: Trial
    readings: tuple[Reading, ...]


def is_estimate(reading: Reading) -> bool:
    """Whether no counter stands behind a reading."""
    return str(reading["method"]).startswith("estimate")


def is_counted(reading: Reading) -> bool:
    """Whether a reading's domain enters the sum."""
    name = str(reading["domain"]).lower().rpartition(":")[2]
    return reading["method"] != "rapl" or name.startswith(COUNTED)


def joules(reading: Reading) -> tuple[float | None, str | None]:
    """Energy of one reading.

    Formula: ``(after - before) x unit``, plus the counter's range if it wrapped. An estimate without
    before and after is the middle of its interval.

    Returns:
        (joules, None), or (None, reason code): the reading's own; `counter_invalid` if the counter went
        backwards and its range is unknown or does not explain it, or faster than any device could draw;
        `below_resolution` if it did not move or the window is shorter than three of its steps.

    Raises:
        KeyError: If the unit is unknown.

    >>> joules({"domain": "rapl:package-0", "method": "rapl", "unit": "uj", "before": 262143000000,
    ...         "after": 1671150, "range": 262143328850, "window_s": 1.0})
    (2.0, None)
    """
    if reading.get("reason"):
        return None, str(reading["reason"])
    unit, before, after = JOULES_PER_UNIT[reading["unit"]], reading.get("before"), reading.get("after")
    if is_estimate(reading) and (before is None or after is None):
        low, high = reading.get("low_j"), reading.get("high_j")
        return ((low + high) / 2, None) if low is not None and high is not None else (None, "not_measured")
    if before is None or after is None:
        return None, "not_measured"
    delta, window = after - before, reading.get("window_s")
    if delta < 0:
        # Only a counter with a known range wraps; a GPU's restarts with its driver.
        delta += reading.get("range") or 0
    too_much = window and delta * unit > MOST_W.get(reading["method"], MOST_DEVICE_W) * window
    if delta < 0 or too_much:
        return None, "counter_invalid"
    step_s = reading.get("resolution_s") or STEP_S.get(reading["method"], 0.0)
    too_short = window is not None and window < MIN_STEPS * step_s
    return (None, "below_resolution") if delta == 0 or too_short else (delta * unit, None)


def total_joules(readings: Sequence[Reading]) -> tuple[float | None, str | None]:
    """Joules of one window over its counted domains, or the reason why there are none."""
    counted = [r for r in readings if is_counted(r)]
    chosen = [r for r in counted if not is_estimate(r) and r.get("reason") != "no_counter"]
    chosen = chosen or [r for r in counted if is_estimate(r)]
    if not chosen:
        return None, next((str(r["reason"]) for r in readings if r.get("reason")), "no_counter")
    total = 0.0
    for reading in chosen:
        value, reason = joules(reading)
        if value is None:
            return None, reason
        total += value
    return total, None


def disagreement(readings: Sequence[Reading]) -> str | None:
    """What to say where a counter and the power that its device reports cannot both be right, else None.

    The counter's energy must be within 25% of the reported power summed up over the same window.
    """
    for reading in readings:
        value, window, summed = joules(reading)[0], reading.get("window_s") or 0.0, reading.get("power_j")
        if value is None or summed is None or window < POWER_WINDOW_S:
            continue
        if abs(value - summed) > POWER_TOLERANCE * max(value, summed):
            said = f"its counter says {value / window:.0f} W, the device reports {summed / window:.0f} W"
            return f"{reading['domain']}: {said}"
    return None


def window_s(readings: Sequence[Reading]) -> float:
    """Length of a window, seconds."""
    return max((float(r.get("window_s") or 0.0) for r in readings), default=0.0)


def estimated_figures(
    rows: Sequence[EnergyTrial], idle_w: float | None = None, why_no_idle: str = "not_measured"
) -> dict[str, Figure]:
    """Gross and net joules per generated token of one variant where there is no counter, by the labelled estimate.

    Formula: gross = ``sum joules / sum N``; net = ``(sum joules - idle_w x sum window) / sum N``, over the timed
    requests. The interval is the estimate's own, far wider than the spread between requests.

    Args:
        rows: Its requests with their estimates.
        idle_w: Estimated power with the model loaded and nothing to do, watts; None if there is none.
        why_no_idle: The reason code then.

    Returns:
        Figures `energy_j_per_token` and `energy_net_j_per_token`.
    """
    chosen = usable([row.trial for row in rows], ALLOW)
    kept = {id(t) for t in chosen.trials}
    timed = [row for row in rows if id(row.trial) in kept and output_tokens(row.trial.record)]
    found = [(row, *total_joules(row.readings)) for row in timed]
    valid = [(row, value) for row, value, _ in found if value is not None]
    if not valid:
        reasons = sorted({reason for _, _, reason in found if reason} or chosen.reasons or {"no_counter"})
        return dict.fromkeys(("energy_j_per_token", "energy_net_j_per_token"), missing(*reasons))
    readings = [r for row, _ in valid for r in row.readings if is_estimate(r)]
    tokens = sum(output_tokens(row.trial.record) or 0 for row, _ in valid)
    total, seconds = sum(value for _, value in valid), sum(window_s(row.readings) for row, _ in valid)
    low, high = (_bound(readings, key, tokens) for key in ("low_j", "high_j"))
    conditions = {
        "scope": sorted({str(r["domain"]) for r in readings}),
        "method": sorted({str(r["method"]) for r in readings}),
        "window_s": seconds,
    }
    codes = (*chosen.reasons, "estimated_energy")
    gross = Figure(total / tokens, low, high, len(valid), codes, conditions)
    if idle_w is None:
        return {"energy_j_per_token": gross, "energy_net_j_per_token": missing(why_no_idle)}
    net = replace(gross, value=(total - idle_w * seconds) / tokens, low=None, high=None)
    return {"energy_j_per_token": gross, "energy_net_j_per_token": net}


def _bound(readings: Sequence[Reading], key: str, tokens: int) -> float | None:
    bounds = [r.get(key) for r in readings]
    return None if any(bound is None for bound in bounds) else sum(bound or 0.0 for bound in bounds) / tokens
