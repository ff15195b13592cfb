"""A run as plain values, as it comes out of the store. Everything else here is derived from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from harness.metrics import speed
from harness.metrics.request import Trial, trial_from_payload
from harness.stats.compare import Launches

Payload = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PartRows:
    """The rows of one part of a suite for one variant.

    Attributes:
        rows: Payloads in the order of their keys.
        state: pending | done | failed.
        error: Why it failed.
        shared: Whether another variant's identical scoring serves this one.
        energy: Payloads of its stretches with readings of energy around them.
        seconds: Wall time spent in it, over all attempts.
    """

    rows: tuple[Payload, ...]
    state: str
    error: str | None
    shared: bool
    energy: tuple[Payload, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class VariantRun:
    """One variant's rows. ``spec`` and ``model`` are as stored; ``dropped`` are rounds that a repeat stands for."""

    name: str
    reference: bool
    identity: str
    spec: Payload
    model: Payload
    parts: Mapping[tuple[str, str], PartRows]
    dropped: frozenset[int] = frozenset()

    def rows(self, suite: str, part: str) -> tuple[Payload, ...]:
        """Payloads of a part; none if it was not run."""
        found = self.parts.get((suite, part))
        return () if found is None else found.rows

    @property
    def speculates(self) -> bool:
        """Whether the variant speculates."""
        return bool(self.spec["speculate"]["kind"] != "none")

    @property
    def plain_spec(self) -> dict[str, Any]:
        """Its settings without speculation: what its log-likelihoods depend on."""
        left_out = ("speculate", "speculation", "model_path")
        return {key: value for key, value in self.spec.items() if key not in left_out}

    def timed(self) -> tuple[Payload, ...]:
        """The payloads of the timed trials that count."""
        return tuple(row for row in self.rows("speed", "trials") if row["block"] not in self.dropped)

    def trials(self) -> list[Trial]:
        """The timed trials that count, as the speed formulas take them."""
        return [trial_from_payload(row) for row in self.timed()]

    def shared(self, suite: str, part: str) -> bool:
        """Whether a part was scored by another variant with the same weights and settings."""
        found = self.parts.get((suite, part))
        return found is not None and found.shared

    def why_missing(self, suite: str, part: str) -> str:
        """The reason code for a figure of a part that has no rows."""
        found = self.parts.get((suite, part))
        return "cell_failed" if found is not None and found.state == "failed" else "not_measured"


@dataclass(frozen=True)
class RunData:
    """A whole run: facts by key, and its variants."""

    facts: Payload
    variants: tuple[VariantRun, ...]

    @property
    def reference(self) -> VariantRun:
        """The reference variant."""
        return next(variant for variant in self.variants if variant.reference)

    @cached_property
    def launches(self) -> dict[str, Launches]:
        """By figure, how far rounds of one launch go together in ratios to the reference."""
        base = self.reference.trials()
        others = [variant.trials() for variant in self.variants if not variant.reference]
        return {key: speed.launches(key, others, base) for key in ("decode_tps", "ttft_s")}
