"""What speculation does to code: each speculating variant beside the same settings without it, prompt by prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from harness.metrics.quality import delta_interval
from harness.results.model import RunData, VariantRun
from harness.results.speculation import plain
from harness.stats.interval import wilson
from harness.suites.code_syntax.score import Judged

Json = dict[str, Any]


def by_variant(run: RunData, judged: Mapping[str, Sequence[Judged]]) -> list[Json]:
    """One entry for each speculating variant that has programs; ``why`` says why it has no twin.

    Args:
        run: The run.
        judged: Programs and verdicts by variant, as ``score.judge`` gives them.
    """
    return [
        {"variant": variant.name, **pair(judged[variant.name], judged.get(twin.name) if twin else None, twin)}
        for variant in run.variants
        if variant.speculates and variant.name in judged
        for twin in [plain(run, variant)]
    ]


def pair(mine: Sequence[Judged], theirs: Sequence[Judged] | None, twin: VariantRun | None) -> Json:
    """Shares of programs that parse on the prompts both answered, their difference, and where the tokens part.

    Formulas: share = parsed / prompts, programs cut by the token cap counted as not parsed on both sides, with
    Wilson's interval; difference = mean over prompts of parsed with - parsed without, its interval as in
    ``delta_interval``; parting = number of tokens both begin with, counted from 0, on prompts where the two differ
    before either ends. Where one is the beginning of the other they do not part: a step of speculation may write
    past the end of the function.

    Returns:
        ``{"plain", "why", "n", "with", "without", "difference", "parted", "parted_of", "first_parting"}``;
        ``first_parting`` is the median of ``parted``, in tokens, None where none part.
    """
    name = twin.name if twin else None
    if theirs is None:
        why = f"{name} has no programs" if name else "the same settings without speculation are not in this run"
        return _without(name, why)
    others = {row["prompt"]: (row, verdict) for row, _, verdict in theirs}
    both = [(row, verdict, *others[row["prompt"]]) for row, _, verdict in mine if row["prompt"] in others]
    if not both:
        return _without(name, "no prompt was answered by both")
    parsed = [(a.status == "parsed", b.status == "parsed") for _, a, _, b in both]
    differences = [int(a) - int(b) for a, b in parsed]
    _, low, high = delta_interval(differences, range(len(both)))
    told = [(a, b) for a, _, b, _ in both if a.get("tokens") is not None and b.get("tokens") is not None]
    found = [(str(a["prompt"]), parting(a["tokens"], b["tokens"])) for a, b in told]
    parted: list[Json] = [{"prompt": prompt, "token": at} for prompt, at in found if at is not None]
    n = len(both)
    return {
        "plain": name,
        "why": None if told else "the rows hold no tokens",
        "n": n,
        "with": _share(sum(a for a, _ in parsed), n),
        "without": _share(sum(b for _, b in parsed), n),
        "difference": {"value": sum(differences) / n, "low": low, "high": high, "n": n},
        "parted": parted,
        "parted_of": len(told),
        "first_parting": median(one["token"] for one in parted) if parted else None,
    }


def parting(a: Sequence[int], b: Sequence[int]) -> int | None:
    """Index of the first token that differs; None if one text begins with the other.

    >>> parting([5, 6, 7], [5, 9]), parting([5, 6], [5, 6, 7])
    (1, None)
    """
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), None)


def _share(hits: int, n: int) -> Json:
    found = wilson(hits, n)
    return {"value": found.value, "low": found.low, "high": found.high, "n": n}


def _without(plain_name: str | None, why: str) -> Json:
    empty = dict.fromkeys(("with", "without", "difference", "first_parting"))
    return {"plain": plain_name, "why": why, "n": 0, **empty, "parted": [], "parted_of": 0}
