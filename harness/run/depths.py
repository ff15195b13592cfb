"""The timed passes over depths: one context grows from depth to depth. Derives no figure.

Passes go over the variants there and back in turn (A B C, C B A, ...), after the trials. Variants that speculate have
no such part: what speculation gains hangs on the text that follows, which at each depth is another one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.errors import CellError
from harness.plan import Cell
from harness.presets import DEPTH_TOKENS
from harness.record import ItemRow
from harness.run.session import Session
from harness.run.timed import REPEAT_SHARE, undisturbed
from harness.suite_plans import SpeedPlan
from harness.suites import speed


def run_depths(session: Session) -> None:
    """Run every pass that is not stored yet; a variant whose engine fails drops out, the others go on."""
    plan = session.prepared.suites.speed
    if plan is None or not (cells := session.cells("speed", "depth")):
        return
    done = {name: session.store.keys(str(cell.id)) for name, cell in cells.items()}
    failed: set[str] = set()
    if any(len(keys) < plan.depth_rounds for keys in done.values()):
        failed = _passes(session, plan, cells, done)
    for name, cell in cells.items():
        if name not in failed:
            session.finish(cell)


def _passes(session: Session, plan: SpeedPlan, cells: Mapping[str, Cell], done: Mapping[str, set[str]]) -> set[str]:
    """Run the passes; returns the variants that failed."""
    failed: set[str] = set()

    def fail(name: str, error: CellError) -> None:
        failed.add(name)
        session.fail(cells[name], error)

    names = list(cells)
    try:
        texts = session.depth_prompts()
    except CellError as error:
        for name in names:
            fail(name, error)
        return failed
    budget = int(REPEAT_SHARE * plan.depth_rounds * len(names))
    for number in range(plan.depth_rounds):
        for name in there_and_back(names, number, plan.seed):
            if name in failed or f"{number:04d}" in done[name]:
                continue
            session.meter.now(f"speed · depths {number + 1}/{plan.depth_rounds} · {name}")
            try:
                budget -= _pass(session, plan, cells[name], number, texts[number], budget)
            except CellError as error:
                fail(name, error)
    return failed


def there_and_back(names: Sequence[str], number: int, seed: int) -> tuple[str, ...]:
    """The order of variants in a pass: every second one is the one before reversed.

    >>> there_and_back("abc", 0, 0) == there_and_back("abc", 1, 0)[::-1], sorted(there_and_back("abc", 2, 0))
    (True, ['a', 'b', 'c'])
    """
    whole = speed.palindrome(names, seed, number // 2)
    half = len(names)
    return whole[half:] if number % 2 else whole[:half]


def _pass(session: Session, plan: SpeedPlan, cell: Cell, number: int, text: Sequence[int], budget: int) -> int:
    """One pass of one variant; returns how many repeats it took."""
    cell_id, attempts = str(cell.id), 1
    with session.timing(cell_id):
        if session.loaded(cell.variant)["info"].get("can_roll_back", True):
            payload, attempts = undisturbed(
                session, cell.variant, "depths", budget, prompt=text, depths=plan.depths, n_tokens=DEPTH_TOKENS
            )
        else:
            payload = {"left_out": "no_rollback"}
    session.store.add_item(ItemRow(cell_id, f"{number:04d}", "depths", payload | {"block": number}))
    session.advance(cell.variant, "speed", "depth", 1 / plan.depth_rounds)
    return attempts - 1
