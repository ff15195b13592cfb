"""The timed part of a sweep: palindromic rounds over all variants, disturbed ones repeated. Derives no figure to keep.

Each round takes one prompt length, in turn, so that every variant meets every length under the same conditions. Before
and after it the sentinel looks at the machine's own speed. Rounds beyond the planned ones take the reference and the
variants whose place on a front is open (``race``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from harness.errors import CellError
from harness.metrics.sentinel import AGAIN, CELL, moved
from harness.plan import Cell
from harness.record import ItemRow
from harness.run import race
from harness.run.sentinel import Sentinel
from harness.run.session import Session
from harness.store import CellRow
from harness.suite_plans import SpeedPlan
from harness.suites import speed

Around = Callable[[], AbstractContextManager[Mapping[str, Any] | None]]
# A contended trial is repeated at most this often, and repeats cost at most this share of the trials so far, after a
# few to begin with.
MAX_ATTEMPTS = 3
REPEAT_SHARE, REPEATS_FIRST = 0.5, 4
# Rounds in which the machine changed its speed are run again, at most this share of all; and no more of them once this
# many more repeats moved than held still, since such a machine is always moving.
AGAIN_SHARE, RESTLESS = 1 / 3, 3


@dataclass(frozen=True, slots=True)
class Block:
    """One take of a round. Drift within it falls on all variants alike, so it is the unit that statistics count.

    Attributes:
        round: Number of the round.
        take: 0, and more where the round is run again.
        order: Variants by turn, each twice.
        length: Prompt length, tokens.
        prompts: Of each variant's first and second turn.
        anew: Whether no earlier take of the round counts, since they were broken off or lack a variant.
        extra: Whether it takes only variants whose place is open.
    """

    round: int
    take: int
    order: tuple[str, ...]
    length: int
    prompts: tuple[Sequence[int], Sequence[int]]
    anew: bool = False
    extra: bool = False

    @property
    def number(self) -> int:
        """Unique; by it trials are paired."""
        return self.round + self.take * AGAIN

    def reading(self, end: str) -> str:
        """Key of the sentinel's reading at one end."""
        return f"{self.number:05d}-{end}"

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
    session.store.set_state(CELL, "done")  # what is open is told by the cells of the trials
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


@dataclass
class _Rounds:
    """All rounds of one session."""

    session: Session
    plan: SpeedPlan
    cells: Mapping[str, Cell]
    prompts: Sequence[Sequence[int]]
    sentinel: Sentinel
    failed: set[str] = field(default_factory=set)
    restless: int = 0
    launched: int | None = None

    def __post_init__(self) -> None:
        """Take up what is stored."""
        store = self.session.store
        stored = {name: store.items(str(cell.id)) for name, cell in self.cells.items()}
        rows = [row.payload for items in stored.values() for row in items]
        self.done = {name: {row.key for row in items} for name, items in stored.items()}
        self.position = len(rows)
        self.repeats = sum(row["attempt"] - 1 for row in rows)
        self.seen = {row.key: row.payload for row in store.items(CELL)}
        self.again = int(AGAIN_SHARE * self.plan.rounds)

    def run(self) -> set[str]:
        """Run them; returns the variants that failed."""
        for number in range(self.plan.rounds):
            self._round(number, tuple(self.cells))
        for batch in race.batches(self.session, self.plan, self.failed):
            for number in range(batch.start, batch.stop):
                self._round(number, batch.variants, extra=len(self.cells) > 1)
        return self.failed

    def _round(self, number: int, names: Sequence[str], *, extra: bool = False) -> None:
        """Run a round unless it is stored, and once more if the machine's speed moved meanwhile, if that may be.

        What was broken off, or lacks a variant that works again, is run anew as a whole: turns at other times, by other
        processes, are no pairs.
        """
        stored = [self._block(number, names, take, extra=extra) for take in range(self._takes(number))]
        if not any(map(self._whole, stored)):
            self._launch(self._block(number, names, len(stored)))
        takes = [block for block in stored if self._whole(block)]
        if not takes:
            takes = [self._run(self._block(number, names, len(stored), anew=bool(stored), extra=extra))]
        if len(takes) == 1 and self._moved(takes[0]) and self.again > 0 and self.restless < RESTLESS:
            takes.append(self._run(self._block(number, names, self._takes(number), extra=extra)))
        if len(takes) > 1:
            self.again -= 1
            self.restless += 1 if self._moved(takes[-1]) else -1

    def _block(
        self, number: int, names: Sequence[str], take: int = 0, *, anew: bool = False, extra: bool = False
    ) -> Block:
        length = self.plan.prompt_tokens[number % len(self.plan.prompt_tokens)]
        # The second half of the prompts is for repeats; neighbouring takes have none in common.
        first = 2 * number + take % 2 * len(self.prompts) // 2
        order = speed.palindrome(names, self.plan.seed, number + take * AGAIN)
        return Block(number, take, order, length, (self.prompts[first], self.prompts[first + 1]), anew, extra)

    def _takes(self, number: int) -> int:
        """How often a round was begun."""
        return next(take for take in count() if f"{number + take * AGAIN:05d}-before" not in self.seen)

    def _whole(self, block: Block) -> bool:
        """Whether a take is stored from end to end, with every variant that works."""
        return block.reading("after") in self.seen and all(
            key in self.done[name] for key, name, _ in block.turns() if name not in self.failed
        )

    def _moved(self, block: Block) -> bool:
        before, after = (self.seen.get(block.reading(end)) for end in ("before", "after"))
        return before is not None and after is not None and moved(before, after)

    def _launch(self, block: Block) -> None:
        """Launch engines anew every few rounds: a process keeps its luck as long as it lives.

        All are loaded before the round begins, as far as memory allows: between its turns that would take time, and
        drift would not fall on all alike. The one whose turn is first comes last, so that it is not the one to go.
        """
        if self.launched is not None:
            if block.round % self.plan.rounds_a_launch or block.round == self.launched:
                return
            self.session.pool.close()
        self.launched = block.round
        for name in block.order[len(block.order) // 2 :]:
            if name not in self.failed:
                try:
                    with self.session.timing(str(self.cells[name].id)):
                        self.session.worker(name)
                except CellError as error:
                    self._fail(name, error)

    def _run(self, block: Block) -> Block:
        """Run all trials of a take between two readings."""
        self._launch(block)
        self._look(block, "before")
        for key, name, prompt in block.turns():
            if name not in self.failed:
                try:
                    self._trial(block, key, name, prompt)
                except CellError as error:
                    self._fail(name, error)
        self._look(block, "after")
        return block

    def _look(self, block: Block, end: str) -> None:
        """Store the sentinel's reading at one end of a take, by the first variant that works; none where none does."""
        for name in block.order:
            if name in self.failed:
                continue
            try:
                reading = self.sentinel.read(name)
            except CellError as error:
                self._fail(name, error)
                continue
            key, replaces = block.reading(end), block.round if block.take else None
            about = {"block": block.number, "end": end, "replaces": replaces, "anew": block.anew, "extra": block.extra}
            self.seen[key] = {**about, "prompt_tokens": block.length, **reading}
            self.session.store.add_item(ItemRow(CELL, key, "sentinel", self.seen[key]))
            return

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
        if block.anew or not block.take:
            self.session.advance(name, "speed", "trials", 1 / (2 * self.plan.rounds))

    def _label(self, block: Block) -> str:
        if block.take:
            return f"round {block.round + 1} again"
        if block.round >= self.plan.rounds:
            return f"round {block.round + 1} (at most {self.plan.most_rounds})"
        return f"round {block.round + 1}/{self.plan.rounds}"


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
