"""How much of each suite a preset runs. A size stated in ``variants.yaml`` wins. Knows no file and no machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

from harness.config import Config, Finding
from harness.errors import InputError, did_you_mean
from harness.suite_plans import (
    PRECISION,
    CodeSyntaxPlan,
    FidelityPlan,
    LmEvalPlan,
    LongContextPlan,
    MmluPlan,
    SpeedPlan,
    SuitePlan,
    TaskPlan,
)
from harness.suite_settings import SUITES

# Tokens generated at each depth of the speed suite.
DEPTH_TOKENS = 16
# Tokens of a probe's question and options beside the text it asks about, at most.
PROBE_TOKENS = 256


PRESETS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "smoke": {
        "mmlu": {"per_subject": 1},
        "lm_eval": {"limit": 2},
        "long_context": {
            "depths": (256,), "texts": 1, "probes": 6, "continuation_tokens": 16, "continuation_from": 128,
        },
        "code_syntax": {"limit": 4, "max_tokens": 32},
        "speed": {
            "prompt_tokens": (16, 48, 96), "output_tokens": 20, "rounds": 3, "most_rounds": 3,
            "depths": (), "depth_rounds": 3, "energy_windows": 2,
        },
        "fidelity": {"tokens": 128, "floor_tokens": 32, "greedy_prompts": 2, "greedy_tokens": 16},
    },
    "quick": {
        "mmlu": {"per_subject": 4},
        "lm_eval": {"limit": 50},
        "long_context": {
            "depths": (512, 1024, 2048), "texts": 2, "probes": 24, "continuation_tokens": 48,
            "continuation_from": 256,
        },
        "code_syntax": {"limit": 16, "max_tokens": 56},
        "speed": {
            "prompt_tokens": (32, 96, 256), "output_tokens": 33, "rounds": 15, "most_rounds": 30,
            "depths": (512, 1024), "depth_rounds": 3, "energy_windows": 3,
        },
        "fidelity": {"tokens": 1024, "floor_tokens": 64, "greedy_prompts": 4, "greedy_tokens": 32},
    },
    "standard": {
        "mmlu": {"per_subject": 20},
        "lm_eval": {"limit": 500},
        "long_context": {
            "depths": (512, 1024, 2048, 3584), "texts": 4, "probes": 16, "continuation_tokens": 1000,
            "continuation_from": 2000,
        },
        "code_syntax": {"limit": 32, "max_tokens": 192},
        "speed": {
            "prompt_tokens": (128, 512, 2048), "output_tokens": 128, "rounds": 30, "most_rounds": 60,
            "depths": (512, 1024, 2048, 3584), "depth_rounds": 6, "energy_windows": 5,
        },
        "fidelity": {"tokens": 2560, "floor_tokens": 256, "greedy_prompts": 16, "greedy_tokens": 128},
    },
    "full": {
        "mmlu": {"per_subject": None},
        "lm_eval": {"limit": None},
        "long_context": {
            "depths": (512, 1024, 2048, 3584), "texts": 10, "probes": 24, "continuation_tokens": 1500,
            "continuation_from": 2000,
        },
        "code_syntax": {"limit": None, "max_tokens": 256},
        "speed": {
            "prompt_tokens": (128, 512, 2048), "output_tokens": 256, "rounds": 60, "most_rounds": 120,
            "depths": (512, 1024, 2048, 3584, 8192), "depth_rounds": 10, "energy_windows": 8,
        },
        "fidelity": {"tokens": 4096, "floor_tokens": 512, "greedy_prompts": 16, "greedy_tokens": 256},
    },
}  # fmt: skip

_PLANS = {
    "mmlu": MmluPlan,
    "lm_eval": LmEvalPlan,
    "long_context": LongContextPlan,
    "code_syntax": CodeSyntaxPlan,
    "speed": SpeedPlan,
    "fidelity": FidelityPlan,
}


def resolve(config: Config, preset: str, only: tuple[str, ...] = ()) -> SuitePlan:
    """Every suite that runs, with sizes from the preset where the configuration gives none.

    Args:
        config: The configuration; the suites it leaves out do not run.
        preset: smoke | quick | standard | full.
        only: Run only these suites; empty: all that the configuration has.

    Raises:
        InputError: An unknown preset or suite, or a suite that the configuration leaves out.
        ConfigError: A suite needs more context than a variant has.
    """
    if preset not in PRESETS:
        raise InputError(f"--preset: unknown {preset!r}; {did_you_mean(preset, PRESETS)}")
    given = [name for name in SUITES if getattr(config.suites, name) is not None]
    for name in only:
        if name not in given:
            raise InputError(f"--suite: unknown {name!r}; {did_you_mean(name, given)}")
    chosen = {name: _settings(config, preset, name) for name in given if not only or name in only}
    plan = SuitePlan(preset, **chosen)
    _check_context(config, plan)
    return plan


def _settings(config: Config, preset: str, name: str) -> Any:
    stated = getattr(config.suites, name).model_dump(exclude_none=True)
    values = {**PRESETS[preset][name], **stated}
    values = {key: None if value == "all" else value for key, value in values.items()}
    if name == "mmlu":
        values = {"shots": 5 if values["form"] == "letters" else 0, "data": None, **values}
    if name == "lm_eval":
        limit = values.pop("limit")
        values = {"include": None, **values, "tasks": tuple(_task(task, limit) for task in values["tasks"])}
    if name == "speed":
        values["precision"] = {**PRECISION, **(values.get("precision") or {})}
        values["most_rounds"] = _most_rounds(config, values, stated)
    if name == "speed" and "depths" not in stated:
        # What a preset asks for in passing is no reason to refuse a small context.
        values["depths"] = tuple(depth for depth in values["depths"] if depth + DEPTH_TOKENS <= _least_ctx(config))
    assert set(values) == {field.name for field in fields(_PLANS[name])}
    return _PLANS[name](**values)


def _task(stated: Mapping[str, Any], limit: int | None) -> TaskPlan:
    asked = stated.get("limit", limit)
    return TaskPlan(stated["task"], None if asked == "all" else asked, stated.get("shots"))


def without_energy(plan: SuitePlan) -> SuitePlan:
    """The same suites without energy windows, for a machine on which energy can't be counted."""
    return plan if plan.speed is None else replace(plan, speed=replace(plan.speed, energy_windows=0))


def _most_rounds(config: Config, values: Mapping[str, Any], stated: Mapping[str, Any]) -> int:
    """The limit of rounds; where the file states ``rounds`` alone, exactly those are run, whatever the preset."""
    rounds: int = values["rounds"]
    if "most_rounds" not in stated:
        return rounds if "rounds" in stated else values["most_rounds"]
    most: int = stated["most_rounds"]
    if most < rounds:
        fault = f"{most} is below rounds, which is {rounds}; raise it, or lower rounds"
        raise config.fault([Finding(("suites", "speed", "most_rounds"), fault)])
    return most


def _needs(plan: SuitePlan) -> Iterator[tuple[tuple[str, ...], str, int]]:
    """``(place, what, tokens)`` of everything that must fit in a context window."""
    if plan.long_context is not None:
        long = plan.long_context
        yield ("suites", "long_context"), f"depth {long.depths[-1]} and a probe", long.depths[-1] + PROBE_TOKENS
        total = long.continuation_from + long.continuation_tokens
        yield ("suites", "long_context"), f"continuation to {total}", total + 1
    if plan.speed is not None:
        total = plan.speed.prompt_tokens[-1] + plan.speed.output_tokens
        yield ("suites", "speed"), f"prompt {plan.speed.prompt_tokens[-1]} and output", total
        for depth in plan.speed.depths[-1:]:
            yield ("suites", "speed"), f"depth {depth} and {DEPTH_TOKENS} tokens", depth + DEPTH_TOKENS
    if plan.fidelity is not None:
        yield ("suites", "fidelity"), "greedy text and its prompt", plan.fidelity.greedy_tokens + PROBE_TOKENS
    if plan.code_syntax is not None:
        yield ("suites", "code_syntax"), "code and its prompt", plan.code_syntax.max_tokens + PROBE_TOKENS


def _least_ctx(config: Config) -> int:
    sizes = [config.settings.ctx, *(config.matrix.ctx or ()), *(single.ctx for single in config.variants if single.ctx)]
    return min(sizes)


def _check_context(config: Config, plan: SuitePlan) -> None:
    least = _least_ctx(config)
    faults = [
        Finding(place, f"{what} need {tokens} tokens; the smallest ctx is {least}; lower the size or raise ctx")
        for place, what, tokens in _needs(plan)
        if tokens > least
    ]
    if faults:
        raise config.fault(faults)
