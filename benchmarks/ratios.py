"""Ratios of times measured in turn, the table and the last line that every benchmark prints."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from harness.stats.interval import log_t_factors

DRAWS, SEED = 4000, 20261201


def pooled_ratio(over: Sequence[float], under: Sequence[float]) -> dict[str, Any]:
    """Ratio of two totals measured block by block, with a bootstrap interval over the blocks.

    Formula: ``sum(over) / sum(under)``; blocks are drawn as pairs, so what slows a block slows both.

    >>> pooled_ratio([2.0, 4.0], [1.0, 2.0])
    {'value': 2.0, 'low': 2.0, 'high': 2.0, 'n': 2}
    """
    a, b = np.asarray(over, dtype=float), np.asarray(under, dtype=float)
    picks = np.random.default_rng(SEED).integers(0, len(a), size=(DRAWS, len(a)))
    draws = a[picks].sum(axis=1) / b[picks].sum(axis=1)
    low, high = (None, None) if len(a) < 2 else (float(x) for x in np.percentile(draws, [2.5, 97.5]))
    return {"value": float(a.sum() / b.sum()), "low": low, "high": high, "n": len(a)}


def paired_ratio(over: Sequence[float], under: Sequence[float]) -> dict[str, Any]:
    """Ratio of two positive quantities measured round by round, each round a pair, with a t interval of its logarithm.

    Formula: ``exp(mean(ln(over_i / under_i)))``; what slows a round slows both.

    >>> paired_ratio([2.0, 8.0], [1.0, 1.0])["value"], paired_ratio([3.0], [2.0])
    (4.0, {'value': 1.5, 'low': None, 'high': None, 'n': 1})
    """
    ratios = np.asarray(over, dtype=float) / np.asarray(under, dtype=float)
    value, factors = float(np.exp(np.log(ratios).mean())), log_t_factors(ratios)
    low, high = (value * factors[0], value * factors[1]) if factors else (None, None)
    return {"value": value, "low": low, "high": high, "n": len(ratios)}


def shown(figure: Any) -> str:
    """A figure as a table cell.

    >>> shown({"value": 2.0, "low": 1.5, "high": 2.5, "n": 3}), shown(None), shown(0.12345), shown(1140)
    ('2 [1.5, 2.5] n=3', '-', '0.1235', '1140')
    """
    if figure is None:
        return "-"
    if isinstance(figure, Mapping):
        if figure.get("value") is None:
            return f"- ({figure.get('why', 'not measured')})"
        bounds = "" if figure.get("low") is None else f" [{figure['low']:.4g}, {figure['high']:.4g}]"
        return f"{figure['value']:.4g}{bounds} n={figure['n']}"
    return str(figure) if isinstance(figure, int | str) else f"{figure:.4g}"


def conclude(
    name: str,
    title: str,
    figures: Mapping[str, Any],
    goals: Mapping[str, float],
    limits: Mapping[str, float] | None = None,
) -> int:
    """Print the table and the last line; the exit code says whether every goal is reached.

    ``goals`` are to be reached from below, ``limits`` not to be passed. A figure that one of them names and that could
    not be measured fails it.
    """
    limits = limits or {}
    table = Table("figure", "value", "goal", title=title, title_justify="left")
    holds = True
    for key, figure in figures.items():
        value = figure.get("value") if isinstance(figure, Mapping) else figure
        said = []
        for sign, bound in ((">=", goals.get(key)), ("<=", limits.get(key))):
            if bound is not None:
                reached = value is not None and (value >= bound if sign == ">=" else value <= bound)
                holds &= reached
                said.append(f"{sign} {bound:g} {'reached' if reached else 'MISSED'}")
        table.add_row(key, shown(figure), ", ".join(said))
    Console(width=110).print(table)
    bounds = {"goals": goals} | ({"limits": limits} if limits else {})
    print(json.dumps({"benchmark": name, "figures": figures, **bounds, "holds": holds}))
    return 0 if holds else 1
