"""The section on speculation: what it gains, how far its drafts hold, and whether the text stays the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.report.heat import Heat, heat, pays, reason
from harness.report.look import Look
from harness.report.tables import Grid, metric
from harness.report.text import Json, plural, reasons_of, sentence
from harness.units import significant

_LISTED = 4  # partings told of one variant; the rest is counted


@dataclass(frozen=True, slots=True)
class Steps:
    """One variant's drafts.

    Attributes:
        name, shape, color: The variant and how it looks; ``color`` is a name of the style sheet.
        places: Share accepted (percent) and tokens drafted at each place; None where nothing was drafted.
        drafting: Share of the time that drafting takes, percent; None if not measured.
    """

    name: str
    shape: str
    color: str
    places: tuple[tuple[int, int] | None, ...]
    drafting: int | None


@dataclass(frozen=True, slots=True)
class Finding:
    """The losslessness audit of one variant; ``tone`` is "yes" | "open" | "fault" | "none", of a line "" | "fault"."""

    name: str
    tone: str
    verdict: str
    lines: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Section:
    """All of it; a part without data is None or empty."""

    words: str
    heat: Heat | None
    steps: tuple[Steps, ...]
    findings: tuple[Finding, ...]
    grid: Grid | None

    @property
    def places(self) -> int:
        """The longest draft seen."""
        return max((len(step.places) for step in self.steps), default=0)

    @property
    def timed(self) -> bool:
        """Whether any variant's time is split."""
        return any(step.drafting is not None for step in self.steps)


def section(series: Json, ordered: Sequence[Json], look: Mapping[str, Look], grid: Grid | None) -> Section | None:
    """The section, or None if no variant speculates or nothing of it was measured.

    Args:
        series: The run's series: "speculation" and "audit" of it.
        ordered: Variants in the page's order.
        look: How each variant looks.
        grid: The table of the figures of those that speculate.
    """
    order = [str(v["name"]) for v in ordered if (v.get("settings") or {}).get("speculate", "none") != "none"]
    given: Json = series.get("speculation") or {}
    audits = {str(row["variant"]): row for row in series.get("audit") or ()}
    drawn = heat(given, ordered, audits) if order else None
    steps = tuple(_steps(given.get("cells") or (), order, look))
    findings = _findings(audits, [v for v in ordered if v["name"] in order])
    if not order or not (grid or drawn or steps or findings):
        return None
    return Section("" if drawn else pays(ordered), drawn, steps, findings, grid)


def _steps(cells: Sequence[Json], order: Sequence[str], look: Mapping[str, Look]) -> Iterator[Steps]:
    by_variant = {str(cell.get("variant")): cell for cell in cells}
    for name in order:
        cell = by_variant.get(name) or {}
        share = cell.get("draft_share")
        places = tuple(
            (round(100 * at["accepted"] / at["drafted"]), int(at["drafted"])) if at.get("drafted") else None
            for at in cell.get("by_position") or ()
        )
        if any(places) or share is not None:
            yield Steps(
                name, look[name].shape, look[name].color[1:], places, None if share is None else round(100 * share)
            )


def _findings(audits: Mapping[str, Json], speculating: Sequence[Json]) -> tuple[Finding, ...]:
    """Faults first, the unaudited last, else in the page's order; nothing if no variant was audited."""
    found = [
        _finding(audits[v["name"]]) if v["name"] in audits else Finding(v["name"], "none", "not audited", _unaudited(v))
        for v in speculating
    ]
    rank = {"fault": 0, "none": 2}
    return tuple(sorted(found, key=lambda one: rank.get(one.tone, 1))) if audits else ()


def _unaudited(variant: Json) -> tuple[tuple[str, str], ...]:
    codes = reasons_of(metric(variant, "audit_identical")) or ("not_measured",)
    return (("", sentence("; ".join(reason(code) for code in codes)).capitalize()),)


def _finding(row: Json) -> Finding:
    tones = {"lossless": "yes", "near ties only": "open", "fault": "fault"}
    verdict = str(row["verdict"])
    partings = sorted(row.get("divergences") or (), key=lambda parting: bool(parting.get("explained")))
    same = (
        f"The same text as without speculation in {row['identical']} of {plural(row['prompts'], 'prompt')}, "
        f"{plural(row['tokens'], 'token')} in all."
    )
    floor = (row.get("floor") or {}).get("max")
    lines = [("", same), *(_parting(parting, floor) for parting in partings[:_LISTED])]
    if len(partings) > _LISTED:
        lines.append(("", f"And {len(partings) - _LISTED} more."))
    shown = "FAULT" if verdict == "fault" else verdict
    return Finding(str(row["variant"]), tones.get(verdict, "open"), shown, tuple(lines))


def _parting(parting: Json, floor: float | None) -> tuple[str, str]:
    """Where two texts part and what that means, with its tone."""
    explained = bool(parting.get("explained"))
    judged = "a near tie, not a fault" if explained else "FAULT, not a near tie"
    where = f"Parted after {plural(int(parting['index']), 'token')} of ‘{parting['prompt']}’"
    if parting.get("margin") is None:
        return "" if explained else "fault", f"{where}, where one text ends: {'explained' if explained else 'FAULT'}."
    noise = "noise floor not measured" if floor is None else f"noise floor {significant(floor, 2)}"
    apart = f"where the two best tokens were {significant(parting['margin'], 2)} nats apart; {noise}"
    return "" if explained else "fault", f"{where}, {apart}: {judged}."
