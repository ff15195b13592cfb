"""How quiet the machine was while it measured, and what follows for the figures."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

import numpy as np

from harness.metrics.sentinel import LIMIT, by_block, in_order, replaced, round_of, speeds
from harness.record import Figure
from harness.results.model import Payload, RunData, VariantRun
from harness.results.precision import precision
from harness.stats.drift import drift
from harness.units import half_width, significant

Json = dict[str, Any]
AllFigures = Mapping[str, Mapping[str, Figure]]
LOADS = ("steal_share", "other_share", "psi_some_share", "wait_share")
# A machine is called quiet up to these shares of trials that stayed disturbed and of rounds that moved and count.
MOST_TRIALS, MOST_ROUNDS = 0.02, 0.10


def short(run: RunData) -> Json:
    """The ``conditions.quiet`` entry: means over trials, and counts."""
    rows = _rows(run)
    shares = {key: _load(rows, key) for key in ("psi_some_share", "steal_share", "other_share")}
    return {
        **{key: math.fsum(values) / len(values) if values else None for key, values in shares.items()},
        "contended_trials": sum("contended" in row["record"]["codes"] for row in rows),
        "repeated_trials": sum(row["attempt"] > 1 for row in rows),
        "trials": len(rows),
    }


def quiet(run: RunData, found: AllFigures) -> Json:
    """The ``quiet`` entry of results.json; what an older run did not record is None."""
    rows = _rows(run)
    entry: Json = {
        "trials": _trials(rows),
        "load": {key: _spread(_load(rows, key)) for key in LOADS},
        "clock": _clock(rows),
        "sentinel": _sentinel(run.facts.get("sentinels") or ()),
        "warm_up": {variant.name: _warm_up(variant) for variant in run.variants},
        "precision": precision(run, found),
    }
    calm, said = _sentence(entry, found)
    return {"quiet": calm, "sentence": said, **entry}


def _rows(run: RunData) -> list[Payload]:
    return [row for variant in run.variants for row in variant.rows("speed", "trials")]


def _load(rows: Sequence[Payload], key: str) -> list[float]:
    return [row["contention"][key] for row in rows if row["contention"].get(key) is not None]


def _spread(values: Sequence[float]) -> Json | None:
    return {"median": median(values), "worst": max(values), "n": len(values)} if values else None


def _trials(rows: Sequence[Payload]) -> Json:
    waits = [row["waited_s"] for row in rows if row.get("waited_s") is not None]
    codes = [set(row["record"]["codes"]) for row in rows]
    return {
        "n": len(rows),
        "contended": sum("contended" in found for found in codes),
        "throttled": sum("throttled" in found for found in codes),
        "disturbed": sum(bool(found & {"contended", "throttled"}) for found in codes),
        "repeated": sum(row["attempt"] > 1 for row in rows),
        "attempts": sum(row["attempt"] for row in rows),
        "waited_s": math.fsum(waits) if waits else None,
    }


def _clock(rows: Sequence[Payload]) -> Json:
    """The largest fall of frequency and rise of temperature over one trial, and throttle events; None if not read."""
    ratios, rises, events = (_load(rows, key) for key in ("frequency_ratio", "temperature_rise_c", "throttled"))
    return {
        "least_frequency_ratio": min(ratios, default=None),
        "most_temperature_rise_c": max(rises, default=None),
        "throttle_events": sum(events) if events else None,
    }


def _sentinel(readings: Sequence[Payload]) -> Json | None:
    """Rounds over which the machine's speed moved, and its course: each reading over the median of its kind."""
    if not readings:
        return None
    rows = in_order(readings)
    changes, dropped = by_block(rows), replaced(rows)
    rounds = {row["block"]: round_of(row) for row in rows}
    repeats = {row["block"] for row in rows if row["replaces"] is not None and not row.get("anew")}
    over = {block for block, change in changes.items() if change is not None and change > LIMIT}
    course = [
        {"block": row["block"], "end": row["end"], "again": row["replaces"] is not None, **of}
        for row, of in zip(rows, speeds(rows), strict=True)
    ]
    return {
        "rounds": len(set(rounds.values())),
        "moved": sorted({rounds[block] for block in over - repeats}),
        "run_again": sorted({rounds[block] for block in repeats}),
        "still_moved": sorted(rounds[block] for block in over - dropped),
        "memory_bytes_s": _memory([row["bandwidth"] for row in rows if row["block"] not in dropped]),
        "course": course,
        "drift": {key: _drift(course, [row["by"] for row in rows], key) for key in ("bandwidth", "decode")},
    }


def _memory(read: Sequence[float | None]) -> Json | None:
    """Memory bandwidth around the rounds that count, bytes/s: 5th percentile, median, 95th.

    Ratios between variants are of a machine with such memory: what is limited by it gains where it is slow.
    """
    known = [value for value in read if value]
    if not known:
        return None
    low, middle, high = (float(value) for value in np.percentile(known, (5, 50, 95)))
    return {"low": low, "median": middle, "high": high, "n": len(known)}


def _drift(course: Sequence[Json], by: Sequence[str], key: str) -> Json | None:
    """Whether one of the two became slower or faster over the run."""
    known = [
        (place, point[key], name) for place, (point, name) in enumerate(zip(course, by, strict=True)) if point[key]
    ]
    if not known:
        return None
    places, values, names = zip(*known, strict=True)
    found = drift(places, values, names if key == "decode" else [""] * len(names))
    return None if found is None else asdict(found)


def _warm_up(variant: VariantRun) -> Json | None:
    loaded = variant.rows("engine", "load")
    warm = loaded[0].get("warm") if loaded else None
    return {"flat": bool(warm["flat"]), "n": len(warm["seconds"])} if warm else None


def _sentence(entry: Json, found: AllFigures) -> tuple[bool | None, str]:
    """Whether the machine was quiet, and what follows for the figures, for a person."""
    trials, sentinel = entry["trials"], entry["sentinel"]
    if not trials["n"]:
        return None, "Nothing was timed, so it is not known how quiet the machine was."
    moved, rounds = (len(sentinel["still_moved"]), sentinel["rounds"]) if sentinel else (0, 0)
    drifts = list(_drifts(sentinel)) if sentinel else []
    calm = trials["disturbed"] <= MOST_TRIALS * trials["n"] and moved <= MOST_ROUNDS * rounds and not drifts
    what = "ran throttled" if trials["throttled"] and not trials["contended"] else "ran beside other load"
    what += " or throttled" if trials["throttled"] and trials["contended"] else ""
    facts = [f"{trials['disturbed'] or 'none'} of {trials['n']} trials {what}"]
    facts += [f"in {moved} of {rounds} rounds the machine changed its speed by more than 5%"] * bool(moved)
    facts += drifts
    lead = "The machine was quiet" if calm else "Not quiet"
    return calm, f"{lead}: {', '.join(facts)}. {_consequence(entry, found)}".strip()


def _drifts(sentinel: Json) -> Iterator[str]:
    for key, name in (("bandwidth", "memory"), ("decode", "decoding")):
        one = sentinel["drift"][key]
        if one and one["flagged"]:
            way = "slower" if one["change"] < 0 else "faster"
            yield f"{name} became {abs(100 * one['change']):.0f}% {way} over the run"


def _consequence(entry: Json, found: AllFigures) -> str:
    variants: Mapping[str, Json] = entry["precision"]["variants"]
    speeds = [v["decode_tps"] for v in variants.values() if v["decode_tps"] is not None]
    ratios = [v["speedup"] for v in variants.values() if v["speedup"] is not None]
    void = [name for name in variants if found[name]["speedup"].value is not None and not found[name]["speedup"].ranks]
    said = f"Speeds are known to {half_width(max(speeds))}" if speeds else ""
    if ratios:
        said += f"{', ' if said else ''}ratios to the reference, which are paired within rounds, "
        said += f"to {half_width(max(ratios))}"
    said += f" or better{_where(entry['sentinel'])}." if said else ""
    if void:
        who = f"ratios of {', '.join(void)}" if len(void) < len(ratios) else "ratios"
        said += f" The {who} rest on disturbed trials, or on few between them, and do not rank."
    return said.strip()


def _where(sentinel: Json | None) -> str:
    """The memory speed for which it holds: machines that share their memory give others at other times."""
    memory = sentinel and sentinel["memory_bytes_s"]
    if not memory:
        return ""
    low, high = (significant(memory[end] / 1e9) for end in ("low", "high"))
    return f", on a machine whose memory gives {low}{f' to {high}' if high != low else ''} GB/s"
