"""Code-syntax figures from stored rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.record import Figure, missing
from harness.stats.interval import wilson
from harness.suites.code_syntax.check import Verdict, verdict
from harness.suites.code_syntax.prompt import Prompt, prompts

Row = Mapping[str, Any]
Judged = tuple[Row, Prompt, Verdict]


def judge(rows: Sequence[Row]) -> list[Judged]:
    """Each usable program with its prompt and verdict; rows the model could not write (NaN, error) are left out."""
    known = {prompt.id: prompt for prompt in prompts()}
    usable = [row for row in rows if row["finish_reason"] not in ("nonfinite", "error")]
    pairs = [(row, known[row["prompt"]]) for row in usable]
    return [(row, prompt, verdict(prompt, row["output"], row["finish_reason"])) for row, prompt in pairs]


def figures(rows: Sequence[Row], judged: Sequence[Judged] | None = None) -> dict[str, Figure]:
    """Rates of one variant, with Wilson intervals.

    ``code_parse_rate`` = parsed / (programs - truncated); ``code_extract_rate`` = programs with code / programs;
    ``code_truncated_rate`` = truncated / programs.

    Args:
        rows: Payloads of kind "program".
        judged: Their verdicts, where they are known already.
    """
    judged = judge(rows) if judged is None else judged
    verdicts = [v for _, _, v in judged]
    reasons = ("nonfinite",) if len(verdicts) < len(rows) else ()
    total, truncated = len(verdicts), sum(v.status == "truncated" for v in verdicts)
    return {
        "code_parse_rate": _rate(sum(v.status == "parsed" for v in verdicts), total - truncated, total, reasons),
        "code_extract_rate": _rate(sum(v.extracted for v in verdicts), total, total, reasons),
        "code_truncated_rate": _rate(truncated, total, total, reasons),
    }


def by_language(judged: Sequence[Judged]) -> dict[str, dict[str, int]]:
    """Per language ``{"parsed", "total", "truncated"}``; ``total`` counts every program."""
    table: dict[str, dict[str, int]] = {}
    for _, prompt, v in judged:
        line = table.setdefault(prompt.language, {"parsed": 0, "total": 0, "truncated": 0})
        line["total"] += 1
        line["parsed"] += v.status == "parsed"
        line["truncated"] += v.status == "truncated"
    return table


def samples(judged: Sequence[Judged], variant: str) -> list[dict[str, Any]]:
    """Every program as the report shows it: prompt, output, verdict, and the fault with its line."""
    return [
        {
            "variant": variant,
            "language": prompt.language,
            "prompt": prompt.text,
            "output": row["output"],
            "verdict": v.status,
            "error": None if v.error is None else f"{v.error} (line {v.line})" if v.line else v.error,
        }
        for row, prompt, v in judged
    ]


def _rate(hits: int, n: int, programs: int, reasons: tuple[str, ...]) -> Figure:
    if n == 0:
        return missing(*reasons, "undefined" if programs else "not_measured")
    rate = wilson(hits, n)
    return Figure(rate.value, rate.low, rate.high, n, reasons)
