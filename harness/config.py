"""What ``variants.yaml`` says, as frozen values, and the variants it makes. Opens no file and measures nothing.

A matrix is a cross product of axes. A variant's name is its weights followed by what differs from the defaults,
joined with '+': ``q8_0``, ``f16+draft``, ``q4_0+kv-q8_0``, ``f16+t4`` (threads), ``+b256`` (batch), ``+ub64`` (ubatch),
``+ctx8192``, ``+fa`` / ``+no-fa`` (flash attention), ``+gpu20`` (layers on a GPU), ``+fake`` (backend). Left out of a
name: speculation 'none', and a value of an axis that equals the one under ``settings``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, Strict

from harness.energy_settings import EnergySettings
from harness.errors import ConfigError, InputError, did_you_mean, one_line
from harness.settings import (
    AXES,
    UNQUANTISED,
    DraftModel,
    Exclude,
    Matrix,
    Model,
    Name,
    PromptLookup,
    SingleVariant,
    Speculation,
    VariantSettings,
)
from harness.suite_settings import BY_DEFAULT, Suites

MAX_VARIANTS = 1000
Place = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Source:
    """Where a configuration came from: the file as the user named it, and the line of each key and value."""

    file: str = "variants.yaml"
    lines: Mapping[Place, int] = field(default_factory=dict)

    def line(self, path: Place) -> int | None:
        """Line of the nearest known place at or above ``path``, from 1."""
        return next((self.lines[path[:n]] for n in range(len(path), -1, -1) if path[:n] in self.lines), None)

    def where(self, path: Place, line: int | None = None) -> str:
        """``file:line: dotted.path``; the line is that of the place unless another is given."""
        line = self.line(path) if line is None else line
        dotted = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")
        place = self.file if line is None else f"{self.file}:{line}"
        return f"{place}: {dotted}" if dotted else place


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault: the place in the file and what is wrong there."""

    path: Place
    message: str


def _model_name(value: str) -> str:
    if value == "demo" or value.lower().endswith(".gguf"):
        return value
    if value.startswith("hf:"):
        owner, _, repo = value[3:].partition(":")[0].partition("/")
        if owner and repo and "/" not in repo:
            return value
    raise ValueError(f"unknown {value!r}; expected demo, path/to/model.gguf or hf:owner/repo[:file]")


def _whole_number(value: Any) -> Any:
    # A Literal is compared by value, and both 1.0 and true equal 1.
    if type(value) is not int:
        raise ValueError(f"found {str(value).lower() if isinstance(value, bool) else repr(value)}; expected 1")
    return value


class Config(Model):
    """One ``variants.yaml``, version 1."""

    version: Annotated[Literal[1], BeforeValidator(_whole_number)]
    model: Annotated[str, AfterValidator(_model_name)] = Field(
        description="demo | path/to/model.gguf | hf:owner/repo[:file]"
    )
    reference: Name = Field(description="name of the variant that all others are compared with")
    matrix: Matrix = Matrix()
    settings: VariantSettings = VariantSettings()
    speculate: dict[Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")], Speculation] = Field(default_factory=dict)
    variants: Annotated[tuple[SingleVariant, ...], Strict(False)] = ()
    suites: Suites = Suites.model_validate({name: {} for name in BY_DEFAULT})
    energy: EnergySettings = EnergySettings()
    _source: Source = PrivateAttr(default_factory=Source)

    def with_source(self, source: Source) -> Config:
        """The same configuration, able to name the lines of its faults."""
        copy = self.model_copy()
        copy._source = source
        return copy

    def fault(self, findings: Sequence[Finding]) -> ConfigError:
        """All findings as one error, a line each, in the order of the file."""
        ordered = sorted(dict.fromkeys(findings), key=lambda finding: self._source.line(finding.path) or 0)
        return ConfigError("\n".join(one_line(f"{self._source.where(f.path)}: {f.message}") for f in ordered))


@dataclass(frozen=True, slots=True)
class Variant:
    """One configuration to measure.

    Attributes:
        name: Unique name.
        reference: Whether the others are compared with it.
        settings: Every setting; 'auto' is resolved where the machine is known.
        axes: The settings that made its name (matrix) or that it states itself (single variants).
        speculation: What ``settings.speculate`` names, or None.
    """

    name: str
    reference: bool
    settings: VariantSettings
    axes: Mapping[str, Any]
    speculation: PromptLookup | DraftModel | None = None


def _label(axis: str, value: Any, default: Any) -> str | None:
    """The part of a variant's name that an axis value makes, or None where it is left out."""
    if axis == "speculate":
        return None if value == "none" else str(value)
    if value == default:
        return None
    if axis == "flash_attention":
        return {True: "fa", False: "no-fa"}.get(value, "fa-auto")
    if axis == "backend":
        return str(value)
    prefix = {"kv": "kv-", "threads": "t", "batch": "b", "ubatch": "ub", "ctx": "ctx", "gpu_layers": "gpu"}[axis]
    return f"{prefix}-auto" if value == "auto" else f"{prefix}{value}"


def variant_name(axes: Mapping[str, Any], settings: VariantSettings) -> str:
    """Name of a matrix variant: its weights, then each axis value that is not the default.

    >>> variant_name({"weights": "q4_0", "kv": "q8_0", "threads": 4}, VariantSettings())
    'q4_0+kv-q8_0+t4'
    >>> variant_name({"weights": "f16", "kv": "f16", "speculate": "none"}, VariantSettings())
    'f16'
    """
    labels = [_label(axis, axes[axis], getattr(settings, axis)) for axis in AXES if axis in axes and axis != "weights"]
    return "+".join([axes.get("weights", settings.weights), *(label for label in labels if label)])


def _matches(rule: Exclude, axes: Mapping[str, Any]) -> bool:
    named = rule.model_dump(exclude_none=True)
    return bool(named) and all(axis in axes and axes[axis] in values for axis, values in named.items())


def _axes(matrix: Matrix) -> dict[str, tuple[Any, ...]]:
    return {axis: values for axis in AXES if (values := getattr(matrix, axis)) is not None}


def _combinations(config: Config) -> tuple[list[dict[str, Any]], list[Finding]]:
    """The matrix without its exclusions, and what is wrong with these."""
    axes = _axes(config.matrix)
    count = math.prod(len(values) for values in axes.values()) if axes else 0
    if count + len(config.variants) > MAX_VARIANTS:
        message = f"{count + len(config.variants)} variants; at most {MAX_VARIANTS}; shorten an axis"
        raise config.fault([Finding(("matrix",), message)])
    # The first axis varies fastest, so that the plain precisions come before those that speculate.
    turned = dict(reversed(axes.items()))
    every = [dict(zip(turned, values, strict=True)) for values in itertools.product(*turned.values())] if axes else []
    rules = config.matrix.exclude
    idle = [
        Finding(("matrix", "exclude", index), "matches no combination of the matrix; correct or remove it")
        for index, rule in enumerate(rules)
        if not any(_matches(rule, combination) for combination in every)
    ]
    kept = [combination for combination in every if not any(_matches(rule, combination) for rule in rules)]
    if every and not kept and not config.variants:
        idle.append(Finding(("matrix", "exclude"), "leaves no variant; exclude less"))
    if not every and not config.variants:
        idle.append(Finding((), "no variants; give a matrix with at least one axis, or variants"))
    return kept, idle


def _build(config: Config, combinations: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Place, Variant]]:
    for axes in combinations:
        yield ("matrix",), _variant(config, variant_name(axes, config.settings), axes)
    for index, single in enumerate(config.variants):
        own = {axis: value for axis in AXES if (value := getattr(single, axis)) is not None}
        yield ("variants", index), _variant(config, single.name, own)


def _variant(config: Config, name: str, own: Mapping[str, Any]) -> Variant:
    settings = config.settings.model_copy(update=dict(own))
    # As llama.cpp does itself, so that a batch axis needs no ubatch axis beside it.
    settings = settings.model_copy(update={"ubatch": min(settings.ubatch, settings.batch)})
    speculation = config.speculate.get(settings.speculate)
    return Variant(name, name == config.reference, settings, dict(own), speculation)


def _setting_faults(path: Place, variant: Variant) -> Iterator[Finding]:
    """Settings of one variant that exclude each other."""
    settings = variant.settings
    if settings.kv not in UNQUANTISED and settings.flash_attention is False:
        yield Finding(
            path,
            f"variant {variant.name}: kv {settings.kv} needs flash attention, which is false; "
            "set flash_attention to auto or true, or kv to f16",
        )


def _speculation_faults(config: Config) -> Iterator[Finding]:
    if "none" in config.speculate:
        yield Finding(("speculate", "none"), "'none' is reserved for no speculation; use another name")
    used: list[tuple[Place, str]] = [(("settings", "speculate"), config.settings.speculate)]
    used += [(("matrix", "speculate", i), name) for i, name in enumerate(config.matrix.speculate or ())]
    used += [(("variants", i, "speculate"), single.speculate or "none") for i, single in enumerate(config.variants)]
    known = ["none", *config.speculate]
    for path, name in used:
        if name not in known:
            yield Finding(path, f"unknown {name!r}; {did_you_mean(name, known)}")
    for name, how in config.speculate.items():
        if isinstance(how, DraftModel) and (how.weights is None) == (how.model is None):
            found = "neither weights nor model" if how.weights is None else "both weights and model"
            yield Finding(("speculate", name), f"{found}; expected one: weights of the same model, or another model")


def _energy_faults(config: Config) -> Iterator[Finding]:
    energy = config.energy
    if energy.meter == "command" and not energy.command:
        yield Finding(("energy", "meter"), "command, but no command is given; add command: [program, argument, ...]")
    for key in ("command", "scope"):
        if getattr(energy, key) is not None and energy.meter != "command":
            yield Finding(("energy", key), f"without effect, as meter is {energy.meter}; set meter: command")


def _identity_faults(config: Config, variants: Sequence[tuple[Place, Variant]]) -> Iterator[Finding]:
    """Names used twice, variants that are the same under two names, and the reference."""
    names: dict[str, str] = {}
    same: dict[str, str] = {}
    for path, variant in variants:
        if variant.name in names:
            yield Finding(path, f"name {variant.name!r} is used twice; names must differ; rename one")
            continue
        names[variant.name] = variant.name
        how = variant.speculation.model_dump_json() if variant.speculation else variant.settings.speculate
        key = variant.settings.model_dump_json(exclude={"speculate"}) + how
        if key in same:
            yield Finding(path, f"{variant.name!r} has the same settings as {same[key]!r}; remove one")
        same.setdefault(key, variant.name)
    if config.reference not in names and names:
        known = did_you_mean(config.reference, names)
        yield Finding(("reference",), f"unknown variant {config.reference!r}; {known}")


def expand(config: Config) -> tuple[Variant, ...]:
    """All variants: the matrix in the order of its axes, then the single ones.

    Raises:
        ConfigError: More than ``MAX_VARIANTS`` combinations (counted before any is made), names or effective settings
            used twice, no such reference, exclusions without effect, unknown speculation, settings that exclude each
            other. One line per fault, with file and line where the configuration came from a file.
    """
    combinations, findings = _combinations(config)
    findings.extend(_speculation_faults(config))
    findings.extend(_energy_faults(config))
    built = list(_build(config, combinations))
    for path, variant in built:
        findings.extend(_setting_faults(path, variant))
    findings.extend(_identity_faults(config, built))
    if findings:
        raise config.fault(findings)
    return tuple(variant for _, variant in built)


def select(variants: Sequence[Variant], names: Sequence[str]) -> tuple[Variant, ...]:
    """The named variants in their own order, and always the reference; all of them where no name is given.

    Raises:
        InputError: An unknown name.
    """
    known = [variant.name for variant in variants]
    for name in names:
        if name not in known:
            raise InputError(f"--variant: unknown {name!r}; {did_you_mean(name, known)}")
    return tuple(variant for variant in variants if not names or variant.reference or variant.name in names)
