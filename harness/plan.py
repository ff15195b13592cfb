"""Which cells a sweep has, what identifies each, and what it may cost. Measures nothing; opens no file.

Identities are hashes of settings and of file contents, never of paths or names, so a cell that was measured before is
known again exactly when nothing that could change its result has changed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from harness.config import Config, Variant
from harness.record import SCHEMA_VERSION
from harness.suite_plans import SpeedPlan, SuitePlan, SuiteSettings

if TYPE_CHECKING:
    from harness.backends.base import EngineSpec


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a suite.

    Attributes:
        scoring: Log-likelihoods only, which speculation cannot change.
        speculating: Only for variants that speculate.
        plain: Only for variants that do not.
    """

    name: str
    scoring: bool
    speculating: bool = False
    plain: bool = False

    def applies(self, variant: Variant, settings: SuiteSettings) -> bool:
        """Whether a variant has this part at these settings."""
        if isinstance(settings, SpeedPlan):
            wanted = {"depth": bool(settings.depths), "energy": settings.energy_windows > 0}
            if not wanted.get(self.name, True):
                return False
        return not (self.plain if variant.speculation else self.speculating)


# What each suite is made of; parts that only score are shared by variants that differ in speculation alone.
PARTS: Mapping[str, tuple[Part, ...]] = {
    "mmlu": (Part("docs", True),),
    "lm_eval": (Part("scored", True), Part("written", False)),
    "long_context": (Part("probes", True), Part("continuation", False)),
    "code_syntax": (Part("programs", False),),
    "speed": (Part("trials", False), Part("depth", False, plain=True), Part("energy", False)),
    "fidelity": (Part("kl", True), Part("floor", True), Part("greedy", False), Part("audit", False, speculating=True)),
}


def canonical_json(value: Any) -> str:
    """One text for one value: keys sorted, no spaces, ASCII, no NaN.

    Raises:
        ValueError: NaN or infinity.
        TypeError: A value that JSON has no form for, or a key that is not text.

    >>> canonical_json({"b": (1, 2), "a": None})
    '{"a":null,"b":[1,2]}'
    """
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def _plain(value: Any) -> Any:
    """Any mapping as a dict with text keys: json.dumps would give the keys 1 and "1" the same text."""
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"key {key!r} is not text")
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value


def _sha256(value: Any) -> str:
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def _identity_fields(spec: EngineSpec) -> dict[str, Any]:
    if not spec.model_digest:
        raise ValueError("an identity needs the digest of the model file")
    if spec.speculate.kind == "draft_model" and not spec.speculate.draft_digest:
        raise ValueError("an identity needs the digest of the draft model's file")
    values = {field.name: getattr(spec, field.name) for field in fields(spec)}
    del values["model_path"]
    values["speculate"] = {key: value for key, value in asdict(spec.speculate).items() if key != "draft_path"}
    return values


def spec_identity(spec: EngineSpec) -> str:
    """Identity of a variant: sha256 (hex) of all effective settings and of the digests of its files, not their paths.

    Raises:
        ValueError: A digest is missing; without it two different files would share an identity.
    """
    return _sha256({"schema": SCHEMA_VERSION, "spec": _identity_fields(spec)})


def scoring_identity(spec: EngineSpec) -> str:
    """Identity of a variant's log-likelihoods: ``spec_identity`` without speculation, which cannot change them."""
    values = _identity_fields(spec)
    del values["speculate"]
    return _sha256({"schema": SCHEMA_VERSION, "scoring": values})


def cell_id(identity: str, suite: str, settings: Mapping[str, Any]) -> str:
    """Identity of a cell: sha256 (hex) of the variant's identity, the suite and all its settings.

    Args:
        identity: ``spec_identity``, or ``scoring_identity`` for a part that only scores.
        suite: Name of the suite, with its part where it has several: "fidelity.kl".
        settings: Every setting of the suite, with the digest of its data.
    """
    return _sha256({"schema": SCHEMA_VERSION, "variant": identity, "suite": suite, "settings": dict(settings)})


@dataclass(frozen=True, slots=True)
class Cell:
    """One part of one suite on one variant.

    Attributes:
        variant: Name of the variant.
        suite, part: What is run.
        id: Its ``cell_id``; None while the model's files are not there to be hashed.
        shared_with: The variant whose identical scoring serves this cell, or None.
    """

    variant: str
    suite: str
    part: str
    id: str | None
    shared_with: str | None = None


def cells(
    variants: Sequence[Variant],
    suites: SuitePlan,
    specs: Mapping[str, EngineSpec] | None = None,
    data_digests: Mapping[str, str] | None = None,
) -> tuple[Cell, ...]:
    """All cells in the order they are run: the reference first, then suite by suite.

    Args:
        variants: The variants to run.
        suites: The suites to run.
        specs: Resolved engine settings by variant name, where known; they give the ids.
        data_digests: Digest of the data of a suite, by suite name.
    """
    ordered = sorted(variants, key=lambda variant: not variant.reference)
    ids = _Ids(ordered, suites, specs or {}, data_digests or {})
    result: list[Cell] = []
    first: dict[tuple[str, str, str], str] = {}
    for variant in ordered:
        for suite, settings in suites.items():
            for part in PARTS[suite]:
                if not part.applies(variant, settings):
                    continue
                key = (suite, part.name, _scoring_key(variant) if part.scoring else variant.name)
                owner = first.setdefault(key, variant.name)
                shared = None if owner == variant.name else owner
                result.append(Cell(variant.name, suite, part.name, ids.of(variant, suite, part), shared))
    return tuple(result)


@dataclass(frozen=True, slots=True)
class _Ids:
    """Gives each cell its id, where the engine settings of its variant are known."""

    variants: Sequence[Variant]
    suites: SuitePlan
    specs: Mapping[str, EngineSpec]
    data_digests: Mapping[str, str]

    def of(self, variant: Variant, suite: str, part: Part) -> str | None:
        spec = self.specs.get(variant.name)
        if spec is None:
            return None
        # Folders of data and of task files are paths; the digest of their contents stands for them.
        settings = {
            key: value for key, value in self.suites.settings_of(suite).items() if key not in ("data", "include")
        }
        settings["data_digest"] = self.data_digests.get(suite)
        if (suite, part.name) == ("fidelity", "kl"):
            # A divergence is one to the reference: with another reference it is another figure.
            settings["reference"] = self._reference()
        identity = scoring_identity(spec) if part.scoring else spec_identity(spec)
        return cell_id(identity, f"{suite}.{part.name}", settings)

    def _reference(self) -> str | None:
        names = [variant.name for variant in self.variants if variant.reference]
        return scoring_identity(self.specs[names[0]]) if names and names[0] in self.specs else None


def _scoring_key(variant: Variant) -> str:
    return variant.settings.model_dump_json(exclude={"speculate"})


def model_note(config: Config) -> str | None:
    """What a reader must know of the model before its file is there, or None."""
    if config.model != "demo":
        return None
    return (
        "model demo: its file is Q4_1, so f16 and the other precisions are restored from it; "
        "give your own F16 or BF16 file for real precision losses"
    )


def warnings(config: Config, variants: Sequence[Variant], cores: int) -> list[str]:
    """Settings that are legal and probably a mistake on this machine, one line each."""
    found = []
    for variant in variants:
        threads = variant.settings.threads
        if threads != "auto" and threads > cores:
            found.append(
                f"{variant.name}: threads {threads} on {cores} available cores; threads wait for each other, "
                "so expect it to be slow; lower threads or use auto"
            )
    return found
