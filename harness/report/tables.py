"""The page's tables: one row per variant, columns from the catalogue. Decides nothing; repeats who won and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from harness.decide import pareto
from harness.decide.view import figure
from harness.metrics.catalog import METRICS
from harness.record import CODES
from harness.report.text import (
    DASH,
    Cell,
    Chip,
    Json,
    Shown,
    cell,
    chip,
    common_codes,
    higher_is_better,
    label,
    quantity,
    ranks,
    shown,
    value_of,
)

TABLE_1 = (
    "decode_tps", "speedup", "peak_tps", "ttft_s", "jitter_pct",
    "mmlu_acc", "top1_agreement", "energy_j_per_token", "peak_rss_bytes",
)  # fmt: skip
FIDELITY = (
    "top1_agreement", "kl_mean", "kl_p99", "logprob_floor", "greedy_agree_tokens", "mmlu_flips", "mmlu_delta",
)  # fmt: skip
_IF_MEASURED = frozenset({"logprob_floor", "draft_share", "audit_identical"})  # columns that runs may lack altogether
SPECULATION = (
    "accept_rate", "accept_len", "draft_share", "decode_tps", "speedup", "jitter_pct", "tokens_per_chunk",
    "audit_identical",
)  # fmt: skip
LONG_CONTEXT = ("coherence_1_10", "ledger_acc", "tracking_acc", "nondegeneration", "inconsistency")
_LANGUAGES = {"cpp": "C++", "javascript": "JavaScript", "typescript": "TypeScript"}
_HEADINGS = {
    "decode_tps": "decode",
    "peak_tps": "peak",
    "speedup": "speed-up",
    "jitter_pct": "jitter",
    "energy_j_per_token": "energy",
    "peak_rss_bytes": "memory",
}


@dataclass(frozen=True, slots=True)
class Column:
    """A heading: name, unit, formula on hover, and the codes that hold for the whole column."""

    label: str
    unit: str = ""
    title: str = ""
    chips: tuple[Chip, ...] = ()


@dataclass(frozen=True, slots=True)
class Wording:
    """What a run's suites say of their own figures: names that replace the catalogue's, and warnings in headings."""

    names: Mapping[str, str] = field(default_factory=dict)
    chips: Mapping[str, Chip] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Row:
    """One variant's row.

    Attributes:
        name: The variant.
        state: "chosen" | "front" | "dominated" | "out" | "".
        reference: Whether it is the reference.
        cells: One per column.
        verdict: What became of it; empty in tables without that column.
        why: The reason, one line.
        odds: How often it was on the front when the data were resampled.
        shape: Of its mark on the front.
    """

    name: str
    cells: tuple[Cell, ...]
    state: str = ""
    reference: bool = False
    verdict: str = ""
    why: str = ""
    odds: str = ""
    shape: str = "circle"


@dataclass(frozen=True, slots=True)
class Grid:
    """A table: caption, columns (the variant's name apart) and rows."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]


def metric(variant: Json, key: str) -> Json | None:
    """A variant's metric, or None where results.json has none."""
    found: Json | None = (variant.get("metrics") or {}).get(key)
    return found


def scale(key: str, variants: Sequence[Json]) -> Shown:
    """How a figure's column is shown."""
    return shown(key, (value_of(metric(v, key)) for v in variants))


def column(key: str, variants: Sequence[Json], words: Wording) -> Column:
    """The heading of a figure; codes that all its values share are said here once."""
    known = METRICS.get(key)
    codes = common_codes(metric(v, key) for v in variants)
    title = f"{known.label}: {known.formula}" if known else key
    name = words.names.get(key) or _HEADINGS.get(key) or label(key)
    unit = scale(key, variants).unit
    chips = [chip(code) for code in codes] + ([words.chips[key]] if key in words.chips else [])
    return Column(name, unit, title, tuple(chips))


def by_objective(variants: Sequence[Json], key: str) -> list[Json]:
    """Variants sorted by a figure, best first; those without it last."""
    sign = -1.0 if higher_is_better(key) else 1.0

    def rank(variant: Json) -> tuple[bool, float, str]:
        value = value_of(metric(variant, key))
        return value is None, 0.0 if value is None else sign * value, str(variant["name"])

    return sorted(variants, key=rank)


def grid(caption: str, keys: Sequence[str], variants: Sequence[Json], words: Wording) -> Grid:
    """A plain table of figures."""
    keys = [
        key for key in keys if key not in _IF_MEASURED or any(value_of(metric(v, key)) is not None for v in variants)
    ]
    columns = tuple(column(key, variants, words) for key in keys)
    hoisted = {key: common_codes(metric(v, key) for v in variants) for key in keys}
    scales = {key: scale(key, variants) for key in keys}

    def cells(variant: Json) -> tuple[Cell, ...]:
        return tuple(cell(key, metric(variant, key), scales[key], hoisted[key]) for key in keys)

    rows = tuple(Row(v["name"], cells(v), reference=bool(v.get("reference"))) for v in variants)
    return Grid(caption, columns, rows)


def dominator(name: str, variants: Sequence[Json], front: Json) -> str | None:
    """A member of the front that dominates a variant on the front's objectives."""
    signs = pareto.signs(front["objectives"])
    by_name = {v["name"]: v for v in variants}

    def scores(who: str) -> list[float] | None:
        figures = [figure(by_name[who], key) for key in front["objectives"]]
        return [s * f["value"] for s, f in zip(signs, figures, strict=True)] if all(map(ranks, figures)) else None

    own = scores(name)
    for member in front["members"]:
        theirs = scores(member) if member in by_name else None
        if own and theirs and pareto.dominates(theirs, own):
            return str(member)
    return None


def standing(variant: Json, variants: Sequence[Json], front: Json | None, decision: Json) -> tuple[str, str, str]:
    """State, verdict and reason of a variant in table 1."""
    name = variant["name"]
    whys = {loser["name"]: loser["why"] for loser in decision.get("losers") or ()}
    why = str(whys.get(name, ""))
    if name == decision.get("choice"):
        return "chosen", "Deploy", "best by the stated wish"
    if variant.get("status") == "failed":
        failures = "; ".join(f"{f['suite']}: {f['reason']}" for f in variant.get("failures") or ())
        return "out", "failed", why or failures
    if front is None:
        return "", DASH, why or "no front could be drawn"
    if name in front["members"]:
        return "front", "on the front", why
    left_out = {entry["name"]: entry.get("reasons") or () for entry in front.get("left_out") or ()}
    if name in left_out:
        reasons = "; ".join(CODES.get(code, code) for code in left_out[name]) or "an objective is missing"
        return "out", "left out", why or reasons
    better = dominator(name, variants, front)
    return "dominated", f"dominated by {better}" if better else "dominated", why


def table_1(
    variants: Sequence[Json], front: Json | None, decision: Json, words: Wording, shapes: Mapping[str, str]
) -> Grid:
    """The main table, sorted by the objective; a quality key outside its usual columns joins them."""
    objective = decision.get("objective") or "decode_tps"
    keys = [*TABLE_1]
    for extra in (decision.get("quality_key"), objective):
        if extra and extra not in keys:
            keys.append(extra)
    ordered = by_objective(variants, objective)
    plain = grid(f"Every variant of this run, best {label(objective)} first", keys, ordered, words)
    rows = []
    for row, variant in zip(plain.rows, ordered, strict=True):
        state, verdict, why = standing(variant, variants, front, decision)
        share = ((front or {}).get("p_front") or {}).get(row.name)
        odds = f"front in {share:.0%} of resamples" if share is not None and state != "out" else ""
        shape = shapes.get(row.name, "circle")
        rows.append(Row(row.name, row.cells, state, row.reference, verdict, why, odds, shape))
    return Grid(plain.caption, plain.columns, tuple(rows))


def code_grid(by_language: Mapping[str, Mapping[str, Json]]) -> Grid | None:
    """Programs that parse by language: "parsed/judged", with those cut by the cap apart."""
    languages = sorted({language for counts in by_language.values() for language in counts})
    if not languages:
        return None
    rows = tuple(
        Row(name, tuple(_code_cell(language, counts.get(language)) for language in languages))
        for name, counts in by_language.items()
    )
    heads = tuple(Column(_LANGUAGES.get(language, language.capitalize())) for language in languages)
    return Grid("Programs that parse, by language", heads, rows)


def _code_cell(language: str, counts: Json | None) -> Cell:
    if counts is None:
        return Cell(DASH, title=f"{language}: {CODES['not_measured']}", chips=(chip("not_measured"),), missing=True)
    cut = counts.get("truncated") or 0
    judged = counts["total"] - cut
    title = f"{language}: {counts['parsed']} of {judged} parse; {cut} of {counts['total']} cut by the token cap"
    return Cell(f"{counts['parsed']}/{judged}", f"+{cut} cut" if cut else "", title)


def left_out_text(codes: Sequence[str]) -> str:
    """Reasons for which a variant is not on a front, in words."""
    return "; ".join(CODES.get(code, code) for code in codes) or "an objective is missing"


def tile(key: str, variant: Json, reference: Json | None) -> tuple[Cell, str, str]:
    """A headline figure: its cell, its unit, and the reference's value (for speed, the speed-up too) beside it."""
    how = scale(key, [variant])
    own = cell(key, metric(variant, key), how, ("sample_not_mmlu", "small_n", "shared_scoring"))
    beside = value_of(metric(reference, key)) if reference and reference is not variant else None
    text = f"{reference['name']}: {quantity(key, beside)}" if reference and beside is not None else ""
    faster = metric(variant, "speedup")
    if key == "decode_tps" and text and ranks(faster):
        text = f"{quantity('speedup', value_of(faster))} of {text}"
    return own, how.unit, text
