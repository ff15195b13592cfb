"""Choose one variant to deploy: constraints first, then the objective, and say why in plain words. Pure.

Works on the plain structure of results.json. A figure with a voiding code (estimated energy, other load,
NaN) neither meets a limit nor decides. The choice is deterministic: variants within the catalogue's
tolerance of the best count as tied, and of those the one that needs least memory wins, then the name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.decide.view import (
    Results,
    Span,
    Variant,
    difference,
    figure,
    ranks,
    reference,
    shares_scoring,
    shown,
    span,
)
from harness.decide.wish import MaxLoss, Verdict, Wish, default_wish
from harness.metrics.catalog import METRICS

MEMORY_KEYS = ("peak_rss_bytes", "model_bytes")


@dataclass(frozen=True, slots=True)
class Choice:
    """The outcome.

    Attributes:
        name: The chosen variant, None if none qualifies.
        reason: Sentences for a person.
        losers: (name, why) of all others, in the order of the run.
        objective: Catalogue key.
        wish: What was asked for.
    """

    name: str | None
    reason: str
    losers: tuple[tuple[str, str], ...]
    objective: str
    wish: Wish


@dataclass(frozen=True, slots=True)
class _Candidate:
    variant: Variant
    objective: Span
    tests: tuple[Verdict, ...]

    @property
    def name(self) -> str:
        return str(self.variant["name"])

    @property
    def value(self) -> float:
        assert self.objective.value is not None  # only qualified candidates are asked
        return self.objective.value

    def obstacle(self, objective: str) -> str | None:
        """Why it does not qualify; None if it does."""
        if self.variant["status"] == "failed":
            failures = "; ".join(f"{f['suite']}: {f['reason']}" for f in self.variant.get("failures", ()))
            return f"failed ({failures or 'no reason was recorded'})"
        if self.objective.value is None:
            return f"its {METRICS[objective].label} cannot decide: {self.objective.why}"
        return "; ".join(t.phrase for t in self.tests if t.outcome != "met") or None


def choose(results: Results, wish: Wish | None = None) -> Choice:
    """Pick the variant that meets every constraint and is best on the objective.

    Args:
        results: The structure of results.json.
        wish: What is asked for; by default `default_wish`.
    """
    wish = wish or default_wish(results)
    ref = reference(results)
    candidates = [
        _Candidate(v, span(v, ref, wish.objective), tuple(c.test(v, ref) for c in wish.constraints))
        for v in results["variants"]
    ]
    obstacles = {c.name: c.obstacle(wish.objective) for c in candidates}
    qualified = [c for c in candidates if obstacles[c.name] is None]
    if not qualified:
        losers = tuple((name, why or "") for name, why in obstacles.items())
        return Choice(None, _nobody(candidates, wish, results), losers, wish.objective, wish)
    best = (max if wish.maximize else min)(qualified, key=lambda c: c.value)
    ties = [c for c in qualified if _within_tolerance(c.value, best.value, wish.objective)]
    memory = _memory(ties)
    chosen = min(ties, key=lambda c: (memory.get(c.name, 0.0), c.name))
    losers = tuple(
        (c.name, obstacles[c.name] or _behind(c, chosen, ties, memory, wish)) for c in candidates if c is not chosen
    )
    reason = " ".join(_sentences(chosen, qualified, ties, memory, candidates, ref, wish))
    return Choice(chosen.name, reason, losers, wish.objective, wish)


def _within_tolerance(value: float, best: float, key: str) -> bool:
    metric = METRICS[key]
    return abs(value - best) <= metric.tolerance * (abs(best) if metric.relative else 1.0) + 1e-12


def _memory(ties: Sequence[_Candidate]) -> dict[str, float]:
    """Memory of tied variants by the first figure that all of them have; empty if there is none."""
    for key in MEMORY_KEYS:
        stored = {c.name: figure(c.variant, key) for c in ties}
        if all(ranks(f) for f in stored.values()):
            return {name: float(f["value"]) for name, f in stored.items()}
    return {}


def _memory_text(name: str, variants: Sequence[_Candidate]) -> str:
    variant = next(c.variant for c in variants if c.name == name)
    key = next(k for k in MEMORY_KEYS if all(ranks(figure(c.variant, k)) for c in variants))
    return shown(variant, key)


def _behind(
    loser: _Candidate, chosen: _Candidate, ties: Sequence[_Candidate], memory: Mapping[str, float], wish: Wish
) -> str:
    """Why a variant that qualifies was not chosen."""
    ours = shown(loser.variant, wish.objective)
    if loser not in ties:
        return f"qualifies, but has {ours} against {shown(chosen.variant, wish.objective)}"
    if memory and memory[loser.name] > memory[chosen.name]:
        return f"tied ({ours}), but needs more memory ({_memory_text(loser.name, ties)})"
    return f"tied ({ours}); {chosen.name} comes first by name"


def _sentences(
    chosen: _Candidate,
    qualified: Sequence[_Candidate],
    ties: Sequence[_Candidate],
    memory: Mapping[str, float],
    candidates: Sequence[_Candidate],
    ref: Variant | None,
    wish: Wish,
) -> list[str]:
    text = [_verdict(chosen, ref, wish)]
    tied_with = [c for c in ties if c is not chosen]
    if tied_with:
        by = f"for needing the least memory ({_memory_text(chosen.name, ties)})" if memory else "by name"
        if memory and sum(m == memory[chosen.name] for m in memory.values()) > 1:
            by = "by name, with equal memory"
        tolerance = METRICS[wish.objective].tolerance
        unit = f"{100 * tolerance:.3g}%" if METRICS[wish.objective].relative else f"{tolerance:g}"
        text.append(f"Tied within {unit} with {_names(tied_with)}; chosen {by}.")
    close = [
        c
        for c in qualified
        if c not in ties and _overlap(c.objective, chosen.objective) and not _paired_lead(chosen, c, wish)
    ]
    if close:
        verb = "s overlap" if len(close) == 1 else "s overlap with theirs"
        text.append(f"Its lead over {_names(close)} is not certain: the interval{verb}.")
    return text + (_too_wide(candidates, ref, wish) or _near(chosen, candidates, wish))


def _paired_lead(chosen: _Candidate, other: _Candidate, wish: Wish) -> bool:
    """Whether the paired comparison with the reference shows the lead, even where the two intervals overlap."""
    if not other.variant["reference"]:
        return False
    lead = difference(chosen.variant, other.variant, wish.objective, relative=True)
    return lead.low is not None and lead.high is not None and (lead.low > 0 if wish.maximize else lead.high < 0)


def _near(chosen: _Candidate, candidates: Sequence[_Candidate], wish: Wish) -> list[str]:
    """The best variant that would have won if its intervals were narrower: what would change the verdict."""
    open_ = [
        c
        for c in candidates
        if c.variant["status"] != "failed"
        and c.objective.value is not None
        and {t.outcome for t in c.tests} in ({"unshown"}, {"unshown", "met"})
        and (c.value > chosen.value if wish.maximize else c.value < chosen.value)
        and not _within_tolerance(c.value, chosen.value, wish.objective)
    ]
    if not open_:
        return []
    best = (max if wish.maximize else min)(open_, key=lambda c: c.value)
    why = "; ".join(t.phrase for t in best.tests if t.outcome == "unshown")
    return [
        f"More data could make it {best.name} ({shown(best.variant, wish.objective)}): {why}; "
        "a larger preset narrows the interval."
    ]


def _verdict(chosen: _Candidate, ref: Variant | None, wish: Wish) -> str:
    objective = shown(chosen.variant, wish.objective)
    if chosen.variant["reference"]:
        return f"Deploy {chosen.name}, the reference: {objective}, the best of those that qualify."
    parts = [objective]
    ratio = difference(chosen.variant, ref, wish.objective, relative=True).value
    if ratio is not None and ref is not None and METRICS[wish.objective].unit != "ratio":
        parts.append(f"{1 + ratio:.3g}x the reference ({ref['name']})")
    phrases = list(dict.fromkeys(t.phrase for t in chosen.tests))
    if phrases:
        parts.append("and " + _and(phrases))
    elif len(parts) == 2:
        return f"Deploy {chosen.name}: {parts[0]}, {parts[1]}."
    return f"Deploy {chosen.name}: {', '.join(parts)}."


def _too_wide(candidates: Sequence[_Candidate], ref: Variant | None, wish: Wish) -> list[str]:
    """Say so where the data could not show any variant but the reference to be good enough."""
    found = []
    for i, constraint in enumerate(wish.constraints):
        others = [
            c.tests[i]
            for c in candidates
            if c.variant["status"] != "failed" and not shares_scoring(c.variant, ref, constraint.key)
        ]
        outcomes = {t.outcome for t in others}
        if isinstance(constraint, MaxLoss) and "unshown" in outcomes and "met" not in outcomes:
            found.append(
                f"No variant scored apart from the reference could be shown to meet the limit ({constraint}): "
                "the intervals are too wide, and more items would narrow them."
            )
    return found


def _nobody(candidates: Sequence[_Candidate], wish: Wish, results: Results) -> str:
    if not candidates:
        return "No choice: the run holds no variant."
    label = METRICS[wish.objective].label
    if all(c.objective.value is None for c in candidates):
        reasons = list(dict.fromkeys(c.objective.why for c in candidates if c.objective.why))
        return f"No choice: {label} cannot decide for any variant: {'; '.join(reasons)}."
    limits = _and([str(c) for c in wish.constraints])
    wide = " ".join(_too_wide(candidates, reference(results), wish))
    return f"No variant qualifies: none is shown to have {limits or label}.{' ' + wide if wide else ''}"


def _overlap(a: Span, b: Span) -> bool:
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return True
    return a.low <= b.high and b.low <= a.high


def _names(candidates: Sequence[_Candidate]) -> str:
    return _and([c.name for c in candidates])


def _and(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}" if parts else ""


def decide(results: Results, wish: Wish | None = None) -> dict[str, Any]:
    """`choose` as the ``decision`` entry of results.json."""
    choice = choose(results, wish)

    def named(text: str) -> str:
        """The built-in sample is never called MMLU."""
        sample = (results.get("suites", {}).get("mmlu") or {}).get("is_sample")
        return text.replace("MMLU accuracy", "accuracy on the MMLU-format sample") if sample else text

    return {
        "wish": named(str(choice.wish)),
        "objective": choice.objective,
        "quality_key": choice.wish.quality_key,
        "quality_why": choice.wish.quality_why,
        "choice": choice.name,
        "reason": named(choice.reason),
        "losers": [{"name": name, "why": named(why)} for name, why in choice.losers],
        "margin": choice.wish.margin,
    }
