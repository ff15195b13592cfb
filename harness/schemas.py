"""The published shape of ``results.json``, and the JSON Schemas that are made from it and from the configuration.

``python -m harness.schemas`` writes them to ``harness/schema/``; a test keeps them in step. Computes no figure.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from harness.config import Config
from harness.errors import HarnessError
from harness.record import CODES
from harness.schemas_suites import Cost, MmluResult

DRAFT = "https://json-schema.org/draft/2020-12/schema"


class _Strict(BaseModel):
    """Closed: an unknown key is a fault."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class _Open(BaseModel):
    """Open: what is named here must fit; more may stand beside it."""

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)


Code = Annotated[str, Field(json_schema_extra={"examples": sorted(CODES)})]
Share = Annotated[float, Field(ge=0, le=1)]


class MetricResult(_Strict):
    """One figure of one variant. Missing is null, with a reason code."""

    model_config = ConfigDict(
        json_schema_extra={
            "if": {"properties": {"value": {"type": "null"}}},
            "then": {"properties": {"reasons": {"minItems": 1}}},
        }
    )

    value: float | None
    low: float | None = Field(None, description="lower end of the 95% interval")
    high: float | None = Field(None, description="upper end of the 95% interval")
    n: int = Field(0, ge=0, description="observations it rests on")
    unit: str
    better: Literal["higher", "lower", "none"]
    reasons: tuple[Code, ...] = Field((), description="reason codes; see harness/record.py for their meanings")
    conditions: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _missing_has_a_reason(self) -> MetricResult:
        if self.value is None and not self.reasons:
            raise ValueError("a missing value needs a reason code")
        unknown = [code for code in self.reasons if code not in CODES]
        if unknown:
            raise ValueError(f"unknown reason codes {unknown}")
        return self


class Detail(_Strict):
    """A figure that is no metric of the catalogue. Missing is null, with a reason code."""

    value: float | None
    low: float | None = None
    high: float | None = None
    n: int = Field(0, ge=0)
    reasons: tuple[Code, ...] = ()
    conditions: dict[str, Any] = Field(default_factory=dict)


class Failure(_Open):
    """A suite that failed on a variant."""

    suite: str
    reason: str


class VariantResult(_Open):
    """One variant."""

    name: str
    reference: bool
    id: str | None = Field(None, description="sha256 of all effective settings and of the model file's bytes")
    status: Literal["ok", "partial", "failed"]
    failures: tuple[Failure, ...] = ()
    settings: dict[str, Any]
    model_file: str | None = None
    model_digest: str | None = None
    deploy: str | None = Field(None, description="command line that serves this variant")
    metrics: dict[str, MetricResult]


class LeftOut(_Open):
    """A variant that a front leaves out, and why."""

    name: str
    reasons: tuple[str, ...]


class Front(_Open):
    """A Pareto front. The first in the list is the headline front."""

    objectives: tuple[str, ...] = Field(min_length=1)
    members: tuple[str, ...]
    p_front: dict[str, Share] = Field(description="share of bootstrap draws in which the variant is on the front")
    left_out: tuple[LeftOut, ...] = ()
    tied: tuple[tuple[str, ...], ...] = ()


class Loser(_Open):
    """A variant that was not chosen, and why."""

    name: str
    why: str


class Decision(_Open):
    """The recommended variant for the default wish."""

    wish: str
    objective: str
    quality_key: str | None = None
    quality_why: str | None = None
    choice: str | None
    reason: str
    losers: tuple[Loser, ...] = ()
    margin: float | None = None


class Felt(_Open):
    """What a reader feels of one variant, beside the figures among its metrics."""

    bands: tuple[Literal["sluggish", "passable", "fluent", "brisk", "instant"], ...] = Field(
        description="the bands that the interval of decode_tps touches, slowest first"
    )
    band: str | None = Field(description="the same in words")
    figures: dict[str, Detail] = Field(description="tokens_in_budget, agent<n>_p95_s, <reader>_wait_s, ...")
    by_prompt: tuple[dict[str, Any], ...] = Field((), description="a short completion, by prompt length")


class Feel(_Open):
    """What a reader feels: the settings it was judged by, and the timed variants by name."""

    completion_tokens: int
    budget_s: float
    calls: tuple[int, ...]
    readers_tps: dict[str, float]
    variants: dict[str, Felt]


class TaskMetric(_Open):
    """A metric of a task, by variant; ``delta`` against the reference on the same documents."""

    key: str = Field(description="lm-eval's metric,filter")
    better: Literal["higher", "lower", "none"]
    variants: dict[str, dict[str, Any]]


class TaskResult(_Open):
    """A task of lm-eval."""

    task: str
    kind: str
    shots: int
    n: int = Field(description="documents asked")
    of: int = Field(description="documents that the task has")
    main: str | None = Field(description="the metric that stands for the task")
    chance: float | None
    at_chance: bool
    metrics: tuple[TaskMetric, ...]
    cut: dict[str, int] = Field(description="documents whose prompt lost its beginning, by variant")


class Quiet(_Open):
    """How quiet the machine was. Null is what was not recorded."""

    quiet: bool | None
    sentence: str
    trials: dict[str, Any]
    load: dict[str, dict[str, float] | None] = Field(description="shares: median and worst over trials")
    clock: dict[str, float | None]
    sentinel: dict[str, Any] | None
    warm_up: dict[str, dict[str, Any] | None]
    precision: dict[str, Any] = Field(description="half widths: ln(high / low) / 2, by variant")


class Claim(_Open):
    """A published claim beside what this run measured."""

    key: str
    claim: str
    source: str
    verdict: Literal["holds", "does not hold", "cannot tell"]
    why: str


class Machine(_Open):
    """Where it ran. Results with different fingerprints are never put on one front."""

    fingerprint: str


class Results(_Open):
    """``results.json``, version 1."""

    schema_version: Literal[1]
    run_id: str
    created: str
    harness_version: str
    preset: str
    status: Literal["complete", "partial"]
    machine: Machine
    conditions: dict[str, Any]
    suites: dict[str, dict[str, Any]]
    variants: tuple[VariantResult, ...]
    fronts: tuple[Front, ...]
    tasks: tuple[TaskResult, ...] = Field((), description="lm-eval's tasks, where the run has some")
    mmlu: dict[str, MmluResult] = Field({}, description="by variant")
    cost: tuple[Cost, ...] = Field((), description="what each part of each suite took, by variant")
    decision: Decision | None = None
    claims: tuple[Claim, ...] = ()
    feel: Feel | None = None
    quiet: Quiet | None = None


def check_results(results: dict[str, Any]) -> Results:
    """The typed form of a ``results.json``.

    Raises:
        HarnessError: It does not have the published shape; one line per fault.
    """
    try:
        return Results.model_validate(results)
    except ValidationError as error:
        lines = [
            f"results.json: {'.'.join(map(str, detail['loc']))}: {detail['msg']}"
            for detail in error.errors(include_url=False)
        ]
        raise HarnessError("\n".join(lines)) from error


def results_schema() -> dict[str, Any]:
    """JSON Schema of ``results.json``."""
    return {"$schema": DRAFT, **Results.model_json_schema()}


def variants_schema() -> dict[str, Any]:
    """JSON Schema of ``variants.yaml``. Rules across places (names, exclusions) are checked by the loader only."""
    schema = {"$schema": DRAFT, **Config.model_json_schema(), "title": "variants.yaml"}
    schema["patternProperties"] = {"^x-": {"description": "ignored; a place for anchors"}}
    for rule in schema["$defs"]["Exclude"]["properties"].values():
        # A single value may stand for a list of one.
        rule["anyOf"] = [rule["anyOf"][0], rule["anyOf"][0]["items"]]
    _without_null(schema)
    return schema


def _without_null(node: Any) -> None:
    """Optional keys may be left out, but an empty value is a fault in the file."""
    if isinstance(node, dict):
        members = node.get("anyOf")
        if isinstance(members, list):
            node["anyOf"] = [member for member in members if member != {"type": "null"}]
            if "default" in node and node["default"] is None:
                del node["default"]
        for value in node.values():
            _without_null(value)
    elif isinstance(node, list):
        for value in node:
            _without_null(value)


SCHEMAS = {"variants.schema.json": variants_schema, "results.schema.json": results_schema}


def text_of(name: str) -> str:
    """A schema file's text."""
    return json.dumps(SCHEMAS[name](), indent=2, sort_keys=True) + "\n"


def main(folder: Path = Path(__file__).parent / "schema") -> None:
    """Write the schema files."""
    folder.mkdir(exist_ok=True)
    for name in SCHEMAS:
        (folder / name).write_text(text_of(name), encoding="utf-8")


if __name__ == "__main__":
    main()
