"""What was measured, as plain frozen values. Knows nothing of how it is measured, stored or shown.

SCHEMA_VERSION history: 1 first release.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

SCHEMA_VERSION = 1

EventKind = Literal["role", "reasoning", "content", "tool", "usage"]

# Reason codes. A figure carrying one of them is shown with it and never ranks,
# except the codes in INFORMATIVE_CODES, which qualify a figure without voiding it.
CODES: Mapping[str, str] = {
    "not_streamed": "all text arrived in one read, so only the end-to-end time is valid",
    "approx_tokens": "the token count is an approximation, not the engine's or the server's",
    "short_output": "fewer tokens than asked for; compare at equal length only",
    "long_output": "more tokens than asked for; compare at equal length only",
    "cached_prompt": "part of the prompt came from a cache",
    "error": "the request failed; it counts in the error rate, not in speed",
    "truncated": "the stream ended without a finish reason",
    "contended": "other load took the CPU during the trial, or most of the time around it",
    "throttled": "clock or temperature drifted during the trial",
    "small_n": "too few values for this statistic",
    "below_resolution": "the window is shorter than the counter's step",
    "estimated_energy": "no counter; an estimate, which never ranks",
    "no_counter": "no energy counter can be read on this machine",
    "counter_invalid": "the counter went backwards, fell silent, or its range is unknown",
    "unmetered": "part of this suite ran without a reading of its energy",
    "uncovered": "the meter does not cover every device that the model runs on",
    "at_chance": "the reference does not beat guessing on this suite, so it tells nothing",
    "nonfinite": "the model produced NaN or infinite logits",
    "not_measured": "the suite that gives this figure was not run",
    "cell_failed": "the cell that gives this figure failed",
    "undefined": "the formula has no value for these data",
    "sample_not_mmlu": "from the built-in sample of MMLU-format questions, not MMLU itself",
    "speculates": "measured for variants that do not speculate only",
    "no_rollback": "the model keeps a recurrent state, which cannot be cut back to a depth",
    "no_speculation": "this variant does not speculate",
    "lossy_speculation": "speculation changed the output where the model alone was not near a tie",
    "is_reference": "compared with itself",
    "shared_scoring": "log-likelihood does not depend on speculation; scored once with the same weights and settings",
}
INFORMATIVE_CODES = frozenset({"small_n", "sample_not_mmlu", "shared_scoring", "is_reference"})


@dataclass(frozen=True, slots=True)
class Event:
    """One arrival of a stream.

    Attributes:
        t_ns: When its tokens were on the host. Monotonic clock, nanoseconds.
        n_tokens: Tokens it carried, or None where unknown.
        n_chars: Characters of text it carried.
        kind: Which channel.
        n_bytes: UTF-8 bytes of its text, or None where unknown.
    """

    t_ns: int
    n_tokens: int | None
    n_chars: int
    kind: EventKind = "content"
    n_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """The raw record of one generation request; every speed figure is derived from it.

    Attributes:
        sent_ns: When the request was handed to the engine. Same clock as the events.
        events: Arrivals in order.
        prompt_tokens: Tokens of the prompt, BOS included.
        output_tokens: Tokens generated, None if unknown.
        token_source: Where ``output_tokens`` comes from.
        finish_reason: "stop" | "length" | "error" | None (stream ended without one).
        asked_tokens: Length asked for, None if the model was free to stop.
        drafted, accepted, verify_steps: Engine counters of speculation; None without speculation.
        drafted_at, accepted_at: The same tokens by their place in a draft; None where not recorded.
        draft_s, verify_s: Seconds in drafting and in verifying, the engine's own clock; None where not recorded.
        cached_tokens: Prompt tokens that came from a cache.
        attempt: 1 for the first try.
        codes: Reason codes found while measuring.
    """

    sent_ns: int
    events: tuple[Event, ...]
    prompt_tokens: int
    output_tokens: int | None
    token_source: Literal["engine", "usage", "tokenizer", "chunks"] = "engine"
    finish_reason: str | None = None
    asked_tokens: int | None = None
    drafted: int | None = None
    accepted: int | None = None
    verify_steps: int | None = None
    drafted_at: tuple[int, ...] | None = None
    accepted_at: tuple[int, ...] | None = None
    draft_s: float | None = None
    verify_s: float | None = None
    cached_tokens: int = 0
    attempt: int = 1
    error: str | None = None
    codes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Figure:
    """One derived figure with all a reader needs to trust it.

    Attributes:
        value: The figure, or None when it could not be computed (then ``reasons`` says why). Never NaN.
        low, high: 95% interval, or None where there is none.
        n: How many observations it rests on.
        reasons: Reason codes. Any code outside INFORMATIVE_CODES keeps the figure from ranking.
        conditions: What it holds under, e.g. {"prompt_tokens": 512}.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    n: int = 0
    reasons: tuple[str, ...] = ()
    conditions: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ranks(self) -> bool:
        """Whether this figure may decide a front or a choice."""
        return self.value is not None and all(code in INFORMATIVE_CODES for code in self.reasons)


def missing(*reasons: str, n: int = 0) -> Figure:
    """A figure that could not be computed, with at least one reason code."""
    if not reasons:
        raise ValueError("a missing figure needs a reason code")
    return Figure(value=None, n=n, reasons=reasons)


@dataclass(frozen=True, slots=True)
class ItemRow:
    """One stored unit of work. ``(cell_id, key)`` is unique; ``payload`` is strict JSON and holds raw facts."""

    cell_id: str
    key: str
    kind: str
    payload: Mapping[str, Any]
