"""The timed part of a sweep: palindromic rounds over all variants, disturbed ones repeated. Derives no figure to keep.

Each round takes one prompt length, in turn, so that every variant meets every length under the same conditions. Before
and after it the sentinel looks at the machine's own speed. Rounds beyond the planned ones take the reference and the
variants whose place on a front is open (``race``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field
from typing import Any

from harness.errors import CellError
from harness.metrics.sentinel import AGAIN, CELL, moved
from harness.plan import Cell
from harness.presets import SpeedPlan
from harness.record import ItemRow
from harness.run import race
from harness.run.sentinel import Sentinel
from harness.run.session import Session
from harness.store import CellRow
from harness.suites import speed

Around = Callable[[], AbstractContextManager[Mapping[str, Any] | None]]
# A contended trial is repeated at most this often, and repeats cost at most this share of the trials so far, after a
# few to begin with.
MAX_ATTEMPTS = 3
REPEAT_SHARE, REPEATS_FIRST = 0.5, 4
# Engines are launched anew after each pass over the prompt lengths, but not after every single round.
LEAST_LAUNCH = 2
# Rounds in which the machine changed its speed are run again, at most this share of all; and no more of them once this
# many more repeats moved than held still, since such a machine is always moving.
AGAIN_SHARE, RESTLESS = 1 / 3, 3


@dataclass(frozen=True, slots=True)
class Block:
    """One round. Drift within it falls on all variants alike, so it is the unit that statistics count.

    Attributes:
        number: Unique; ``AGAIN`` and more for a repeat.
        order: Variants by turn, each twice.
        length: Prompt length, tokens.
        prompts: Of each variant's first and second turn.
        replaces: The round that this one repeats.
        extra: Whether it takes only variants whose place is open.
    """

    number: int
    order: tuple[str, ...]
    length: int
    prompts: tuple[Sequence[int], Sequence[int]]
    replaces: int | None = None
    extra: bool = False

    def turns(self) -> Iterator[tuple[str, str, Sequence[int]]]:
        """``(key, variant, prompt)`` of each trial in order."""
        half = len(self.order) // 2
        for place, name in enumerate(self.order):
            second = place >= half
            yield f"{self.number:05d}{'b' if second else 'a'}-{self.length:07d}", name, self.prompts[second]


def run_speed(session: Session) -> None:
    """Run every trial that is not stored yet; a variant whose engine fails drops out, the others go on."""
    plan = session.prepared.suites.speed
    if plan is None:
        return
    cells = session.cells("speed", "trials")
    reference = session.prepared.reference.name
    session.store.add_cell(CellRow(CELL, "speed", "blocks", reference), [reference])
    states = {cell.cell_id: cell.state for cell in session.store.cells()}
    if all(states[str(cell.id)] == "done" for cell in cells.values()):
        return
    failed: set[str] = set()
    try:
        prompts = session.speed_prompts()
    except CellError as error:
        for name, cell in cells.items():
            failed.add(name)
            session.fail(cell, error)
    else:
        with closing(Sentinel(session)) as sentinel:
            failed = _Rounds(session, plan, cells, prompts, sentinel).run()
    for name, cell in cells.items():
        if name not in failed:
            session.finish(cell)
    session.store.set_state(CELL, "done")


@dataclass
class _Rounds:
    """All rounds of one session."""

    session: Session
    plan: SpeedPlan
    cells: Mapping[str, Cell]
    prompts: Sequence[Sequence[int]]
    sentinel: Sentinel
    failed: set[str] = field(default_factory=set)
    repeats: int = 0
    restless: int = 0

    def __post_init__(self) -> None:
        """Take up what is stored."""
        store = self.session.store
        self.done = {name: store.keys(str(cell.id)) for name, cell in self.cells.items()}
        self.position = sum(map(len, self.done.values()))
        self.seen = {row.key: row.payload for row in store.items(CELL)}
        self.again = int(AGAIN_SHARE * self.plan.rounds)

    def run(self) -> set[str]:
        """Run them; returns the variants that failed."""
        for number in range(self.plan.rounds):
            self._round(self._block(number, tuple(self.cells)))
        for batch in race.batches(self.session, self.plan, self.failed):
            extra = len(self.cells) > 1
            for number in range(batch.start, batch.stop):
                self._round(self._block(number, batch.variants, extra=extra))
        return self.failed

    def _block(self, number: int, names: Sequence[str], *, again: bool = False, extra: bool = False) -> Block:
        length = self.plan.prompt_tokens[number % len(self.plan.prompt_tokens)]
        first = 2 * (number + again * self.plan.most_rounds)
        own = number + again * AGAIN
        order = speed.palindrome(names, self.plan.seed, own)
        prompts = (self.prompts[first], self.prompts[first + 1])
        return Block(own, order, length, prompts, number if again else None, extra)

    def _round(self, block: Block) -> None:
        """Run a round, and once more if the machine's speed moved meanwhile, as far as that may cost.

        Engines are launched anew for each pass over the prompt lengths: a process keeps its luck as long as it lives.
        """
        cycle = max(LEAST_LAUNCH, len(self.plan.prompt_tokens))
        if block.number % cycle == 0 and self.position and f"{block.number:05d}-before" not in self.seen:
            self.session.pool.close()
        if not self._moved(block):
            return
        names = tuple(dict.fromkeys(block.order))
        repeat = self._block(block.number, names, again=True, extra=block.extra)
        if (self.again > 0 and self.restless < RESTLESS) or f"{repeat.number:05d}-before" in self.seen:
            self.again -= 1
            self.restless += 1 if self._moved(repeat) else -1

    def _moved(self, block: Block) -> bool:
        """Run what is not stored of a round; returns whether the sentinel moved over it."""
        before = self._look(block, "before")
        for key, name, prompt in block.turns():
            if name in self.failed or key in self.done[name]:
                continue
            try:
                self._trial(block, key, name, prompt)
            except CellError as error:
                self._fail(name, error)
        after = self._look(block, "after")
        return before is not None and after is not None and moved(before, after)

    def _look(self, block: Block, end: str) -> Mapping[str, Any] | None:
        """The sentinel's reading at one end of a round; None where no variant is left."""
        key = f"{block.number:05d}-{end}"
        if key not in self.seen:
            name = next((name for name in block.order if name not in self.failed), None)
            if name is None:
                return None
            try:
                reading = self.sentinel.read(name)
            except CellError as error:
                self._fail(name, error)
                return self._look(block, end)
            about = {"block": block.number, "end": end, "replaces": block.replaces, "extra": block.extra}
            self.seen[key] = {**about, "prompt_tokens": block.length, **reading}
            self.session.store.add_item(ItemRow(CELL, key, "sentinel", self.seen[key]))
        return self.seen[key]

    def _fail(self, name: str, error: CellError) -> None:
        self.failed.add(name)
        self.session.fail(self.cells[name], error)

    def _trial(self, block: Block, key: str, name: str, prompt: Sequence[int]) -> None:
        cell_id = str(self.cells[name].id)
        budget = REPEATS_FIRST + int(REPEAT_SHARE * self.position) - self.repeats
        self.session.meter.now(f"speed · {self._label(block)} · {name}")
        with self.session.timing(cell_id):
            payload, attempts = undisturbed(
                self.session, name, "trial", budget, prompt=prompt, output_tokens=self.plan.output_tokens
            )
        payload |= {"block": block.number, "position": self.position, "attempt": attempts, "extra": block.extra}
        payload["launch"] = self.session.worker(name).started_ns
        self.session.store.add_item(ItemRow(cell_id, key, "trial", payload))
        self.position += 1
        self.repeats += attempts - 1
        if block.replaces is None:
            self.session.advance(name, "speed", "trials", 1 / (2 * self.plan.rounds))

    def _label(self, block: Block) -> str:
        if block.replaces is not None:
            return f"round {block.replaces + 1} again"
        if block.number >= self.plan.rounds:
            return f"round {block.number + 1} (at most {self.plan.most_rounds})"
        return f"round {block.number + 1}/{self.plan.rounds}"


def undisturbed(
    session: Session, name: str, method: str, budget: int, around: Around = nullcontext, **asked: Any
) -> tuple[dict[str, Any], int]:
    """The first undisturbed attempt, or the least disturbed one, and how many attempts it took.

    Before another attempt it waits until others are quiet and the processor has cooled. If they are not within a
    bounded time, another attempt would tell no more, and there is none. What ``around`` finds out of each is added.
    """
    threads = session.prepared.specs[name].threads
    best: dict[str, Any] | None = None
    attempts, waited_s = 0, 0.0
    while True:
        worker = session.worker(name)
        with around() as seen:
            payload = worker.call(method, threads=threads, **asked)
        payload |= seen or {}
        session.spent(payload["contention"]["wall_s"])
        attempts += 1
        if best is None or _disturbance(payload) < _disturbance(best):
            best = payload
        again = bool(_disturbance(best)) and attempts < MAX_ATTEMPTS and attempts <= budget
        if again:
            waited, again = session.wait(payload["record"]["codes"])
            waited_s += waited
        if not again:
            best["record"]["attempt"] = attempts
            return {**best, "waited_s": waited_s}, attempts


def _disturbance(payload: Mapping[str, Any]) -> float:
    """0 for an undisturbed trial; else how much of the machine others took."""
    if not {"contended", "throttled"} & set(payload["record"]["codes"]):
        return 0.0
    seen = payload["contention"]
    shares = [seen.get(key) or 0.0 for key in ("steal_share", "other_share", "psi_some_share", "wait_share")]
    return 1e-9 + sum(shares)
