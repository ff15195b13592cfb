"""What the parts of a sweep share: the store, the workers, the progress. Knows no suite's meaning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from harness.backends.base import EngineSpec
from harness.errors import CellError, WorkerDied
from harness.meters.memory import available_bytes
from harness.plan import Cell, spec_identity
from harness.run.clock import now_ns
from harness.run.pool import Pool, WorkerHandle
from harness.run.prepare import Prepared
from harness.run.progress import Meter
from harness.store import Store
from harness.suites import speed

# Share of the free memory that engines may hold together; the rest is for scoring contexts and the page cache.
MEMORY_SHARE = 0.6
# Idle power is read for this long after loading where there is a counter; an estimate needs no time.
IDLE_S = 5.0
# Discarded generations after loading, at the longest prompt; their prompts are never those of a trial.
WARM_UPS, WARM_UP_TOKENS, WARM_UP_SEED = 2, 12, 987_654_321

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
        length = max(plan.prompt_tokens) if plan else 64
        drawn = speed.prompts((length,), WARM_UPS, WARM_UP_SEED, lambda text: _tokens(worker, text))
        memory = worker.call("warm", prompts=[block[length] for block in drawn], output_tokens=WARM_UP_TOKENS)
        idle = worker.call("idle", seconds=IDLE_S)
        self._loads[spec_identity(spec)] = {**loaded, **memory, "idle": idle}
        return int(memory["rss_bytes"] or memory["peak_rss_bytes"] or spec.ctx)

    def loaded(self, name: str) -> dict[str, Any]:
        """What loading the variant found: load_s, info, memory. Loads it where needed."""
        self.worker(name)
        return self._loads[spec_identity(self.prepared.specs[name])]

    def speed_prompts(self) -> list[dict[int, tuple[int, ...]]]:
        """Prompts by turn (two a round) and length, the same for all variants."""
        plan = self.prepared.suites.speed
        assert plan is not None
        first = self.first_worker()
        return speed.prompts(plan.prompt_tokens, 2 * plan.rounds, plan.seed, lambda text: _tokens(first, text))

    def depth_prompts(self) -> list[tuple[int, ...]]:
        """The text of each pass over the depths, the same for all variants."""
        plan = self.prepared.suites.speed
        assert plan is not None
        length, first = plan.depths[-1], self.first_worker()
        drawn = speed.prompts((length,), plan.depth_rounds, plan.seed + DEPTH_SEED, lambda text: _tokens(first, text))
        return [block[length] for block in drawn]

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
