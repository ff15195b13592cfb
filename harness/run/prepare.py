"""From what the user asked to what will be run: variants with real files, cells with identities. Runs nothing timed."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from harness import __version__
from harness.backends.base import EngineSpec, Speculate
from harness.backends.llama_cpp.gguf import read_header
from harness.config import Config, Finding, Variant, expand, select
from harness.errors import InputError
from harness.meters import open_panel
from harness.meters.cpus import effective_cpus
from harness.meters.memory import available_bytes
from harness.meters.panel import Panel
from harness.plan import Cell, canonical_json, cells, scoring_identity, spec_identity
from harness.presets import resolve, without_energy
from harness.run.environment import machine, visible_gpus
from harness.run.fit import check_memory
from harness.run.lm_eval import tasks_of
from harness.settings import WEIGHT_BITS, DraftModel, PromptLookup, needs_flash
from harness.store import VariantRow
from harness.suite_plans import SuitePlan
from harness.suites.data import suites_digest
from harness.suites.mmlu import MmluData, find_mmlu, load_mmlu
from harness.suites.tasks import Loaded, digest_of

ALL_LAYERS = 999
CHAT_TEMPLATE = "tokenizer.chat_template"
# From this share above a type's nominal bits per weight, a file is not what its name suggests.
MORE_BITS = 1.25


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """What the command line asks for. Says what to run, never how to measure.

    Attributes:
        config_path: The ``variants.yaml``.
        preset: smoke | quick | standard | full.
        variants, suites: Only these; empty for all. The reference always runs.
        out: Folder of the run; None for ``reports_dir/<run-id>``.
        resume: Fail unless there is a run to go on with.
        fresh: Start anew even if an unfinished run is there.
        data: Folder with evaluation data, before HARNESS_DATA.
    """

    config_path: Path
    preset: str = "quick"
    variants: tuple[str, ...] = ()
    suites: tuple[str, ...] = ()
    out: Path | None = None
    resume: bool = False
    fresh: bool = False
    json: bool = False
    data: Path | None = None
    reports_dir: Path = Path("reports")

    @property
    def data_folders(self) -> tuple[str, ...]:
        """Where evaluation data may lie, the folder given first."""
        return tuple(str(base) for base in (self.data, os.environ.get("HARNESS_DATA")) if base)


@dataclass(frozen=True, slots=True)
class Mmlu:
    """MMLU's questions, loaded once for all variants."""

    source: MmluData
    parts: dict[str, Any]
    digest: str


@dataclass(frozen=True, slots=True)
class Prepared:
    """Everything decided before the first measurement. ``energy`` holds open meters, to be closed in the end."""

    config: Config
    preset: str
    suites: SuitePlan
    variants: tuple[Variant, ...]
    specs: dict[str, EngineSpec]
    models: dict[str, dict[str, Any]]
    cells: tuple[Cell, ...]
    machine: dict[str, Any]
    mmlu: Mmlu | None
    fingerprint: str
    warnings: tuple[str, ...] = field(default=())
    energy: Panel = field(default_factory=Panel)
    tasks: tuple[Loaded, ...] = ()

    @property
    def reference(self) -> Variant:
        """The reference variant."""
        return next(variant for variant in self.variants if variant.reference)

    def row(self, variant: Variant) -> VariantRow:
        """A variant as the store keeps it."""
        spec = self.specs[variant.name]
        plain = asdict(spec)
        plain["speculation"] = variant.settings.speculate
        return VariantRow(
            variant.name,
            variant.reference,
            spec_identity(spec),
            scoring_identity(spec),
            plain,
            self.models[variant.name],
        )


def prepare(options: SweepOptions, say: Callable[[str], None]) -> Prepared:
    """Read the configuration, make the model files that are missing, hash everything.

    Args:
        options: From the command line.
        say: Told in one line what takes time.

    Raises:
        InputError, ConfigError: What was given is wrong; nothing has been written but the model cache.
    """
    from harness.load import load
    from harness.plan import warnings

    config = load(options.config_path)
    variants = select(expand(config), options.variants)
    suites = resolve(config, options.preset, options.suites)
    # Before the model's files: these may take minutes to make, and a wrong folder is known at once.
    mmlu = _mmlu(suites, options) if suites.mmlu is not None else None
    tasks = tasks_of(config, suites, say, options.data_folders)
    specs, models = _resolve_all(config, variants, say)
    check_memory(specs, suites, available_bytes())
    here = machine()
    digests = {} if mmlu is None else {"mmlu": mmlu.digest}
    digests |= {"lm_eval": digest_of(tasks)} if tasks else {}
    energy = _energy(config, str(options.config_path.parent))
    suites = suites if energy.counted else without_energy(suites)
    planned = cells(variants, suites, specs, digests)
    said = [*warnings(config, variants, effective_cpus()), *_notes(models, specs)]
    fingerprint = hashlib.sha256(
        canonical_json(
            {
                "cells": [[cell.variant, cell.suite, cell.part, cell.id] for cell in planned],
                # A cell that only scores has the same id whatever drafts; the run's variants differ all the same.
                "variants": [
                    [variant.name, variant.reference, spec_identity(specs[variant.name])] for variant in variants
                ],
                "texts": suites_digest(),
                "harness": __version__,
                "machine": here["fingerprint"],
                "engine": _engine_version(),
                "energy": [config.energy.model_dump(), energy.describe()["method"], energy.describe()["scope"]],
            }
        ).encode()
    ).hexdigest()
    return Prepared(
        config,
        options.preset,
        suites,
        variants,
        specs,
        models,
        planned,
        here,
        mmlu,
        fingerprint,
        tuple(dict.fromkeys(said)),
        energy,
        tasks,
    )


def _energy(config: Config, folder: str) -> Panel:
    """The meters of the run. Raises ConfigError where one that the file names can't be read."""
    panel, asked = open_panel(config.energy, folder), config.energy.meter
    if asked in ("auto", "none") or panel.counted:
        return panel
    panel.close()
    why = panel.describe()["why"]
    raise config.fault([Finding(("energy", "meter"), f"{asked}: {why}; mend it, or set meter: auto or none")])


def _engine_version() -> str:
    from importlib.metadata import version

    return version("llama-cpp-python")


def _notes(models: dict[str, dict[str, Any]], specs: Mapping[str, EngineSpec]) -> list[str]:
    """What must be said of the files: where they come from, and whether they are what their type's name says."""
    notes = [str(model["note"]) for model in models.values() if model.get("note")]
    for spec in {spec.model_path: spec for spec in specs.values()}.values():  # variants share files
        header = read_header(spec.model_path)
        bits = 8 * sum(tensor.n_bytes for tensor in header.tensors) / header.elements
        nominal = WEIGHT_BITS[spec.weights]
        if bits > MORE_BITS * nominal:
            notes.append(
                f"{spec.weights}: {bits:.1f} bits a weight in this model, not {nominal:.1f}: rows that do not divide "
                "into its blocks, and the embedding, keep a larger type"
            )
    return list(dict.fromkeys(notes))


def _resolve_all(
    config: Config, variants: Sequence[Variant], say: Callable[[str], None]
) -> tuple[dict[str, EngineSpec], dict[str, dict[str, Any]]]:
    from harness.models import resolve as resolve_model

    files: dict[str, Any] = {}

    def file_of(weights: str) -> Any:
        if weights not in files:
            say(f"model {config.model}: {weights}")
            files[weights] = resolve_model(config.model, weights)
        return files[weights]

    specs, models = {}, {}
    for variant in variants:
        found = file_of(variant.settings.weights)
        if variant.settings.chat_template and CHAT_TEMPLATE not in read_header(found.path).metadata:
            raise InputError(
                f"settings.chat_template: true, but {found.path} carries none; expected a chat model; set it to false"
            )
        specs[variant.name] = _spec(variant, str(found.path), found.digest, _speculate(variant, file_of))
        models[variant.name] = {
            "name": found.name,
            "file": Path(found.path).name,
            "path": str(found.path),
            "digest": found.digest,
            "source_digest": found.source_digest,
            "restored": found.restored,
            "note": found.note,
        }
    return specs, models


def _speculate(variant: Variant, file_of: Callable[[str], Any]) -> Speculate:
    how = variant.speculation
    if how is None:
        return Speculate()
    if isinstance(how, PromptLookup):
        return Speculate("prompt_lookup", how.ngram, how.tokens, how.adapt)
    assert isinstance(how, DraftModel)
    if how.weights is not None:
        draft = file_of(how.weights)
        path, digest = str(draft.path), draft.digest
    else:
        from harness.models import file_digest

        path = str(how.model)
        read_header(Path(path))
        digest = file_digest(Path(path))
    return Speculate("draft_model", tokens=how.tokens, adapt=how.adapt, draft_path=path, draft_digest=digest)


def _spec(variant: Variant, path: str, digest: str, speculate: Speculate) -> EngineSpec:
    settings = variant.settings
    flash = settings.flash_attention
    return EngineSpec(
        backend=settings.backend,
        model_path=path,
        model_digest=digest,
        weights=settings.weights,
        kv=settings.kv,
        # Off unless the cache needs it: with it on, prompt logits depend on the micro-batch (docs/decisions.md).
        flash_attention=needs_flash(settings.kv) if flash == "auto" else flash,
        threads=effective_cpus() if settings.threads == "auto" else settings.threads,
        batch=settings.batch,
        ubatch=settings.ubatch,
        ctx=settings.ctx,
        gpu_layers=_gpu_layers() if settings.gpu_layers == "auto" else settings.gpu_layers,
        chat_template=settings.chat_template,
        speculate=speculate,
    )


def _gpu_layers() -> int:
    """All layers where there is a GPU (a build without GPU support ignores it; the placement says what happened)."""
    if sys.platform == "darwin":
        return ALL_LAYERS
    return ALL_LAYERS if visible_gpus() else 0


def _mmlu(suites: SuitePlan, options: SweepOptions) -> Mmlu:
    assert suites.mmlu is not None
    source = find_mmlu(str(options.data) if options.data else suites.mmlu.data, os.environ)
    parts, digest = load_mmlu(source)
    return Mmlu(source, parts, digest)
