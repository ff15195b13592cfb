"""From raw readings of energy counters to joules per token. Knows no meter and no clock.

A reading: ``{"domain": "rapl:package-0", "method": "rapl" | "nvml" | "estimate:...", "unit": "uj" | "mj" | "j",
"before", "after", "range", "window_s", "low_j", "high_j", "reason"}``; the counter before and after one request.

A request's energy is the sum over counters that do not contain one another: processor packages, memory,
GPUs. If one of them has no valid delta, the request has none: a partial sum would look frugal. Estimates
are used only where there is no counter at all, carry `estimated_energy` and never rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness.metrics.request import Trial, output_tokens
from harness.metrics.trials import usable
from harness.record import Figure, missing
from harness.stats.interval import Interval, ratio_interval

Reading = Mapping[str, Any]
JOULES_PER_UNIT: Mapping[str, float] = {"uj": 1e-6, "mj": 1e-3, "j": 1.0}
# Counters step about every 1 ms (RAPL) and 100 ms (NVML). Three steps: the error at the edges, up to one
# step, then averages out over the requests of a run.
STEP_S: Mapping[str, float] = {"rapl": 0.001, "nvml": 0.1}
MIN_STEPS = 3
# psys holds the packages, and a package holds its core and uncore: adding those would count twice.
COUNTED = ("package", "dram", "gpu")
# A device reports power as an average over about a second; shorter windows are not compared with it.
POWER_WINDOW_S = 2.0
POWER_TOLERANCE = 0.25
# Energy does not depend on how the text arrived.
ALLOW = frozenset({"not_streamed"})


@dataclass(frozen=True, slots=True)
class EnergyTrial:
    """A request with the readings taken around it."""

    trial: Trial
    readings: tuple[Reading, ...]


def is_estimate(reading: Reading) -> bool:
    """Whether no counter stands behind a reading."""
    return str(reading["method"]).startswith("estimate")


def is_counted(reading: Reading) -> bool:
    """Whether a reading's domain enters the sum."""
    name = str(reading["domain"]).lower().rpartition(":")[2]
    return is_estimate(reading) or reading["method"] == "nvml" or name.startswith(COUNTED)


def joules(reading: Reading) -> tuple[float | None, str | None]:
    """Energy of one reading.

    Formula: ``(after - before) x unit``, plus the counter's range if it wrapped. An estimate without
    before and after is the middle of its interval.

    Returns:
        (joules, None), or (None, reason code): the reading's own; `counter_invalid` if the counter went
        backwards and its range is unknown or does not explain it; `below_resolution` if it did not move or
        the window is shorter than three of its steps.

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
    delta = after - before
    if delta < 0:
        # Only a counter with a known range wraps; a GPU's restarts with its driver.
        if not reading.get("range"):
            return None, "counter_invalid"
        delta += reading["range"]
        if delta < 0:
            return None, "counter_invalid"
    window = reading.get("window_s")
    too_short = window is not None and window < MIN_STEPS * STEP_S.get(reading["method"], 0.0)
    return (None, "below_resolution") if delta == 0 or too_short else (delta * unit, None)


def request_joules(readings: Sequence[Reading]) -> tuple[float | None, str | None]:
    """Joules of one request over its counted domains, or the reason why there are none."""
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

    The counter's mean power must lie within 25% of the range between the powers reported at both ends.
    """
    for reading in readings:
        value, window, powers = joules(reading)[0], reading.get("window_s") or 0.0, reading.get("power_range_w")
        if value is None or not powers or window < POWER_WINDOW_S:
            continue
        mean = value / window
        if not powers[0] * (1 - POWER_TOLERANCE) <= mean <= powers[1] * (1 + POWER_TOLERANCE):
            return f"{reading['domain']}: its counter says {mean:.0f} W, the device reports {powers[1]:.0f} W"
    return None


def _window_s(readings: Sequence[Reading]) -> float:
    return max((float(r.get("window_s") or 0.0) for r in readings), default=0.0)


def _bounds(rows: Sequence[EnergyTrial], tokens: float) -> tuple[float | None, float | None]:
    """An estimate's own interval, far wider than the spread between requests."""
    readings = [r for row in rows for r in row.readings if is_estimate(r)]
    if any(r.get("low_j") is None or r.get("high_j") is None for r in readings):
        return None, None
    return sum(r["low_j"] for r in readings) / tokens, sum(r["high_j"] for r in readings) / tokens


def _per_token(rows: Sequence[tuple[EnergyTrial, float]]) -> Interval | None:
    """Joules over tokens with an interval over blocks, over requests where there is one block."""
    sums: dict[int, list[float]] = {}
    one_block = len({row.trial.block for row, _ in rows}) < 2
    for i, (row, value) in enumerate(rows):
        total = sums.setdefault(i if one_block else row.trial.block, [0.0, 0.0])
        total[0] += value
        total[1] += output_tokens(row.trial.record) or 0
    return ratio_interval([a for a, _ in sums.values()], [b for _, b in sums.values()])


def energy_figures(
    rows: Sequence[EnergyTrial], idle_w: float | None = None, why_no_idle: str = "not_measured"
) -> dict[str, Figure]:
    """Gross and net joules per generated token of one variant.

    Formula: gross = ``sum joules / sum N``; net = ``(sum joules - idle_w x sum window) / sum N``. Loading
    and warm-up are outside the windows.

    Args:
        rows: Its requests with their readings.
        idle_w: Idle power of the same domains with the model loaded, watts; None if there is none.
        why_no_idle: The reason code then.

    Returns:
        Figures `energy_j_per_token` and `energy_net_j_per_token`.
    """
    chosen = usable([row.trial for row in rows], ALLOW)
    kept = {id(t) for t in chosen.trials}
    timed = [row for row in rows if id(row.trial) in kept and output_tokens(row.trial.record)]
    found = [(row, *request_joules(row.readings)) for row in timed]
    valid = [(row, value) for row, value, _ in found if value is not None]
    if not valid:
        reasons = sorted({reason for _, _, reason in found if reason} or chosen.reasons or {"no_counter"})
        return dict.fromkeys(("energy_j_per_token", "energy_net_j_per_token"), missing(*reasons))
    gross = _gross(valid, chosen.reasons)
    if idle_w is None:
        return {"energy_j_per_token": gross, "energy_net_j_per_token": missing(why_no_idle)}
    net_rows = [(row, value - idle_w * _window_s(row.readings)) for row, value in valid]
    net = _gross(net_rows, chosen.reasons)
    if "estimated_energy" in net.reasons:
        net = replace(net, low=None, high=None)
    return {"energy_j_per_token": gross, "energy_net_j_per_token": net}


def _gross(valid: Sequence[tuple[EnergyTrial, float]], reasons: tuple[str, ...]) -> Figure:
    used = [row for row, _ in valid]
    found = _per_token(valid)
    if found is None:
        return missing("undefined")
    readings = [r for row in used for r in row.readings if is_counted(r) and not r.get("reason")]
    counters = [r for r in readings if not is_estimate(r)]
    conditions: dict[str, Any] = {
        "scope": sorted({str(r["domain"]) for r in counters or readings}),
        "method": sorted({str(r["method"]) for r in counters or readings}),
        "window_s": sum(_window_s(row.readings) for row in used),
    }
    doubt = next((text for row in used if (text := disagreement(row.readings))), None)
    conditions |= {"disagreement": doubt} if doubt else {}
    low, high = found.low, found.high
    if not counters:
        low, high = _bounds(used, sum(output_tokens(row.trial.record) or 0 for row in used))
        reasons = (*reasons, "estimated_energy")
    elif low is None:
        reasons = (*reasons, "small_n")
    return Figure(found.value, low, high, len(used), reasons, conditions)
