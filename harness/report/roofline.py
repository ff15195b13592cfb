"""How much of what memory bandwidth allows each variant reaches: one table, and how the bandwidth was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.record import CODES
from harness.report.look import Look
from harness.report.text import DASH, Chip, Json, chip, plural, quantity, ranks, reasons_of, value_of
from harness.units import significant

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Reached:
    """A share of a ceiling: text, width of its bar in percent, what it is made of, and its interval."""

    text: str
    width: float
    beside: str = ""
    spread: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One variant.

    Attributes:
        name: The variant.
        color, shape: How it looks; ``color`` is a name of the style sheet.
        reads: Bytes read for a token that comes out.
        measured, ceiling: Tokens/s.
        note: What the ceiling rests on where that is not plain.
        reached: The share of the ceiling, or None.
        why: Why there is none.
        chips: What spoils it, if anything.
        depths: The share at each depth of the section, None where it was not timed.
    """

    name: str
    color: str
    shape: str
    reads: str
    measured: str
    ceiling: str
    note: str
    reached: Reached | None
    why: str
    chips: tuple[Chip, ...]
    depths: tuple[Reached | None, ...]


@dataclass(frozen=True, slots=True)
class Roofline:
    """The section: a sentence, the rows, the depths of their last columns, and a line for each bandwidth probe."""

    words: str
    rows: tuple[Row, ...]
    depths: tuple[int, ...]
    probes: tuple[str, ...]


def section(results: Json, series: Json, ordered: Sequence[Json], look: Mapping[str, Look]) -> Roofline | None:
    """The section; None where no variant has a ceiling."""
    if all(value_of(_metric(variant, "ceiling_tps")) is None for variant in ordered):
        return None
    by_depth: Json = series.get("depth_ceiling") or {}
    depths = tuple(sorted({point["depth"] for points in by_depth.values() for point in points}))
    rows = tuple(_row(variant, look, by_depth.get(variant["name"]) or (), depths) for variant in ordered)
    return Roofline(_words(ordered), rows, depths, tuple(_probes(results, ordered)))


def probe_text(probe: Json) -> str:
    """How a bandwidth was measured, in words.

    >>> probe_text({"best": 27.9e9, "median": 19.2e9, "n": 9, "threads": 2, "array_bytes": 64 << 20, "enough": None})
    '2 threads: best 27.9 GB/s, median 19.2, of 9 passes over 64 MiB; the cache size is unknown'
    """
    device = str(probe.get("device") or "cpu")
    who = plural(probe["threads"], "thread") if probe.get("threads") else device if device != "cpu" else ""
    median = f", median {probe['median'] / 1e9:.1f}" if probe.get("median") else ""
    size = f" over {probe['array_bytes'] / MIB:,.0f} MiB" if probe.get("array_bytes") else ""
    head = f"{who}: " if who else ""
    return f"{head}best {probe['best'] / 1e9:.1f} GB/s{median}, of {probe.get('n') or 1} passes{size}{_enough(probe)}"


def _enough(probe: Json) -> str:
    if "enough" not in probe:
        return ""
    if probe["enough"] is None:
        return "; the cache size is unknown"
    cache = f"the {probe['cache_bytes'] / MIB:,.0f} MiB cache"
    if probe["enough"]:
        return f", at least 4x {cache}"
    return f", under 4x {cache}: hits in it may make the bandwidth look higher"


def _probes(results: Json, ordered: Sequence[Json]) -> Iterator[str]:
    """A line for each probe that a ceiling rests on; runs of before have one."""
    machine = results.get("machine") or {}
    probes = machine.get("bandwidth_by_threads") or {"": machine.get("bandwidth_bytes_per_s") or {}}
    used = {_conditions(variant).get("bandwidth_bytes_per_s") for variant in ordered} - {None}
    for probe in probes.values():
        if probe.get("best") in used:
            yield probe_text(probe)
        elif probe.get("why"):
            yield f"GPU: not measured: {probe['why']}"


def _row(variant: Json, look: Mapping[str, Look], points: Sequence[Json], depths: Sequence[int]) -> Row:
    name, found = str(variant["name"]), _conditions(variant)
    share, ceiling = _metric(variant, "mbu"), _metric(variant, "ceiling_tps")
    at = {point["depth"]: point for point in points}
    per_pass = found.get("tokens_per_pass")
    return Row(
        name=name,
        color=look[name].color[1:],
        shape=look[name].shape,
        reads=quantity("peak_rss_bytes", found.get("bytes_per_token")),
        measured=_tps(_metric(variant, "decode_tps")),
        ceiling=_tps(ceiling),
        note=f"at {significant(per_pass)} tokens a pass" if per_pass else "",
        reached=None if share is None or value_of(share) is None else _reached(share),
        why="; ".join(
            CODES.get(code, code) for code in reasons_of(share if value_of(ceiling) is not None else ceiling)
        ),
        chips=tuple(map(chip, reasons_of(share))) if value_of(share) is not None else (),
        depths=tuple(_at_depth(at.get(depth)) for depth in depths),
    )


def _at_depth(point: Json | None) -> Reached | None:
    return None if point is None else _reached(point["mbu"], f"of {significant(point['ceiling_tps'])}")


def _reached(share: Json, beside: str = "") -> Reached:
    value = float(share["value"])
    low, high = share.get("low"), share.get("high")
    spread = "" if low is None or high is None else f"{100 * low:.0f} – {100 * high:.0f}%"
    return Reached(f"{100 * value:.0f}%", round(min(100.0, 100 * value), 1), beside, spread)


def _tps(metric: Json | None) -> str:
    value = value_of(metric)
    return DASH if value is None else significant(value)


def _words(ordered: Sequence[Json]) -> str:
    """Who comes closest to the ceiling and who stays farthest below, of those that do not speculate.

    Empty where every figure is spoilt.
    """
    shares = {
        str(v["name"]): share
        for v in ordered
        if (share := value_of(_metric(v, "mbu"))) is not None
        and ranks(_metric(v, "mbu"))
        and not _conditions(v).get("tokens_per_pass")
    }
    if not shares:
        return ""
    most, least = max(shares, key=shares.__getitem__), min(shares, key=shares.__getitem__)
    text = f"{most} reaches {shares[most]:.0%} of what memory bandwidth allows"
    if most != least:
        text += f", {least} {shares[least]:.0%}"
    if shares[most] > 1:
        return f"{text}. Above 100% the bandwidth was measured too low, or what is read lies partly in a cache."
    return f"{text}. What is missing to 100% is computing, waiting and unpacking, which faster memory would not cure."


def _metric(variant: Json, key: str) -> Json | None:
    found: Json | None = (variant.get("metrics") or {}).get(key)
    return found


def _conditions(variant: Json) -> Json:
    found: Json = (_metric(variant, "ceiling_tps") or {}).get("conditions") or {}
    return found
