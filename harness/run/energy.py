"""The energy windows of a sweep: requests in a loop, long enough for the counters, read from here. Derives no figure.

A worker only generates; the meters are this process's, one set for the run. Windows go over the variants there and back
(A B C, C B A), each variant with three in a row: idle, prompts alone (one token each), whole requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from harness.errors import CellError
from harness.meters.contention import codes, contention
from harness.meters.sampler import Sampler
from harness.plan import Cell
from harness.record import ItemRow
from harness.run.collect import ENERGY
from harness.run.session import Session
from harness.run.timed import REPEAT_SHARE, undisturbed
from harness.suite_plans import SpeedPlan
from harness.suites import speed

# Keys of the readings around a stretch of scoring.
STRETCH = "energy-"
KINDS = ("idle", "prefill", "generation")
# Prompts are pieces of one text this long, or of two prompts' length; a text of its own, none of the trials'.
POOL_TOKENS, POOL_SEED = 2048, 192_837_465


def run_energy(session: Session) -> None:
    """Run every window that is not stored yet; a variant whose engine fails drops out, the others go on."""
    plan = session.prepared.suites.speed
    if plan is None or not (cells := session.cells("speed", "energy")):
        return
    done = {name: session.store.keys(str(cell.id)) for name, cell in cells.items()}
    failed: set[str] = set()
    if any(len(keys) < len(KINDS) * plan.energy_windows for keys in done.values()):
        failed = _Windows(session, plan, cells, done).run()
    for name, cell in cells.items():
        if name not in failed:
            session.finish(cell)


def order(names: Sequence[str], windows: int, seed: int) -> list[tuple[str, ...]]:
    """The variants in the order of each window; every second one is the one before reversed.

    >>> first, second, third = order(["a", "b", "c"], 3, 0)
    >>> first == second[::-1], sorted(third)
    (True, ['a', 'b', 'c'])
    """
    rounds = [speed.palindrome(names, seed, POOL_SEED + number) for number in range(-(-windows // 2))]
    return [half for turns in rounds for half in (turns[: len(names)], turns[len(names) :])][:windows]


@contextmanager
def metered(session: Session, cell: Cell) -> Iterator[None]:
    """Read the meters around a stretch of a cell, and store that with the number of rows that the stretch brought.

    A stretch that fails stores nothing; its rows then count as unmetered.
    """
    panel, cell_id = session.prepared.energy, str(cell.id)
    if not panel.counted:
        yield
        return
    before = session.store.keys(cell_id)
    sampler = Sampler(session.worker(cell.variant).pid)
    start = sampler.read()
    with panel.around() as seen:
        yield
    threads = session.prepared.specs[cell.variant].threads
    found = contention(start, sampler.read(), sampler.n_cpus, threads)
    items = len(session.store.keys(cell_id)) - len(before)
    payload = {**seen, "items": items, "codes": list(codes(found)), "contention": found}
    stretches = sum(key.startswith(STRETCH) for key in before)
    session.store.add_item(ItemRow(cell_id, f"{STRETCH}{stretches:04d}", ENERGY, payload))


@dataclass
class _Windows:
    """All windows of one session."""

    session: Session
    plan: SpeedPlan
    cells: Mapping[str, Cell]
    done: Mapping[str, set[str]]
    failed: set[str] = field(default_factory=set)

    def run(self) -> set[str]:
        """Run them; returns the variants that failed."""
        plan, names = self.plan, list(self.cells)
        self.budget = int(REPEAT_SHARE * len(KINDS) * plan.energy_windows * len(names))
        self.length = plan.prompt_tokens[len(plan.prompt_tokens) // 2]
        try:
            worker = self.session.first_worker()
            self.head: list[int] = worker.call("tokenize", text="")
            size = max(POOL_TOKENS, 2 * self.length)
            (text,) = speed.prompts((size,), plan.seed + POOL_SEED, lambda text: worker.call("tokenize", text=text))
        except CellError as error:
            for name in names:
                self._fail(name, error)
            return self.failed
        self.pool = text[len(self.head) :]
        for number, turn in enumerate(order(names, plan.energy_windows, plan.seed)):
            for name in turn:
                try:
                    self._visit(name, number)
                except CellError as error:
                    self._fail(name, error)
        return self.failed

    def _fail(self, name: str, error: CellError) -> None:
        self.failed.add(name)
        self.session.fail(self.cells[name], error)

    def _visit(self, name: str, number: int) -> None:
        """One variant's windows of a number, those that are missing."""
        missing = [kind for kind in KINDS if f"{number:04d}-{kind}" not in self.done[name]]
        if not missing or name in self.failed:
            return
        cell_id = str(self.cells[name].id)
        self.session.meter.now(f"speed · energy {number + 1}/{self.plan.energy_windows} · {name}")
        with self.session.timing(cell_id):
            # Nothing of a first request, which may be slow, is in a window.
            self.session.worker(name).call("warm", prompts=[self.session.fixed_prompt], output_tokens=2)
            for kind in missing:
                payload = self._window(name, kind, number)
                self.session.store.add_item(ItemRow(cell_id, f"{number:04d}-{kind}", "window", payload))
        self.session.advance(name, "speed", "energy", 1 / self.plan.energy_windows)

    def _window(self, name: str, kind: str, number: int) -> dict[str, Any]:
        panel = self.session.prepared.energy
        method, asked = "idle", {}
        if kind != "idle":
            method = "spend"
            asked = {
                "pool": self.pool,
                "head": self.head,
                "length": self.length,
                "first": (len(KINDS) * number + KINDS.index(kind)) * len(self.pool) // 7,
                "output_tokens": 1 if kind == "prefill" else self.plan.output_tokens,
            }
        payload, attempts = undisturbed(
            self.session, name, method, self.budget, panel.around, seconds=panel.seconds, **asked
        )
        self.budget -= attempts - 1
        return {**payload, "kind": kind, "window": number, "length": self.length, "attempt": attempts}
