"""The timed part of a sweep: palindromic rounds over all variants, contended trials repeated. Derives no figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.errors import CellError
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
    cells = {cell.variant: cell for cell in session.prepared.cells if cell.suite == "speed"}
    done = {name: session.store.keys(str(cell.id)) for name, cell in cells.items()}
    order = speed.schedule(len(session.prepared.variants), plan.rounds, plan.seed)
    visits = _visits(order)
    budget = int(REPEAT_SHARE * len(visits) * len(plan.prompt_tokens))
    prompts = session.speed_prompts()
    failed: set[str] = set()
    for block, position, index in visits:
        variant = session.prepared.variants[index]
        if variant.name in failed:
            continue
        try:
            budget -= _visit(session, variant.name, block, position, prompts, done[variant.name], budget)
        except CellError as error:
            failed.add(variant.name)
            session.fail(cells[variant.name], error)
    for name, cell in cells.items():
        if name not in failed:
            session.finish(cell)


def _visits(rounds: Sequence[Sequence[int]]) -> list[tuple[int, int, int]]:
    """``(round, position, variant index)``. A round is a block: drift within it falls on all variants alike."""
    flat = [(number, index) for number, palindrome in enumerate(rounds) for index in palindrome]
    return [(number, position, index) for position, (number, index) in enumerate(flat)]


def _visit(
    session: Session,
    name: str,
    block: int,
    position: int,
    prompts: Sequence[Mapping[int, Sequence[int]]],
    done: set[str],
    budget: int,
) -> int:
    """One of a variant's two turns in a round; returns how many repeats it took."""
    plan = session.prepared.suites.speed
    assert plan is not None
    cell_id = session.cell_id(name, "speed", "trials")
    turns = 2 * len(session.prepared.variants)
    second = position % turns >= turns // 2
    repeats = 0
    for length, prompt in prompts[2 * block + second].items():
        key = f"{block:04d}{'b' if second else 'a'}-{length:07d}"
        if key in done:
            continue
        session.meter.now(f"speed · round {block + 1}/{plan.rounds} · {name} · {length} tokens")
        with session.timing(cell_id):
            payload, attempts = _trial(session, name, prompt, plan.output_tokens, budget - repeats)
        repeats += attempts - 1
        payload |= {"block": block, "position": position, "attempt": attempts}
        session.store.add_item(ItemRow(cell_id, key, "trial", payload))
        done.add(key)
        session.advance(name, "speed", "trials", 1 / (2 * plan.rounds * len(plan.prompt_tokens)))
    return repeats


def _trial(
    session: Session, name: str, prompt: Sequence[int], output_tokens: int, budget: int
) -> tuple[dict[str, Any], int]:
    """The first undisturbed attempt, or the least disturbed one, and how many attempts it took."""
    threads = session.prepared.specs[name].threads
    best: dict[str, Any] | None = None
    attempts = 0
    while True:
        payload = session.worker(name).call("trial", prompt=prompt, output_tokens=output_tokens, threads=threads)
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
