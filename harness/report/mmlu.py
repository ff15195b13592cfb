"""The page's tables of MMLU: fields, what the comparison with the reference rests on, and single subjects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness import units
from harness.metrics.subjects import FIELDS
from harness.record import CODES
from harness.report.tables import Column, Grid, Row
from harness.report.text import DASH, Cell, Json, chip

_OVERALL = "all subjects"


@dataclass(frozen=True, slots=True)
class Mmlu:
    """The tables; ``label`` is what the questions are called, ``words`` say what the run can and cannot tell."""

    label: str
    fields: Grid
    paired: Grid | None
    subjects: Grid
    words: tuple[str, ...]


def section(by_variant: Mapping[str, Json], about: Json, variants: Sequence[Json]) -> Mmlu | None:
    """MMLU's section; None where it was not run.

    Args:
        by_variant: ``mmlu`` of results.json.
        about: ``suites.mmlu`` of results.json.
        variants: Of results.json, in the order of the page.
    """
    shown = [
        (str(v["name"]), bool(v.get("reference")), by_variant[v["name"]]) for v in variants if v["name"] in by_variant
    ]
    if not shown:
        return None
    label = str(about.get("label") or "MMLU")
    names = [field for field in FIELDS if any(field in entry["fields"] for _, _, entry in shown)]
    fields = Grid(
        f"{label} by field, and the difference from the reference",
        tuple(Column(name, "%") for name in (_OVERALL, *names)),
        tuple(
            Row(
                name,
                tuple(_accuracy(one) for one in (entry["overall"], *map(entry["fields"].get, names))),
                "",
                reference,
            )
            for name, reference, entry in shown
        ),
    )
    pairs = [(name, entry["overall"]["paired"]) for name, _, entry in shown if entry["overall"]["paired"]]
    return Mmlu(
        label, fields, _paired(label, pairs) if pairs else None, _subjects(label, shown), _words(about, bool(names))
    )


def _words(about: Json, fields: bool) -> tuple[str, ...]:
    words = []
    if about.get("at_chance"):
        words.append(
            "The reference itself does not beat guessing here: these figures cannot tell good variants from bad ones, "
            "and none of them ranks. Use another form, another suite, or a larger model."
        )
    if about.get("why"):
        words.append(f"Over all subjects: {about['why']}.")
    if fields:
        words.append("Of so many fields and variants some differ by chance alone; a field alone decides nothing.")
    return tuple(words)


def _accuracy(entry: Json | None) -> Cell:
    if entry is None:
        return Cell(DASH, title=CODES["not_measured"], chips=(chip("not_measured"),), missing=True)
    found, pair = entry["accuracy"], entry["paired"]
    if found["value"] is None:
        because = "; ".join(CODES.get(code, code) for code in found["reasons"])
        return Cell(DASH, title=because, chips=tuple(map(chip, found["reasons"])), missing=True)
    low, high = (None if found[end] is None else 100 * found[end] for end in ("low", "high"))
    text, around = units.plus_minus(100 * found["value"], low, high)
    below = (_difference(pair["delta"]),) if pair else ()
    return Cell(text, _unbracketed(around), f"n = {found['n']}, clustered by subject", below=below)


def _difference(delta: Json) -> str:
    """Points against the reference; in brackets where the interval holds no difference."""
    value, low, high = (100 * delta[key] for key in ("value", "low", "high"))
    text = f"{'+' if value > 0 else ''}{units.significant(value, 2)} points".replace("-", "−")
    return f"({text}: not shown)" if low <= 0 <= high else text


def _paired(label: str, pairs: Sequence[tuple[str, Json]]) -> Grid:
    columns = (
        Column("difference", "points", "Right answers here minus right answers of the reference, same questions"),
        Column("became right"),
        Column("became wrong"),
        Column("p", "", "Mid-p McNemar: how often chance alone would part right and wrong so unevenly"),
        Column("answers changed", "", "Chosen option is not the reference's; near ties: noise alone can have done it"),
        Column("could go unseen", "points", "Smallest difference found with 80% power: 2.80 sqrt(changed / n)"),
    )
    return Grid(f"{label}: each variant against the reference", columns, tuple(Row(name, _row(p)) for name, p in pairs))


def _row(pair: Json) -> tuple[Cell, ...]:
    text, around = units.plus_minus(*(100 * pair["delta"][key] for key in ("value", "low", "high")))
    ties = pair["near_ties"]
    return (
        Cell(("+" if pair["delta"]["value"] > 0 else "") + _minus(text), _unbracketed(around), f"n = {pair['n']}"),
        Cell(str(pair["fixed"])),
        Cell(str(pair["broken"])),
        Cell(units.significant(pair["p"], 2)),
        Cell(
            f"{pair['flips']}/{pair['n']}",
            below=(f"near ties: {ties}" if ties is not None else "near ties: floor unknown",) if pair["flips"] else (),
        ),
        Cell(DASH, title="no answer changed from right to wrong or back", missing=True)
        if pair["mde"] is None
        else Cell(units.significant(100 * pair["mde"], 2)),
    )


def _subjects(label: str, shown: Sequence[tuple[str, bool, Json]]) -> Grid:
    """Subjects as rows: there are far more of them than variants."""
    names = sorted({subject for _, _, entry in shown for subject in entry["subjects"]})
    rows = tuple(
        Row(subject.replace("_", " "), tuple(_count(entry["subjects"].get(subject)) for _, _, entry in shown))
        for subject in names
    )
    return Grid(f"{label} by subject: right answers of those asked", tuple(Column(name) for name, _, _ in shown), rows)


def _count(counts: Json | None) -> Cell:
    if counts is None:
        return Cell(DASH, title=CODES["not_measured"], missing=True)
    return Cell(f"{counts['correct']}/{counts['n']}")


def _unbracketed(text: str) -> str:
    text = text.removeprefix("(").removesuffix(")")
    return text.replace(" to ", " – ").replace("-", "−")


def _minus(text: str) -> str:
    return text.replace("-", "−")
