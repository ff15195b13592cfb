"""The section on how quiet the machine was: one sentence, what disturbed the run, and the precision reached."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.report.figures import Figure
from harness.report.frame import axis, layout, plain
from harness.report.tables import Column, Grid, Row
from harness.report.text import DASH, Cell, Json, plural, sentence
from harness.units import half_width, si

Pairs = tuple[tuple[str, str], ...]
_LIMIT = 5  # percent; a round over which the machine's speed moved by more is run again
_LOADS = (("steal_share", "steal"), ("other_share", "other processes"), ("psi_some_share", "tasks waiting for a CPU"),
          ("wait_share", "our threads waiting"))  # fmt: skip
_WIDTHS = (
    ("decode_tps", "decode speed", "half of its own 95% interval"),
    ("speedup", "speed-up", "half of the 95% interval of its ratio to the reference, paired by round"),
    ("ttft_s", "TTFT", "half of its own 95% interval"),
    ("ttft_ratio", "TTFT ratio", "half of the 95% interval of its ratio to the reference, paired by round"),
)
_LINES = (
    ("decode", "decode speed", "@c0", "solid", "circle"),
    ("bandwidth", "memory bandwidth", "@c3", "dot", "square"),
)


@dataclass(frozen=True, slots=True)
class Quiet:
    """The section: a finding, what follows from it, and the rest; parts without data are empty or None."""

    finding: str
    consequence: str
    facts: Pairs
    course: Figure | None
    precision: Grid | None
    asked: str


def section(results: Json, order: Sequence[str]) -> Quiet | None:
    """The section, or None for results of before it was recorded.

    Args:
        results: The content of results.json.
        order: Variants in the page's order.
    """
    given: Json | None = results.get("quiet")
    if not given:
        return None
    facts = tuple((name, text) for name, text in _facts(given) if text)
    precision = given["precision"]
    asked = ", ".join(f"{key} {half_width(most)}" for key, most in (precision.get("asked") or {}).items())
    reference = next((v["name"] for v in results.get("variants") or () if v.get("reference")), None)
    grid = _grid(precision, [name for name in order if name in precision["variants"]], reference)
    finding, _, rest = str(given["sentence"]).partition(". ")
    return Quiet(sentence(finding), rest, facts, _course(given.get("sentinel")), grid, asked)


def _facts(given: Json) -> Iterator[tuple[str, str]]:
    trials, sentinel = given["trials"], given.get("sentinel")
    if trials["n"]:
        yield (
            "Trials",
            (
                f"{trials['n']:,} timed; {trials['repeated']:,} repeated, with {trials['attempts'] - trials['n']:,} "
                f"more attempts; {trials['contended']:,} kept beside other load, {trials['throttled']:,} throttled"
            ),
        )
    if trials.get("waited_s") is not None:
        yield "Waited for quiet", f"{trials['waited_s']:,.0f} s in all"
    loads = [(name, given["load"].get(key)) for key, name in _LOADS]
    known = [f"{name} {_share(one['median'])}, at worst {_share(one['worst'])}" for name, one in loads if one]
    unknown = [name for name, one in loads if not one]
    told = "; ".join(known) + (f". Not readable here: {', '.join(unknown)}" if unknown else "")
    yield "Load, median over trials", told if trials["n"] else ""
    yield "Clock and heat", _clock(given["clock"])
    yield "Rounds", _rounds(sentinel) if sentinel else "the machine's speed around each round was not recorded"
    yield "Memory around rounds", _memory(sentinel.get("memory_bytes_s")) if sentinel else ""
    yield "Drift over the run", _drift(sentinel["drift"]) if sentinel else ""
    yield "Warm-up", _warm_up(given["warm_up"])


def _share(value: float) -> str:
    return f"{100 * value:.1f}%"


def _clock(clock: Json) -> str:
    said = []
    if clock.get("least_frequency_ratio") is not None:
        said.append(f"frequency fell to {clock['least_frequency_ratio']:.0%} at most within a trial")
    if clock.get("most_temperature_rise_c") is not None:
        said.append(f"temperature rose by {clock['most_temperature_rise_c']:.0f} °C at most")
    if clock.get("throttle_events") is not None:
        said.append(plural(int(clock["throttle_events"]), "throttle event"))
    return "; ".join(said) or "neither frequency nor temperature can be read here"


def _rounds(sentinel: Json) -> str:
    moved, again, left = (len(sentinel[key]) for key in ("moved", "run_again", "still_moved"))
    if not moved:
        return f"over none of {sentinel['rounds']} the machine's speed moved by more than {_LIMIT}%"
    counted = f"{left} had to be kept as they were" if left else "the trials that count are of steady ones"
    over = f"over {moved} of {sentinel['rounds']} the machine's speed moved by more than {_LIMIT}%"
    return f"{over}; run again: {again}; {counted}"


def _memory(given: Json | None) -> str:
    if not given:
        return ""
    low, middle, high = (si(given[key], "B/s") for key in ("low", "median", "high"))
    return f"{middle} in the median, {low} to {high} in 90% of readings; another memory speed may give other ratios"


def _drift(found: Json) -> str:
    said = []
    for key, name, *_ in _LINES:
        one = found.get(key)
        if one:
            ends = f"{100 * one['low']:+.1f}% to {100 * one['high']:+.1f}%"
            verdict = "drifted" if one["flagged"] else "no drift shown"
            said.append(f"{name} {100 * one['change']:+.1f}% ({ends}): {verdict}")
    return "; ".join(said).replace("-", "−")


def _warm_up(by_variant: Mapping[str, Json | None]) -> str:
    known = {name: one for name, one in by_variant.items() if one}
    if not known:
        return "not recorded"
    uneven = [f"{name} (after {one['n']})" for name, one in known.items() if not one["flat"]]
    if uneven:
        return f"not yet steady when timing began: {', '.join(uneven)}"
    return "every variant was steady before timing began"


def _course(sentinel: Json | None) -> Figure | None:
    """The machine's own speed over the run, around each round."""
    points: list[Json] = list((sentinel or {}).get("course") or ())
    if not points:
        return None
    names = [f"{p['end']} round {_round(p)}" for p in points]
    data = [_line(points, names, *line) for line in _LINES]
    band = {
        "type": "rect", "xref": "paper", "x0": 0, "x1": 1, "y0": -_LIMIT, "y1": _LIMIT, "fillcolor": "@band",
        "line": {"width": 0}, "layer": "below",
    }  # fmt: skip
    changes = [100 * (p[key] - 1) for p in points for key, *_ in _LINES if p[key]]
    y_range = [1.1 * min(-_LIMIT - 1, *changes), 1.1 * max(_LIMIT + 1, *changes)]
    x = axis("readings in order, two a round", tickvals=[], range=[-0.5, len(points) - 0.5])
    drawn = layout(300, x, axis("against its median (%)", range=y_range), shapes=[band])
    rows = tuple((name, *(_change(p[key]) for key, *_ in _LINES)) for name, p in zip(names, points, strict=True))
    known = {label: [p[key] for p in points if p[key]] for key, label, *_ in _LINES}
    spans = [f"{label} from {_change(min(v))} to {_change(max(v))}" for label, v in known.items() if v]
    summary = f"The machine's own speed around each round, against its median: {'; '.join(spans) or 'not readable'}."
    note = "The same short generation and the same memory read before and after each round. The band is ±5%."
    spec = {"data": data, "layout": drawn}
    head = ("reading", *(label for _, label, *_ in _LINES))
    return Figure("fig-quiet", "The machine's own speed over the run", note, summary, spec, 300, head, rows)


def _round(point: Json) -> str:
    return f"{point['block'] - 10_000 + 1} again" if point["again"] else str(point["block"] + 1)


def _line(points: Sequence[Json], names: Sequence[str], key: str, name: str, color: str, dash: str, symbol: str) -> Any:
    values = [None if p[key] is None else 100 * (p[key] - 1) for p in points]
    text = [plain(f"{where}: {name} {_change(p[key])}") for where, p in zip(names, points, strict=True)]
    return {
        "type": "scatter", "mode": "lines+markers", "name": plain(name), "x": list(range(len(points))), "y": values,
        "text": text, "hoverinfo": "text", "line": {"color": color, "dash": dash, "width": 1.5},
        "marker": {"size": 5, "symbol": symbol, "color": color},
    }  # fmt: skip


def _change(ratio: float | None) -> str:
    return DASH if ratio is None else f"{100 * (ratio - 1):+.1f}%".replace("-", "−")


def _grid(precision: Json, names: Sequence[str], reference: str | None) -> Grid | None:
    variants: Json = precision["variants"]
    kept = [w for w in _WIDTHS if any(variants[name].get(w[0]) is not None for name in names)]
    if not kept:
        return None
    columns = [Column(label, "", f"{label}: {story}") for _, label, story in kept]
    columns += [Column("as asked", "", "whether the precision asked for was reached")] if precision.get("asked") else []
    columns += [Column("more rounds", "", "rounds beyond the planned ones, and what was open then")]
    asked = bool(precision.get("asked"))
    rows = tuple(Row(n, tuple(_cells(variants[n], kept, asked)), reference=n == reference) for n in names)
    return Grid("Precision reached: half of the 95% interval", tuple(columns), rows)


def _cells(reached: Json, kept: Sequence[tuple[str, str, str]], asked: bool) -> Iterator[Cell]:
    for key, _, story in kept:
        width = reached.get(key)
        yield Cell(DASH, title="no interval", missing=True) if width is None else Cell(half_width(width), title=story)
    if asked:
        met = reached["met"]
        yield Cell(DASH if met is None else "yes" if met else "no", muted=met is None)
    yield Cell(str(reached["extra_rounds"]), reached["why"] or "" if reached["extra_rounds"] else "")
