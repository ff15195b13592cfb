"""The suites of a sweep with every size decided. Knows no configuration, no file and no machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from harness.suite_settings import SUITES

# When a comparison is precise enough, where the configuration does not say.
PRECISION: Mapping[str, float] = {"decode_tps": 0.03}
# Rounds of one launch of the engines at least, and launches at least where there are rounds enough for a verdict.
LEAST_ROUNDS, LEAST_LAUNCHES = 2, 5


@dataclass(frozen=True, slots=True)
class MmluPlan:
    """MMLU. ``per_subject`` None runs every question; ``data`` None takes what is found (hub, else the sample)."""

    form: Literal["continuation", "letters"]
    per_subject: int | None
    shots: int
    data: str | None
    seed: int


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """A task, group or set by name; ``limit`` items of each task (None: all), ``shots`` None takes the task's own."""

    task: str
    limit: int | None
    shots: int | None


@dataclass(frozen=True, slots=True)
class LmEvalPlan:
    """Tasks of lm-eval, those of the folder ``include`` among them; items are drawn with ``seed``."""

    tasks: tuple[TaskPlan, ...]
    include: str | None
    seed: int


@dataclass(frozen=True, slots=True)
class LongContextPlan:
    """Probes at each of ``depths`` tokens in each of ``texts`` texts; a continuation after ``continuation_from``."""

    depths: tuple[int, ...]
    texts: int
    probes: int
    continuation_tokens: int
    continuation_from: int
    seed: int


@dataclass(frozen=True, slots=True)
class CodeSyntaxPlan:
    """The first ``limit`` prompts (None: all), each completed by at most ``max_tokens``."""

    limit: int | None
    max_tokens: int
    seed: int


@dataclass(frozen=True, slots=True)
class SpeedPlan:
    """Rounds over all variants there and back, two trials a variant; each round takes the next prompt length.

    After ``rounds`` of them, further ones up to ``most_rounds`` take only variants on or near a front whose comparison
    with the reference is not yet as precise as ``precision`` asks (figure: half the interval's width over the value).
    ``depth_rounds`` passes over ``depths`` (none: no part "depth") for each variant that does not speculate.
    ``energy_windows`` of each kind for each variant, where energy is counted (0: no part "energy").
    """

    prompt_tokens: tuple[int, ...]
    output_tokens: int
    rounds: int
    seed: int
    depths: tuple[int, ...] = ()
    depth_rounds: int = 0
    most_rounds: int = 0
    precision: Mapping[str, float] = field(default_factory=lambda: dict(PRECISION))
    energy_windows: int = 0

    @property
    def rounds_a_launch(self) -> int:
        """Rounds between launches: a pass over the prompt lengths, fewer where too few launches would come of it.

        >>> [SpeedPlan((1,) * lengths, 9, rounds, 0).rounds_a_launch for lengths, rounds in ((3, 15), (6, 12), (3, 3))]
        [3, 2, 3]
        """
        lengths = len(self.prompt_tokens)
        return max(LEAST_ROUNDS, min(lengths, self.rounds // LEAST_LAUNCHES or lengths))


@dataclass(frozen=True, slots=True)
class FidelityPlan:
    """KL divergence over ``tokens`` positions; greedy texts of ``greedy_tokens`` from ``greedy_prompts`` prompts.

    The noise floor of each variant over ``floor_tokens`` positions, read one at a time.
    """

    tokens: int
    floor_tokens: int
    greedy_prompts: int
    greedy_tokens: int
    seed: int


SuiteSettings = MmluPlan | LmEvalPlan | LongContextPlan | CodeSyntaxPlan | SpeedPlan | FidelityPlan


@dataclass(frozen=True, slots=True)
class SuitePlan:
    """The suites to run with every size decided; None for a suite that does not run."""

    preset: str
    mmlu: MmluPlan | None = None
    lm_eval: LmEvalPlan | None = None
    long_context: LongContextPlan | None = None
    code_syntax: CodeSyntaxPlan | None = None
    speed: SpeedPlan | None = None
    fidelity: FidelityPlan | None = None

    def items(self) -> Iterator[tuple[str, SuiteSettings]]:
        """``(name, settings)`` of the suites that run, in a fixed order."""
        for name in SUITES:
            settings: SuiteSettings | None = getattr(self, name)
            if settings is not None:
                yield name, settings

    def settings_of(self, suite: str) -> dict[str, Any]:
        """A suite's settings as plain JSON values, as they are hashed and stored."""
        plain = asdict(getattr(self, suite))
        return {key: list(value) if isinstance(value, tuple) else value for key, value in plain.items()}
