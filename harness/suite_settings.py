"""The suites of a configuration and their sizes. Knows no file, no variant and no preset."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from harness.settings import Count, Lax, Model

SUITES = ("mmlu", "lm_eval", "long_context", "code_syntax", "speed", "fidelity")
# Those that run where a configuration names none: lm_eval has nothing to do without the names of its tasks.
BY_DEFAULT = tuple(name for name in SUITES if name != "lm_eval")


def _some(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if not values:
        raise ValueError("an empty list; expected at least one entry")
    return values


def _ascending(values: tuple[int, ...]) -> tuple[int, ...]:
    if list(values) != sorted(set(values)):
        raise ValueError("expected ascending numbers, each once")
    return values


Lengths = Annotated[
    tuple[Count, ...], Lax, AfterValidator(_some), AfterValidator(_ascending), Field(json_schema_extra={"minItems": 1})
]


def _share(value: Any) -> Any:
    """``3%`` as 0.03; anything else is left to the number's own check."""
    if isinstance(value, str) and re.fullmatch(r"\s*\d+(\.\d+)?\s*%\s*", value):
        return float(value.strip().rstrip("%")) / 100
    return value


Precision = Annotated[
    float,
    BeforeValidator(_share, json_schema_input_type=float | str),
    Field(gt=0, le=1, description="half the width of the 95% interval over the value: 0.03, or 3%"),
]
PromptLengths = Annotated[
    tuple[Annotated[int, Field(ge=4, le=10_000_000)], ...],
    Lax,
    AfterValidator(_some),
    AfterValidator(_ascending),
    Field(json_schema_extra={"minItems": 1}),
]
# More would take more prompts with a beginning of their own than there are, four a round.
Rounds = Annotated[int, Field(ge=1, le=800)]
Depths = Annotated[tuple[Annotated[int, Field(ge=16, le=10_000_000)], ...], Lax, AfterValidator(_ascending)]


class MmluSuite(Model):
    """MMLU by lm-eval. Sizes left out come from the preset."""

    form: Literal["continuation", "letters"] = "continuation"
    per_subject: Literal["all"] | Count | None = None
    shots: Annotated[int, Field(ge=0, le=5)] | None = Field(None, description="default: 0 continuation, 5 letters")
    data: str | None = Field(None, min_length=1, description="folder in the layout of the hub's cais/mmlu")
    seed: int = 0


class LmEvalTask(Model):
    """One task or group of lm-eval, or a set of the harness (small-model)."""

    task: str = Field(min_length=1)
    limit: Literal["all"] | Count | None = Field(None, description="items of each task; default: the suite's")
    shots: Annotated[int, Field(ge=0, le=100)] | None = Field(None, description="default: the task's own")


def _listed(value: Any) -> Any:
    """A name alone is a task with nothing else said of it, and one task is a list of one."""
    several = value if isinstance(value, list | tuple) else [value]
    return [{"task": one} if isinstance(one, str) else one for one in several]


Tasks = Annotated[
    tuple[LmEvalTask, ...],
    Lax,
    BeforeValidator(_listed, json_schema_input_type=str | LmEvalTask | list[str | LmEvalTask]),
    AfterValidator(_some),
]


class LmEvalSuite(Model):
    """Any tasks of lm-eval, by name: multiple choice, log-likelihood, perplexity of texts, generation."""

    tasks: Tasks
    limit: Literal["all"] | Count | None = Field(None, description="items of each task, drawn with the seed")
    include: str | None = Field(None, min_length=1, description="folder with task files of your own")
    seed: int = 0


class LongContextSuite(Model):
    """Planted facts probed at several depths, and a long free continuation."""

    depths: Lengths | None = None
    texts: Count | None = None
    probes: Count | None = Field(None, description="probes at each depth of each text")
    continuation_tokens: Count | None = None
    continuation_from: Count | None = Field(None, description="tokens of text before the free continuation")
    seed: int = 0


class CodeSyntaxSuite(Model):
    """Does completed code parse?"""

    limit: Literal["all"] | Count | None = None
    max_tokens: Count | None = None
    seed: int = 0


class SpeedSuite(Model):
    """Timed generations, variants interleaved in palindromic rounds."""

    prompt_tokens: PromptLengths | None = None
    output_tokens: Annotated[int, Field(ge=2, le=1_000_000)] | None = None
    rounds: Rounds | None = Field(
        None, description="a round is 2 trials a variant, at one prompt length; all variants run this many"
    )
    most_rounds: Rounds | None = Field(
        None, description="rounds of a variant on or near a front until its figures are precise enough"
    )
    precision: dict[Literal["decode_tps", "ttft_s"], Precision] | None = Field(
        None, description="when a comparison with the reference is precise enough; default decode_tps: 3%"
    )
    depths: Depths | None = Field(None, description="context lengths at which TTFT and decode speed are told; [] none")
    depth_rounds: Rounds | None = Field(
        None, description="passes over the depths for each variant that does not speculate"
    )
    seed: int = 0


class FidelitySuite(Model):
    """Distance to the reference: KL divergence, top-1 agreement, greedy agreement."""

    tokens: Count | None = None
    floor_tokens: Count | None = Field(None, description="positions of the noise floor, read one token at a time")
    greedy_prompts: Count | None = None
    greedy_tokens: Count | None = None
    seed: int = 0


class Suites(Model):
    """The suites to run. A suite that is left out does not run; without ``suites`` at all, all but lm_eval run."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    mmlu: MmluSuite | None = None
    lm_eval: LmEvalSuite | None = None
    long_context: LongContextSuite | None = None
    code_syntax: CodeSyntaxSuite | None = None
    speed: SpeedSuite | None = None
    fidelity: FidelitySuite | None = None

    @model_validator(mode="after")
    def _at_least_one(self) -> Suites:
        if not self.model_fields_set:
            raise ValueError("no suite; expected at least one; write for example speed: {}, or remove the key")
        return self
