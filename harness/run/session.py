"""What the parts of a sweep share: the store, the workers, the progress. Knows no suite's meaning."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from harness.backends.base import EngineSpec
from harness.errors import CellError, WorkerDied
from harness.meters.memory import available_bytes
from harness.plan import Cell, spec_identity
from harness.run.calm import Calm
from harness.run.clock import now_ns
from harness.run.pool import Pool, WorkerHandle
from harness.run.prepare import Prepared
from harness.run.progress import Meter
from harness.stats.drift import flat
from harness.store import Store
from harness.suites import speed

# Share of the free memory that engines may hold together; the rest is for scoring contexts and the page cache.
MEMORY_SHARE = 0.6
# Waiting for quiet and for cooling may take this long in all: a start, and a share of the time in trials.
WAIT_LEAST_S, WAIT_SHARE = 20.0, 0.3
# An estimate of idle power needs a moment only; counters are read over windows of their own.
IDLE_S = 0.1
# Discarded generations after loading; their prompts are never those of a trial. Every buffer is made by one after the
# longest prompt; short ones follow until five in a row take equal time.
WARM_UPS_LEAST, WARM_UPS_MOST, WARM_UP_TOKENS, WARM_UP_SEED = 5, 12, 12, 987_654_321

# Texts that grow to a depth are none of the trials' prompts.
DEPTH_SEED = 123_456_789


@dataclass
class Session:
    """One sweep at work."""

    prepared: Prepared
    store: Store
    folder: Path
    meter: Meter
    seconds: Mapping[tuple[str, str, str], float]
    failures: list[tuple[str, str, str]] = field(default_factory=list)
    reference_written: bool = False
    broken: dict[str, str] = field(default_factory=dict)
    _loads: dict[str, dict[str, Any]] = field(default_factory=dict)
    _fixed: tuple[int, ...] = ()
    _calm: Calm = field(default_factory=Calm)
    _spent_s: float = 0.0
    _waited_s: float = 0.0

    @cached_property
    def pool(self) -> Pool:
        """The workers, as many resident as memory allows."""
        free = available_bytes()
        budget = MEMORY_SHARE * free if free is not None else 4e9
        return Pool(self.folder / "logs", budget, self._warm)

    def worker(self, name: str) -> WorkerHandle:
        """A variant's worker, loaded and warm. Raises CellError where it can't be, at once from the second time on."""
        if name in self.broken:
            raise CellError(self.broken[name])
        try:
            return self.pool.get(name, self.prepared.specs[name])
        except CellError as error:
            self.broken[name] = f"cannot be loaded: {error}"
            raise CellError(self.broken[name]) from error

    def _warm(self, worker: WorkerHandle, spec: EngineSpec) -> int:
        """Load and warm up, both outside of any clock but the load's own; returns the bytes it holds."""
        loaded = worker.call("load", spec=spec)
        plan = self.prepared.suites.speed
        lengths = (max(plan.prompt_tokens) if plan else WARM_UP_TOKENS, WARM_UP_TOKENS)
        longest, fixed = speed.prompts(lengths, WARM_UP_SEED, lambda text: _tokens(worker, text))

        def generate(prompt: Sequence[int], times: int, most: int = WARM_UP_TOKENS) -> dict[str, Any]:
            tokens = min(WARM_UP_TOKENS, most)
            found: dict[str, Any] = worker.call("warm", prompts=[prompt] * times, output_tokens=tokens)
            return found

        memory = generate(longest, 1, plan.output_tokens if plan else WARM_UP_TOKENS)  # no more may fit
        seconds: list[float] = []
        while plan and len(seconds) < WARM_UPS_MOST and not flat(seconds):
            memory = generate(fixed, 1 if seconds else WARM_UPS_LEAST)
            seconds += memory["seconds"]
        counted = self.prepared.energy.counted
        idle = [] if counted else worker.call("idle", seconds=IDLE_S, threads=spec.threads)["energy"]
        self._fixed = self._fixed or fixed
        warmth = {"seconds": seconds, "flat": flat(seconds)} if plan else None
        held = {key: memory[key] for key in ("peak_rss_bytes", "rss_bytes")}
        self._loads[spec_identity(spec)] = {**loaded, **held, "warm": warmth, "idle": idle}
        return int(memory["rss_bytes"] or memory["peak_rss_bytes"] or spec.ctx)

    @property
    def fixed_prompt(self) -> tuple[int, ...]:
        """The short prompt of warm-ups and sentinels, the same for all variants, which share one tokenizer."""
        return self._fixed

    def loaded(self, name: str) -> dict[str, Any]:
        """What loading the variant found: load_s, info, memory. Loads it where needed."""
        self.worker(name)
        return self._loads[spec_identity(self.prepared.specs[name])]

    def speed_prompts(self) -> list[tuple[int, ...]]:
        """Prompts by turn, two a round, the same for all variants; after those of the rounds, those of repeats."""
        plan = self.prepared.suites.speed
        assert plan is not None
        rounds = max(plan.rounds, plan.most_rounds)
        lengths = [plan.prompt_tokens[number % len(plan.prompt_tokens)] for number in range(rounds)]
        turns = [length for length in lengths for _ in range(2)]
        first = self.first_worker()
        return speed.prompts([*turns, *turns], plan.seed, lambda text: _tokens(first, text))

    def depth_prompts(self) -> list[tuple[int, ...]]:
        """The text of each pass over the depths, the same for all variants."""
        plan = self.prepared.suites.speed
        assert plan is not None
        lengths, first = [plan.depths[-1]] * plan.depth_rounds, self.first_worker()
        return speed.prompts(lengths, plan.seed + DEPTH_SEED, lambda text: _tokens(first, text))

    def first_worker(self) -> WorkerHandle:
        """Any variant that loads; they all share one tokenizer. Raises CellError where none does."""
        errors = []
        for variant in self.prepared.variants:
            try:
                return self.worker(variant.name)
            except CellError as error:
                errors.append(f"{variant.name}: {error}")
        raise CellError("no variant could be loaded; " + "; ".join(errors))

    @cached_property
    def mmlu_tasks(self) -> dict[str, Any]:
        """lm-eval's tasks over the questions, built once."""
        from harness.suites.lm_eval import build_mmlu

        plan, mmlu = self.prepared.suites.mmlu, self.prepared.mmlu
        assert plan is not None and mmlu is not None
        return build_mmlu(mmlu.parts, plan.form, plan.shots)

    @cached_property
    def mmlu_chosen(self) -> dict[str, list[int]]:
        """Question numbers by subject, the same for every variant."""
        from harness.suites.mmlu import pick

        plan, mmlu = self.prepared.suites.mmlu, self.prepared.mmlu
        assert plan is not None and mmlu is not None
        return pick({name: len(part["test"]) for name, part in mmlu.parts.items()}, plan.per_subject, plan.seed)

    def cells(self, suite: str, part: str) -> dict[str, Cell]:
        """The planned cells of a part, by variant."""
        return {cell.variant: cell for cell in self.prepared.cells if (cell.suite, cell.part) == (suite, part)}

    def cell_id(self, variant: str, suite: str, part: str) -> str:
        """Id of a planned cell."""
        return next(
            str(cell.id)
            for cell in self.prepared.cells
            if (cell.variant, cell.suite, cell.part) == (variant, suite, part)
        )

    @contextmanager
    def timing(self, cell_id: str) -> Iterator[None]:
        """Add the wall time of a block of work to its cell."""
        start = now_ns()
        try:
            yield
        finally:
            self.store.add_seconds(cell_id, (now_ns() - start) / 1e9)

    def spent(self, seconds: float) -> None:
        """Count seconds of timed work; waiting is allowed in proportion."""
        self._spent_s += seconds

    def wait(self, codes: Collection[str]) -> tuple[float, bool]:
        """Wait, for a bounded time, until a disturbed or hot machine has calmed down.

        Returns:
            Seconds waited, and whether the machine is calm as far as can be told.
        """
        waited, calm = self._calm.wait(codes, WAIT_LEAST_S + WAIT_SHARE * self._spent_s - self._waited_s)
        self._waited_s += waited
        return waited, calm

    def more(self, variants: Collection[str], share: float) -> None:
        """Expect more of the variants' trials, as a share of those planned."""
        self.meter.more(share * sum(self.seconds.get((name, "speed", "trials"), 0.0) for name in variants))

    def advance(self, variant: str, suite: str, part: str, share: float) -> None:
        """Count a share of a cell as done."""
        self.meter.advance(self.seconds.get((variant, suite, part), 0.0) * share)

    def finish(self, cell: Cell) -> None:
        """Close a cell."""
        self.store.set_state(str(cell.id), "done")

    def fail(self, cell: Cell, error: CellError) -> None:
        """Record a cell's failure; a dead worker is started anew for the next cell."""
        self.store.set_state(str(cell.id), "failed", str(error))
        self.failures.append((cell.variant, cell.suite, str(error)))
        self.meter.say(f"{cell.variant} · {cell.suite}: failed: {error}")
        if isinstance(error, WorkerDied):
            self.pool.drop(cell.variant)


def _tokens(worker: WorkerHandle, text: str) -> list[int]:
    tokens: list[int] = worker.call("tokenize", text=text)
    return tokens
