"""Speed by depth of the context, from passes in which one context grew. Knows stored rows, but no engine."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from harness.stats.interval import t_interval

Row = Mapping[str, Any]


def ttft_s(record: Row) -> list[float]:
    """Time to first token at each depth, seconds: reading everything up to it, and the first token.

    Formula: ``sum over i up to the depth of (t_i,1 - t_(i-1),m)`` with ``t_0`` when the pass was sent: what was
    generated at the depths before is left out. Each depth before adds the choice of one token, which a request of this
    length would not make.
    """
    found, total, last = [], 0, record["sent_ns"]
    for times in record["t_ns"]:
        total += times[0] - last
        last = times[-1]
        found.append(total / 1e9)
    return found


def decode_tps(record: Row) -> list[float | None]:
    """Tokens after the first over ``t_m - t_1`` at each depth; None for a single token."""
    return [
        (len(times) - 1) * 1e9 / (times[-1] - times[0]) if times[-1] > times[0] else None for times in record["t_ns"]
    ]


def series(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """One ``{"depth", "decode_tps", "ttft_s"}`` a depth, each figure as ``{"value", "low", "high", "n", "reasons"}``.

    Values are geometric means over passes, with a t interval of the logarithms. Disturbed passes are left out; where
    fewer than half were undisturbed all count, and the figures carry the codes.

    Args:
        rows: Payloads of kind "depths".
    """
    records = [row["record"] for row in rows if "record" in row]
    clean = [record for record in records if not record["codes"]]
    used = clean if 2 * len(clean) >= len(records) else records
    codes = sorted({code for record in used for code in record["codes"]})
    if not used:
        return []
    speeds, waits = [decode_tps(record) for record in used], [ttft_s(record) for record in used]
    return [
        {
            "depth": depth,
            "decode_tps": _figure([values[i] for values in speeds], codes),
            "ttft_s": _figure([values[i] for values in waits], codes),
        }
        for i, depth in enumerate(used[0]["depths"])
    ]


def left_out(rows: Sequence[Row]) -> str | None:
    """The reason code of a variant that has no passes, or None."""
    return next((str(row["left_out"]) for row in rows if "left_out" in row), None)


def _figure(values: Sequence[float | None], codes: Sequence[str]) -> dict[str, Any]:
    logs = [math.log(value) for value in values if value]
    if not logs:
        return {"value": None, "low": None, "high": None, "n": 0, "reasons": [*codes, "undefined"]}
    found = t_interval(logs)
    low, high = (None if end is None or end > 300 else math.exp(end) for end in (found.low, found.high))
    return {"value": math.exp(found.value), "low": low, "high": high, "n": found.n, "reasons": list(codes)}
