"""Rough estimates of the time, memory and disk of a sweep before it runs. Every figure here is an estimate.

The model: a decode step reads all weights and the KV cache once and pays a fixed share of computing per parameter;
a prompt token costs 2 operations per parameter. Knows the machine only through the ``Machine`` it is given.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.config import Variant
from harness.plan import Cell
from harness.presets import DEPTH_TOKENS, PROBE_TOKENS
from harness.settings import KV_BITS, WEIGHT_BITS, DraftModel, needs_flash
from harness.suite_plans import (
    CodeSyntaxPlan,
    FidelityPlan,
    LmEvalPlan,
    LongContextPlan,
    MmluPlan,
    SpeedPlan,
    SuitePlan,
    SuiteSettings,
)

MMLU_SUBJECTS = 57
MMLU_ITEMS = 14_042
# Typical tokens: an MMLU question, one answer option, a long-context probe with its options, a code prompt.
QUESTION_TOKENS, OPTION_TOKENS, ASK_TOKENS, CODE_PROMPT_TOKENS, GREEDY_PROMPT_TOKENS = 90, 8, 22, 120, 64
# A request of an lm-eval task with its examples, an answer in free text, and items of a task that is run whole.
TASK_TOKENS, WRITTEN_TOKENS, TASK_ITEMS = 250, 128, 2_000
# Questions of the built-in sample are shorter than MMLU's; a program closes its block long before its cap.
SAMPLE_SHARE, CODE_SHARE = 0.4, 0.4
# Small models' vocabularies make the logits of every position costly in fidelity: about this many prompt tokens' worth.
LOGITS_FACTOR = 3.0
START_S = 1.5
# An energy window of each of three kinds: 1 s with RAPL, 5 s with a GPU, 10 s with a meter of the user's own.
ENERGY_WINDOW_S = 5.0
# Warm-ups of a variant at each launch, in generations of about 12 tokens; and what sentinels around rounds, repeats
# and waits add to the time in trials.
WARM_UP_STEPS, WATCH_SHARE = 8 * 12, 0.25
# Python, its libraries and the engine's code (98 MB with llama-cpp-python 0.3.36).
PROCESS_BYTES = 100e6
# Rows of logits whose comparison is worked on at once, as float64: about 64 of one side, and intermediate results.
COMPARED = 128
# MMLU's longest question and longest five examples, and fidelity's text, in tokens of a small vocabulary.
LONGEST_QUESTION, LONGEST_EXAMPLES, LONGEST_TEXT = 1_100, 2_700, 3_500


@dataclass(frozen=True, slots=True)
class Machine:
    """What is assumed of the machine: memory bandwidth it sustains (bytes/s) and prompt operations (1/s)."""

    bandwidth_bytes_per_s: float
    operations_per_s: float
    operations_decode_per_s: float
    ram_bytes: int | None = None
    free_disk_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class ModelSize:
    """What is known or guessed of the model: parameters, bytes of an F16 KV cache per token, heads and vocabulary."""

    n_params: float
    kv_bytes_per_token: float
    source_bytes: int | None
    known: bool
    heads: int = 0
    n_vocab: int = 0


@dataclass(frozen=True, slots=True)
class VariantCost:
    """Estimates of one variant: its weights file and its peak memory, bytes."""

    variant: str
    file_bytes: float
    memory_bytes: float


# SmolLM2-135M: 134.5 M parameters, 30 layers, 3 key-value heads of 64 values, twice (K and V), 2 bytes each.
DEMO = ModelSize(
    n_params=134_515_008,
    kv_bytes_per_token=2 * 30 * 3 * 64 * 2,
    source_bytes=98_362_432,
    known=True,
    heads=9,
    n_vocab=49_152,
)


def default_machine(cores: int, ram_bytes: int | None, free_disk_bytes: int | None) -> Machine:
    """A middling CPU: 15 GB/s a core up to 60; 90 Gop/s a core on prompts, 45 on single tokens."""
    bandwidth = min(15e9 * cores, 60e9)
    return Machine(bandwidth, 90e9 * cores, 45e9 * cores, ram_bytes, free_disk_bytes)


def size_of_file(n_bytes: int, file_name: str) -> ModelSize:
    """Size of a model from its file's size and the precision in its name (F16 where the name has none).

    The KV cache grows about with the 0.42th power of the parameters between 0.1 and 8 billion; a rough guess.
    """
    lowered = file_name.lower()
    named = [weights for weights in sorted(WEIGHT_BITS, key=len, reverse=True) if weights in lowered]
    n_params = n_bytes * 8 / WEIGHT_BITS[named[0] if named else "f16"]
    kv = DEMO.kv_bytes_per_token * (n_params / DEMO.n_params) ** 0.42
    return ModelSize(n_params, kv, n_bytes, known=False)


def weight_bytes(model: ModelSize, weights: str) -> float:
    """Bytes of the weights at a precision: parameters x bits / 8."""
    return model.n_params * WEIGHT_BITS[weights] / 8


@dataclass(frozen=True, slots=True)
class Footprint:
    """What decides how much memory the process of a variant takes on a CPU.

    Attributes:
        weight_bytes, draft_bytes: Of the model file and the draft's. Repacked copies of some types are left out: the
            pages of the file that they replace can be dropped.
        kv_bytes, draft_kv_bytes: Of a token's keys and values.
        heads, n_vocab: Attention heads, and tokens of the vocabulary.
        ctx, scoring_cells: Cells of the context that generates and of the one that scores (0: nothing is scored).
        ubatch: Tokens evaluated at once.
        flash_attention: Without it the attention scores of a batch are held whole.
    """

    weight_bytes: float
    draft_bytes: float
    kv_bytes: float
    draft_kv_bytes: float
    heads: int
    n_vocab: int
    ctx: int
    scoring_cells: int
    ubatch: int
    flash_attention: bool

    def items(self) -> dict[str, float]:
        """Bytes by what they are for.

        Buffers: of each context ``ubatch x cells x 4`` bytes of mask, and ``heads`` times that of attention scores
        without flash attention; to score, ``ubatch x n_vocab x 4`` of logits twice (they share the first with the
        attention scores) and the work of comparing some rows of them in float64.
        """
        logits = 4.0 * self.ubatch * self.n_vocab if self.scoring_cells else 0.0
        attention = 4.0 * self.ubatch * (1 if self.flash_attention else self.heads + 1)
        scoring = max(attention * self.scoring_cells, logits) + logits + bool(logits) * 8.0 * COMPARED * self.n_vocab
        contexts = 2 if self.draft_bytes else 1
        found = {
            "model": self.weight_bytes,
            "draft model": self.draft_bytes,
            "key-value cache": self.ctx * (self.kv_bytes + self.draft_kv_bytes),
            "cache for scoring": self.scoring_cells * self.kv_bytes,
            "buffers": contexts * attention * self.ctx + scoring,
            "process": PROCESS_BYTES,
        }
        return {name: n_bytes for name, n_bytes in found.items() if n_bytes}

    @property
    def total(self) -> float:
        """All of it, bytes."""
        return math.fsum(self.items().values())


def longest_scored(suites: SuitePlan, ctx: int) -> int:
    """Tokens of the longest text that the suites score, at most; 0 where they score none."""
    lengths = [0]
    if suites.mmlu is not None:
        lengths.append(LONGEST_QUESTION + (LONGEST_EXAMPLES if suites.mmlu.shots else 0))
    if suites.lm_eval is not None:
        lengths.append(ctx)  # texts of any length, in windows as long as the context
    if suites.long_context is not None:
        lengths.append(suites.long_context.depths[-1] + PROBE_TOKENS)
    if suites.fidelity is not None:
        lengths.append(min(LONGEST_TEXT, max(suites.fidelity.tokens, suites.fidelity.floor_tokens)))
    return min(ctx, max(lengths))


def variant_cost(variant: Variant, model: ModelSize, scoring_cells: int = 0) -> VariantCost:
    """Bytes of the weights, and of everything the variant's process holds (``Footprint``)."""
    settings = variant.settings
    file_bytes, draft = weight_bytes(model, settings.weights), variant.speculation
    kv = model.kv_bytes_per_token * KV_BITS[settings.kv] / 16
    footprint = Footprint(
        weight_bytes=file_bytes,
        draft_bytes=weight_bytes(model, draft.weights) if isinstance(draft, DraftModel) and draft.weights else 0.0,
        kv_bytes=kv,
        draft_kv_bytes=kv if isinstance(draft, DraftModel) else 0.0,
        heads=model.heads,
        n_vocab=model.n_vocab,
        ctx=settings.ctx,
        scoring_cells=scoring_cells,
        ubatch=min(settings.ubatch, settings.batch),
        flash_attention=needs_flash(settings.kv) if settings.flash_attention == "auto" else settings.flash_attention,
    )
    return VariantCost(variant.name, file_bytes, footprint.total)


def _token_s(variant: Variant, model: ModelSize, machine: Machine) -> tuple[float, float]:
    """Seconds of a prompt token and of a decode step."""
    prompt = 2 * model.n_params / machine.operations_per_s
    read = weight_bytes(model, variant.settings.weights) / machine.bandwidth_bytes_per_s
    return prompt, read + 2 * model.n_params / machine.operations_decode_per_s


def suite_tokens(settings: SuiteSettings, part: str) -> tuple[float, float]:
    """Prompt tokens and decode steps of one part of a suite on one variant."""
    if isinstance(settings, MmluPlan):
        items = MMLU_ITEMS if settings.per_subject is None else settings.per_subject * MMLU_SUBJECTS
        return items * (QUESTION_TOKENS * (1 + settings.shots) + 4 * OPTION_TOKENS), 0
    if isinstance(settings, LmEvalPlan):
        items = sum(TASK_ITEMS if asked.limit is None else asked.limit for asked in settings.tasks)
        return task_tokens({"scored": items}, part)
    if isinstance(settings, LongContextPlan):
        if part == "continuation":
            return settings.texts * settings.continuation_from, settings.texts * settings.continuation_tokens
        asked = settings.probes * len(settings.depths) * ASK_TOKENS
        return settings.texts * (settings.depths[-1] + asked), 0
    if isinstance(settings, CodeSyntaxPlan):
        programs = settings.limit or 32
        return programs * CODE_PROMPT_TOKENS, programs * settings.max_tokens * CODE_SHARE
    if isinstance(settings, SpeedPlan) and part == "depth":
        # One pass grows one context to its last depth.
        return settings.depth_rounds * settings.depths[-1], settings.depth_rounds * len(settings.depths) * DEPTH_TOKENS
    if isinstance(settings, SpeedPlan):
        trials = 2 * settings.rounds
        mean = sum(settings.prompt_tokens) / len(settings.prompt_tokens)
        return trials * mean, trials * settings.output_tokens
    return _fidelity_tokens(settings, part)


def task_tokens(items: Mapping[str, int], part: str) -> tuple[float, float]:
    """Prompt tokens and decode steps of lm-eval tasks; before they are loaded all their items count as scored."""
    n = items.get(part, 0)
    return n * TASK_TOKENS, n * WRITTEN_TOKENS if part == "written" else 0


def _fidelity_tokens(settings: FidelityPlan, part: str) -> tuple[float, float]:
    if part == "kl":
        return settings.tokens * LOGITS_FACTOR, 0
    if part == "floor":
        return settings.floor_tokens * LOGITS_FACTOR, settings.floor_tokens
    # The audit reads each prompt three times: with speculation, without it, and for the noise floor.
    passes = 3 if part == "audit" else 1
    prompts = passes * settings.greedy_prompts
    return prompts * GREEDY_PROMPT_TOKENS, prompts * settings.greedy_tokens


def cell_s(
    cell: Cell,
    variant: Variant,
    suites: SuitePlan,
    model: ModelSize,
    machine: Machine,
    task_items: Mapping[str, int] | None = None,
) -> float:
    """Estimated seconds of a cell; 0 where another variant's identical scoring serves it.

    ``task_items``: documents of lm-eval's tasks by part, once they are loaded.
    """
    if cell.shared_with is not None:
        return 0.0
    settings: SuiteSettings = getattr(suites, cell.suite)
    if isinstance(settings, SpeedPlan) and cell.part == "energy":
        return START_S + 3 * settings.energy_windows * ENERGY_WINDOW_S
    if isinstance(settings, LmEvalPlan) and task_items is not None:
        prompt_tokens, steps = task_tokens(task_items, cell.part)
    else:
        prompt_tokens, steps = suite_tokens(settings, cell.part)
    prompt_s, step_s = _token_s(variant, model, machine)
    work_s = prompt_tokens * prompt_s + steps * step_s
    if isinstance(settings, SpeedPlan) and cell.part == "trials":
        launches = -(-settings.rounds // settings.rounds_a_launch)
        return work_s * (1 + WATCH_SHARE) + launches * (START_S + WARM_UP_STEPS * step_s)
    return START_S + work_s


def disk_bytes(variants: Sequence[Variant], model: ModelSize) -> float:
    """Disk that the converted weights take: each precision once, drafts included, and the source."""
    wanted = {variant.settings.weights for variant in variants}
    wanted |= {
        v.speculation.weights for v in variants if isinstance(v.speculation, DraftModel) and v.speculation.weights
    }
    return math.fsum(weight_bytes(model, weights) for weights in sorted(wanted)) + (model.source_bytes or 0)
