"""What speculation gains on each target with each draft: a heat map's cells, and the same in words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness.metrics.catalog import METRICS
from harness.record import CODES
from harness.report.tables import metric
from harness.report.text import DASH, Json, chip, quantity, ranks, value_of
from harness.units import significant

_SIGNS = {"faster": "▲", "slower": "▼", "even": "≈", "doubt": "?", "fault": "✕"}
_CHANGED = "FAULT: it changed the text"


@dataclass(frozen=True, slots=True)
class HeatCell:
    """A draft on a target.

    Attributes:
        tone: "faster" | "slower" | "even" (cannot be told from 1) | "doubt" (not to be relied on) | "fault" (it
            changed the text) | "none".
        strength: Of the colour, percent.
        sign: The tone as a sign, for those who see no colour.
        text: "1.14x", or a dash.
        spread: "[1.04, 1.25]"; may be empty.
        accepted: "25% accepted"; may be empty.
        why: Why there is no figure, or what voids it; else empty.
        title: The whole story on hover.
    """

    tone: str
    strength: int
    sign: str
    text: str
    spread: str
    accepted: str
    why: str
    title: str


@dataclass(frozen=True, slots=True)
class Heat:
    """Targets down, drafts across.

    Attributes:
        drafts: Name and note ("up to 4 tokens, adaptive") of each column.
        rows: Target, its own decode speed, and a cell per draft.
        words: What pays on each target, in a sentence.
    """

    drafts: tuple[tuple[str, str], ...]
    rows: tuple[tuple[str, str, tuple[HeatCell, ...]], ...]
    words: str


def heat(given: Json, variants: Sequence[Json], audits: Mapping[str, Json]) -> Heat | None:
    """The heat map; None if no cell has a speed-up.

    Args:
        given: ``{"targets", "drafts", "cells"}``, the run's series "speculation".
        variants: For each target's own speed.
        audits: The audit of each variant; a speed-up of one that changes the text is no gain.
    """
    cells = {(cell["target"], cell["draft"]): cell for cell in given.get("cells") or ()}
    if not any(cell.get("speedup") for cell in cells.values()):
        return None
    targets, drafts = [str(name) for name in given["targets"]], [str(name) for name in given["drafts"]]
    by_name = {v["name"]: v for v in variants}
    rows, told = [], []
    for target in targets:
        own = [cells.get((target, draft)) for draft in drafts]
        drawn = tuple(_cell(cell, audits) for cell in own)
        alone = value_of(metric(by_name[target], "decode_tps")) if target in by_name else None
        rows.append((target, "" if alone is None else f"{quantity('decode_tps', alone)} alone", drawn))
        told += [f"{target}: {best}"] if (best := _best(own, drawn)) else []
    heads = tuple((draft, _draft_note([cell for (_, d), cell in cells.items() if d == draft])) for draft in drafts)
    return Heat(heads, tuple(rows), f"What pays on {'; on '.join(told)}.")


def _cell(cell: Json | None, audits: Mapping[str, Json]) -> HeatCell:
    found = (cell or {}).get("speedup") or {}
    value = found.get("value")
    fault = (audits.get(str((cell or {}).get("variant"))) or {}).get("verdict") == "fault"
    if cell is None or value is None:
        code = str((cell or {}).get("why") or "not_measured")
        tone, why = ("fault", _CHANGED) if fault else ("none", chip(code).label)
        return HeatCell(tone, 0, _SIGNS.get(tone, ""), DASH, "", "", why, reason(code))
    low, high = found.get("low"), found.get("high")
    tone = "fault" if fault else "doubt" if cell.get("why") else _tone(value, low, high)
    strength = round(20 + 40 * min(1.0, abs(math.log2(value)))) if tone in ("faster", "slower") else 0
    rate = (cell.get("accept_rate") or {}).get("value")
    accepted = "" if rate is None else f"{rate:.0%} accepted"
    spread = "" if low is None or high is None else f"[{low:.2f}, {high:.2f}]"
    why = _CHANGED if fault else reason(str(cell["why"])) if cell.get("why") else ""
    return HeatCell(tone, strength, _SIGNS[tone], f"{value:.2f}x", spread, accepted, why, _story(cell, found))


def _tone(value: float, low: float | None, high: float | None) -> str:
    """Which side of 1 the interval is on; without one, a difference that matters."""
    margin = METRICS["speedup"].tolerance
    low, high = (value / (1 + margin), value * (1 + margin)) if low is None or high is None else (low, high)
    return "faster" if low > 1 else "slower" if high < 1 else "even"


def _story(cell: Json, found: Json) -> str:
    length = (cell.get("accept_len") or {}).get("value")
    parts = [
        f"{cell.get('variant')}: {quantity('speedup', found['value'], found.get('low'), found.get('high'))}",
        f"n = {found['n']}" if found.get("n") else "",
        "" if length is None else f"{significant(length)} tokens per verification",
        _tokens(cell),
    ]
    return "; ".join(part for part in parts if part)


def _tokens(cell: Json) -> str:
    if not cell.get("tokens"):
        return ""
    return f"up to {cell['tokens']} drafted, adaptive" if cell.get("adapt") else f"{cell['tokens']} drafted"


def _draft_note(cells: Iterable[Json]) -> str:
    """How much is drafted at once, where it is the same down the column."""
    notes = {_tokens(cell) for cell in cells}
    return notes.pop() if len(notes) == 1 else ""


def _best(own: Sequence[Json | None], drawn: Sequence[HeatCell]) -> str:
    """The fastest draft that is shown to pay and keeps the text; empty if nothing was measured."""
    gains = [
        (float(cell["speedup"]["value"]), str(cell["draft"]), one.text)
        for cell, one in zip(own, drawn, strict=True)
        if cell and one.tone == "faster"
    ]
    if not gains:
        tones = {one.tone for one in drawn} - {"none"}
        return "" if not tones else "cannot tell" if "doubt" in tones else "nothing"
    _, name, text = max(gains)
    return f"{name} ({text})"


def reason(why: str) -> str:
    """A reason code in words; another text as it is."""
    return CODES.get(why, why)


def pays(variants: Sequence[Json]) -> str:
    """What speculation did to decode speed, against the same settings without it."""
    told, shares = [], []
    for variant in variants:
        base = _without_speculation(variant, variants)
        fast, slow = metric(variant, "decode_tps"), metric(base, "decode_tps") if base else None
        if base and ranks(fast) and ranks(slow) and value_of(slow):
            shares.append((value_of(fast) or 0.0) / (value_of(slow) or 1.0))
            told.append(f"{variant['name']} decodes at {significant(shares[-1], 2)}x of {base['name']}")
    if not shares:
        return ""
    tolerance = METRICS["decode_tps"].tolerance
    if max(shares) < 1 - tolerance:
        lead = "Speculation loses here"
    elif min(shares) > 1 + tolerance:
        lead = "Speculation pays here"
    else:
        lead = "Speculation does not clearly pay here" if max(shares) < 1 + tolerance else "Speculation pays for some"
    return f"{lead}: {'; '.join(told)}."


def _without_speculation(variant: Json, variants: Sequence[Json]) -> Json | None:
    own = dict(variant.get("settings") or {})
    if own.get("speculate", "none") == "none":
        return None
    for other in variants:
        theirs = other.get("settings") or {}
        alike = all(theirs.get(key) == own.get(key) for key in ("weights", "kv"))
        if alike and theirs.get("speculate", "none") == "none":
            return other
    return None
