"""Which variants get further rounds: those on or near a front whose comparison is not precise enough yet.

Each decision is stored before its rounds are run, so that an interrupted sweep goes on with the same one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.metrics.precision import needed, reached
from harness.metrics.sentinel import AGAIN
from harness.results import derive
from harness.run.collect import collect
from harness.run.session import Session
from harness.suite_plans import SpeedPlan

# Rounds between two decisions.
BATCH = 5
# A variant is near a front if it is on it in this share of the resampled draws.
NEAR = 0.05


@dataclass(frozen=True, slots=True)
class Batch:
    """Rounds ``start`` to ``stop - 1``, taken by ``variants``, the reference among them."""

    start: int
    stop: int
    variants: tuple[str, ...]


def batches(session: Session, plan: SpeedPlan, failed: Collection[str]) -> Iterator[Batch]:
    """Batches of further rounds, as long as a variant needs them and the plan allows.

    There are none without the reference, since what they add are pairs.
    """
    reference = session.prepared.reference.name
    decided: list[dict[str, Any]] = session.store.get("race") or []
    for start in range(plan.rounds, plan.most_rounds, BATCH):
        if reference in failed:
            return
        entry = next((entry for entry in decided if entry["from_block"] == start), None)
        if entry is None:
            disturbed = _disturbed(session, start - BATCH)
            why = {} if disturbed else _open(session, plan)
            blocks = min(BATCH, plan.most_rounds - start)
            entry = {"from_block": start, "blocks": blocks, "variants": list(why), "why": why, "disturbed": disturbed}
            decided.append(entry)
            session.store.put("race", decided)
        names = [name for name in entry["variants"] if name not in failed]
        if not names:
            return
        everyone = tuple(dict.fromkeys([reference, *names]))
        session.more(everyone, entry["blocks"] / plan.rounds)
        yield Batch(start, start + entry["blocks"], everyone)


def _disturbed(session: Session, since: int) -> bool:
    """Whether others disturbed more than half of the trials since a round: more of them would tell no more."""
    coded = [
        "contended" in row.payload["record"]["codes"]
        for cell in session.cells("speed", "trials").values()
        for row in session.store.items(str(cell.id))
        if row.payload["block"] % AGAIN >= since
    ]
    return 2 * sum(coded) > len(coded)


def _open(session: Session, plan: SpeedPlan) -> dict[str, str]:
    """Variants that need further rounds, and why, in words."""
    run = collect(session.store)
    base = None if len(run.variants) == 1 else run.reference.trials()
    found = {
        v.name: reached(v.trials(), base, run.launches)
        for v in run.variants
        if v.trials() and (base is None or not v.reference)
    }
    why = {name: text for name, each in found.items() if (text := needed(each, plan.precision))}
    if not why:
        return {}
    near = near_front(derive(run)[0]["fronts"], plan.precision)
    return {name: text for name, text in why.items() if near is None or name in near}


def near_front(fronts: Sequence[Mapping[str, Any]], keys: Collection[str]) -> set[str] | None:
    """Names on or near a front that has one of ``keys`` as an axis; None where there is no such front.

    >>> near_front([{"objectives": ["mmlu_acc", "decode_tps"], "p_front": {"a": 1.0, "b": 0.0}}], ["decode_tps"])
    {'a'}
    """
    about = [front for front in fronts if set(keys) & set(front["objectives"]) and front["p_front"]]
    if not about:
        return None
    return {name for front in about for name, share in front["p_front"].items() if share >= NEAR}
