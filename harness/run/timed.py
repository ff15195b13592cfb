"""The timed part of a sweep: palindromic rounds over all variants, contended trials repeated. Derives no figure.

Each round takes one prompt length, in turn, so that every variant meets every length under the same conditions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.errors import CellError
from harness.plan import Cell
from harness.presets import SpeedPlan
from harness.record import ItemRow
from harness.run.session import Session
from harness.suites import speed

# A contended trial is repeated at most this often, and all repeats together cost at most this share of the trials.
MAX_ATTEMPTS = 3
REPEAT_SHARE = 0.5


def run_speed(session: Session) -> None:
    """Run every trial that is not stored yet; a variant whose engine fails drops out, the others go on."""
    plan = session.prepared.suites.speed
    if plan is None:
        return
    cells = session.cells("speed", "trials")
    done = {name: session.store.keys(str(cell.id)) for name, cell in cells.items()}
    failed = (
        set() if all(len(keys) == 2 * plan.rounds for keys in done.values()) else _rounds(session, plan, cells, done)
    )
    for name, cell in cells.items():
        if name not in failed:
            session.finish(cell)


def _rounds(session: Session, plan: SpeedPlan, cells: Mapping[str, Cell], done: Mapping[str, set[str]]) -> set[str]:
    """Run the rounds; returns the variants that failed."""
    turns = visits(speed.schedule(len(session.prepared.variants), plan.rounds, plan.seed))
    budget = int(REPEAT_SHARE * len(turns))
    try:
        prompts = session.speed_prompts()
    except CellError as error:
        for cell in cells.values():
            session.fail(cell, error)
        return set(cells)
    failed: set[str] = set()
    for visit in turns:
        variant = session.prepared.variants[visit.index]
        if variant.name in failed:
            continue
        try:
            budget -= _visit(session, variant.name, visit, prompts, done[variant.name], budget)
        except CellError as error:
            failed.add(variant.name)
            session.fail(cells[variant.name], error)
    return failed


@dataclass(frozen=True, slots=True)
class Visit:
    """One turn of one variant.

    Attributes:
        block: The round. Drift within a round falls on all variants alike, so a round is a block.
        position: Place in the whole sequence.
        second: Whether it is the variant's second turn in the round.
        index: Which variant.
    """

    block: int
    position: int
    second: bool
    index: int


def visits(rounds: Sequence[Sequence[int]]) -> list[Visit]:
    """All turns in order.

    >>> [(v.block, v.second, v.index) for v in visits([(1, 0, 0, 1)])]
    [(0, False, 1), (0, False, 0), (0, True, 0), (0, True, 1)]
    """
    flat = [
        (block, place >= len(palindrome) // 2, index)
        for block, palindrome in enumerate(rounds)
        for place, index in enumerate(palindrome)
    ]
    return [Visit(block, position, second, index) for position, (block, second, index) in enumerate(flat)]


def _visit(
    session: Session,
    variant: str,
    visit: Visit,
    prompts: Sequence[Mapping[int, Sequence[int]]],
    done: set[str],
    budget: int,
) -> int:
    """One of a variant's two trials in a round; returns how many repeats it took."""
    plan = session.prepared.suites.speed
    assert plan is not None
    cell_id = session.cell_id(variant, "speed", "trials")
    length = plan.prompt_tokens[visit.block % len(plan.prompt_tokens)]
    key = f"{visit.block:04d}{'b' if visit.second else 'a'}-{length:07d}"
    if key in done:
        return 0
    session.meter.now(f"speed · round {visit.block + 1}/{plan.rounds} · {variant}")
    prompt = prompts[2 * visit.block + visit.second][length]
    with session.timing(cell_id):
        payload, attempts = undisturbed(
            session, variant, "trial", budget, prompt=prompt, output_tokens=plan.output_tokens
        )
    payload |= {"block": visit.block, "position": visit.position, "attempt": attempts}
    session.store.add_item(ItemRow(cell_id, key, "trial", payload))
    session.advance(variant, "speed", "trials", 1 / (2 * plan.rounds))
    return attempts - 1


def undisturbed(session: Session, name: str, method: str, budget: int, **asked: Any) -> tuple[dict[str, Any], int]:
    """The first undisturbed attempt, or the least disturbed one, and how many attempts it took."""
    threads = session.prepared.specs[name].threads
    best: dict[str, Any] | None = None
    attempts = 0
    while True:
        payload = session.worker(name).call(method, threads=threads, **asked)
        attempts += 1
        if best is None or _disturbance(payload) < _disturbance(best):
            best = payload
        if not _disturbance(best) or attempts >= MAX_ATTEMPTS or attempts > budget:
            best["record"]["attempt"] = attempts
            return best, attempts


def _disturbance(payload: Mapping[str, Any]) -> float:
    """0 for an undisturbed trial; else how much of the machine others took."""
    if not {"contended", "throttled"} & set(payload["record"]["codes"]):
        return 0.0
    seen = payload["contention"]
    shares = [seen.get(key) or 0.0 for key in ("steal_share", "other_share", "psi_some_share", "wait_share")]
    return 1e-9 + sum(shares)
