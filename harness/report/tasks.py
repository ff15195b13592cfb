"""The page's tables of lm-eval's tasks: variants by task, each figure with what it lost against the reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness import units
from harness.record import CODES
from harness.report.tables import Column, Grid, Row
from harness.report.text import DASH, Cell, Json, chip, plural

_SHARES = ("acc", "acc_norm", "exact_match", "f1", "em", "mcc", "pass@1")


@dataclass(frozen=True, slots=True)
class Tasks:
    """The tables: one metric of each task, and the further ones; ``words`` say how the tasks were run."""

    main: Grid
    others: Grid | None
    words: tuple[tuple[str, str], ...]


def section(given: Sequence[Json], variants: Sequence[Json]) -> Tasks | None:
    """The section of tasks; None where the run has none.

    Args:
        given: ``tasks`` of results.json.
        variants: Of results.json, in the order of the page.
    """
    if not given:
        return None
    pairs = [(task, metric) for task in given for metric in task["metrics"]]
    main = [(task, metric) for task, metric in pairs if metric["key"] == task["main"]]
    others = [pair for pair in pairs if pair not in main]
    return Tasks(
        _grid("lm-eval tasks, and the difference from the reference", main, variants),
        _grid("Further metrics of the tasks", others, variants) if others else None,
        tuple((str(task["task"]), _about(task)) for task in given),
    )


def _grid(caption: str, pairs: Sequence[tuple[Json, Json]], variants: Sequence[Json]) -> Grid:
    rows = tuple(
        Row(
            str(variant["name"]),
            tuple(_cell(task, metric, str(variant["name"])) for task, metric in pairs),
            reference=bool(variant.get("reference")),
        )
        for variant in variants
    )
    return Grid(caption, tuple(_column(task, metric) for task, metric in pairs), rows)


def _column(task: Json, metric: Json) -> Column:
    name, _, how = str(metric["key"]).partition(",")
    kind = name.replace("_", " ") + (f", {how}" if how not in ("", "none") else "")
    better = {"higher": "higher is better", "lower": "lower is better"}.get(metric["better"], "")
    codes = (chip("at_chance"),) if task["at_chance"] else ()
    unit = "%" if _is_share(metric) else ""
    return Column(str(task["task"]), f"{kind} {unit}".strip(), f"{task['task']}, {kind}: {better or 'a figure'}", codes)


def _is_share(metric: Json) -> bool:
    return str(metric["key"]).partition(",")[0] in _SHARES


def _cell(task: Json, metric: Json, variant: str) -> Cell:
    found = metric["variants"].get(variant)
    codes = found["reasons"] if found else ("not_measured",)
    because = "; ".join(CODES.get(code, code) for code in codes)
    if found is None or found["value"] is None:
        return Cell(DASH, title=f"{task['task']}: {because}", chips=tuple(map(chip, codes)), missing=True)
    factor = 100.0 if _is_share(metric) else 1.0
    ends = [None if found[end] is None else found[end] * factor for end in ("low", "high")]
    text, around = units.plus_minus(found["value"] * factor, *ends)
    delta = found["delta"]
    title = f"{task['task']} {metric['key']}; n = {found['n']}; {because}".rstrip("; ")
    if delta and delta.get("p") is not None:
        title += f"; {delta['fixed']} became right, {delta['broken']} wrong, mid-p {units.significant(delta['p'], 2)}"
    return Cell(
        _plain(text),
        _plain(around),
        title,
        tuple(map(chip, codes)),
        below=(_difference(delta, factor),) if delta else (),
    )


def _difference(delta: Json, factor: float) -> str:
    """What sets a variant apart: points, or a factor; in brackets where its interval holds no difference."""
    value, low, high = delta["value"], delta["low"], delta["high"]
    if delta["relative"]:
        text, none = f"{units.significant(value)}x", 1.0
    else:
        text, none = f"{'+' if value > 0 else ''}{units.significant(value * factor, 2)}", 0.0
        text += " points" if factor == 100 else ""
    shown = low is not None and high is not None and not low <= none <= high
    return _plain(text if shown else f"({text}: not shown)")


def _plain(text: str) -> str:
    return text.removeprefix("(").removesuffix(")").replace(" to ", " – ") if " to " in text else text.replace("-", "−")


def _about(task: Json) -> str:
    count = plural(task["n"], "document")
    whole = "all " if task["n"] == task["of"] else ""
    words = [f"{whole}{count}" + ("" if whole else f" of {task['of']:,}"), plural(task["shots"], "shot")]
    words += [f"guessing {100 * task['chance']:.0f}%"] if task["chance"] else []
    words += [f"prompts cut at their beginning: {n} for {name}" for name, n in task["cut"].items()]
    return ", ".join([*words, f"version {task['version']}"])
