"""Whether speculation left a variant's greedy text as it is. Knows stored rows, but no engine.

Verification evaluates several tokens at once, and kernels for several tokens round otherwise than those for one, so two
nearly tied tokens may change places without any fault. How far rounding moves a margin is measured on the variant
itself, over the same text at both shapes: the noise floor. A text that parts where the margin is wider is a fault.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from harness.record import Figure, missing
from harness.stats.interval import wilson
from harness.suites.fidelity import divergences

# A change of the margin by the whole margin swaps two tokens. The floor's maximum is that of a small sample, at one of
# the shapes that verification takes; twice it leaves room for what other positions and shapes would have shown.
FLOORS = 2.0

Row = Mapping[str, Any]
Verdict = Literal["lossless", "near ties only", "fault"]


@dataclass(frozen=True, slots=True)
class Parting:
    """Where the text with speculation leaves the text without it.

    Attributes:
        prompt: Id of the prompt.
        index: Tokens before the first that differs.
        margin: Difference of the plain path's top two log-probabilities there; None where it has no token there.
        explained: Whether rounding can have done it.
    """

    prompt: str
    index: int
    margin: float | None
    explained: bool


@dataclass(frozen=True, slots=True)
class Audit:
    """The audit of one variant.

    Attributes:
        prompts, tokens: Audited prompts, and tokens of their plain texts.
        identical: Prompts whose two texts are the same.
        partings: Where the others part, in the order of the rows.
        floor: By how much each position's margin changes with the shape, natural-log units.
        finite: Whether all logits were finite.
    """

    prompts: int
    tokens: int
    identical: int
    partings: tuple[Parting, ...]
    floor: tuple[float, ...]
    finite: bool

    @property
    def floor_max(self) -> float | None:
        """Largest change."""
        return max(self.floor, default=None)

    @property
    def floor_mean(self) -> float | None:
        """Mean change."""
        return sum(self.floor) / len(self.floor) if self.floor else None

    @property
    def widest_margin(self) -> float | None:
        """The widest margin at which a text parted."""
        return max((parting.margin for parting in self.partings if parting.margin is not None), default=None)

    @property
    def verdict(self) -> Verdict:
        """Lossless, near ties only, or a fault."""
        if all(parting.explained for parting in self.partings):
            return "near ties only" if self.partings else "lossless"
        return "fault"


def audit(rows: Sequence[Row]) -> Audit | None:
    """Judge the payloads of kind "audit"; None without any.

    A parting is explained where the margin is at most twice the largest floor over all audited positions.
    """
    if not rows:
        return None
    floor = tuple(float(x) for row in rows for x in row["floor"] if x is not None)
    limit = FLOORS * max(floor, default=0.0)
    found = divergences(rows, [{**row, "tokens": row["plain"]} for row in rows])
    partings = tuple(
        Parting(d.prompt, d.index, d.reference_margin, d.reference_margin is not None and d.reference_margin <= limit)
        for d in found
        if not d.equal
    )
    finite = all(
        None not in row["floor"] and "nonfinite" not in (row["finish_reason"], row["plain_finish_reason"])
        for row in rows
    )
    tokens = sum(len(row["plain"]) for row in rows)
    return Audit(len(rows), tokens, len(rows) - len(partings), partings, floor, finite)


def figure(found: Audit | None) -> Figure:
    """Share of prompts whose text is the same, with Wilson's interval."""
    if found is None:
        return missing("not_measured")
    if not found.finite:
        return missing("nonfinite", n=found.prompts)
    share = wilson(found.identical, found.prompts)
    conditions = {
        "divergences": len(found.partings),
        "floor_max": found.floor_max,
        "widest_margin": found.widest_margin,
        "verdict": found.verdict,
    }
    reasons = ("lossy_speculation",) if found.verdict == "fault" else ()
    return Figure(share.value, share.low, share.high, share.n, reasons, conditions)


def fault(found: Audit | None) -> str | None:
    """What is wrong, in one line, or None: the first unexplained parting with all that shows it."""
    bad = [parting for parting in found.partings if not parting.explained] if found else []
    if not found or not bad:
        return None
    first = bad[0]
    margin = "the text has another length" if first.margin is None else f"margin {first.margin:.3g}"
    more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
    return (
        f"speculation changed the output: prompt {first.prompt}, token {first.index}: {margin}, "
        f"noise floor {found.floor_max or 0.0:.3g}{more}"
    )


def series_row(variant: str, found: Audit) -> dict[str, Any]:
    """The audit as one row for a reader."""
    return {
        "variant": variant,
        "prompts": found.prompts,
        "tokens": found.tokens,
        "identical": found.identical,
        "divergences": [
            {"prompt": p.prompt, "index": p.index, "margin": p.margin, "explained": p.explained} for p in found.partings
        ],
        "floor": {"max": found.floor_max, "mean": found.floor_mean, "n": len(found.floor)},
        "verdict": found.verdict,
    }
