"""Speed figures of one request, each from its raw record alone.

Every function returns None where the record does not determine the figure. Times are seconds. Notation:
the request is sent at t_send; content-bearing event k = 1..K arrives at t_k with n_k tokens; N is the
number of tokens generated; C_k = n_1 + ... + n_k.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from harness.record import Event, RequestRecord

PEAK_WINDOW_TOKENS = 32
STALL_FACTOR = 8.0
STALL_MIN_S = 0.25
NS = 1e-9


@dataclass(frozen=True, slots=True)
class Trial:
    """One timed request of a variant.

    Attributes:
        block: The block it ran in; negative for a discarded warm-up.
        position: Its place in the order of the whole run.
        prompt_tokens: Prompt length.
        record: What was measured.
        extra: Whether its block took only some variants: then it counts where variants are compared within blocks.
        launch: Which start of the engine's process it ran in; only equality means anything.
    """

    block: int
    position: int
    prompt_tokens: int
    record: RequestRecord
    extra: bool = False
    launch: int = 0


def trial_from_payload(payload: Mapping[str, Any]) -> Trial:
    """A trial from its stored JSON form, in which an event is ``[t_ns, n_tokens, n_chars, kind, n_bytes]``.

    Raises:
        KeyError: If a field is missing.
        TypeError: If the record holds an unknown field.
    """
    fields = dict(payload["record"])
    events = tuple(Event(*event) for event in fields.pop("events"))
    codes = tuple(fields.pop("codes", ()))
    for key in ("drafted_at", "accepted_at"):
        if fields.get(key) is not None:
            fields[key] = tuple(fields[key])
    record = RequestRecord(events=events, codes=codes, **fields)
    extra = bool(payload.get("extra", False))
    launch = int(payload.get("launch", 0))
    return Trial(payload["block"], payload["position"], payload["prompt_tokens"], record, extra, launch)


def content_events(record: RequestRecord) -> list[Event]:
    """Events that bring generated text: reasoning or content, not empty.

    A token that completes no character yet (half of a multi-byte one) still counts; a role-only or empty
    chunk and a usage tail do not.
    """
    return [e for e in record.events if e.kind in ("reasoning", "content") and (e.n_chars > 0 or (e.n_tokens or 0) > 0)]


def _since_send(record: RequestRecord, t_ns: int) -> float:
    if t_ns < record.sent_ns:
        raise ValueError(f"event at {t_ns} ns before the request was sent at {record.sent_ns} ns")
    return (t_ns - record.sent_ns) * NS


def ttft_s(record: RequestRecord) -> float | None:
    """Time to first token (TTFT): ``t_1 - t_send``. Raises ValueError if it came before the request."""
    events = content_events(record)
    return _since_send(record, events[0].t_ns) if events else None


def answer_ttft_s(record: RequestRecord) -> float | None:
    """Time to the first token of the answer, reasoning not counted; None if there was no answer."""
    answer = [e for e in content_events(record) if e.kind == "content"]
    return _since_send(record, answer[0].t_ns) if answer else None


def e2e_s(record: RequestRecord) -> float | None:
    """End-to-end time: ``t_K - t_send``. A usage tail after the last token does not count."""
    events = content_events(record)
    return _since_send(record, events[-1].t_ns) if events else None


def decode_span_s(record: RequestRecord) -> float | None:
    """``t_K - t_1``, None with fewer than two events or no time between them."""
    events = content_events(record)
    span = (events[-1].t_ns - events[0].t_ns) * NS if events else 0.0
    return span if span > 0 else None


def output_tokens(record: RequestRecord) -> int | None:
    """N: the engine's or server's count, else the sum over events where every one is known."""
    if record.output_tokens is not None:
        return record.output_tokens
    counts = [e.n_tokens for e in content_events(record)]
    return sum(n for n in counts if n is not None) if counts and None not in counts else None


def decode_tokens(record: RequestRecord) -> int | None:
    """``N - n_1``, None if not positive. n_1 = 1 where the first event's count is unknown."""
    events, n = content_events(record), output_tokens(record)
    if not events or n is None:
        return None
    first = events[0].n_tokens
    rest = n - (1 if first is None else first)
    return rest if rest > 0 else None


def tpot_s(record: RequestRecord) -> float | None:
    """Time per output token (TPOT): ``(t_K - t_1) / (N - n_1)``."""
    span, tokens = decode_span_s(record), decode_tokens(record)
    return None if span is None or tokens is None else span / tokens


def decode_tps(record: RequestRecord) -> float | None:
    """Decode speed: ``1 / TPOT``, tokens/s."""
    tpot = tpot_s(record)
    return None if tpot is None else 1 / tpot


def output_tps(record: RequestRecord) -> float | None:
    """End-to-end speed: ``N / (t_K - t_send)``, tokens/s. Falls with the prompt length; never the decode speed."""
    end, tokens = e2e_s(record), output_tokens(record)
    return None if not end or not tokens else tokens / end


def peak_tps(record: RequestRecord) -> float | None:
    """Best decode speed over windows of at least 32 tokens between two events.

    Formula: ``max (C_j - C_i) / (t_j - t_i)`` over i < j with ``C_j - C_i >= 32``. None where an event's token
    count is unknown or the request is shorter than a window. Never below the decode speed of such a request.
    """
    events = content_events(record)
    counts = [e.n_tokens for e in events]
    if len(events) < 2 or None in counts:
        return None
    cumulative = np.cumsum(np.asarray(counts, dtype=np.int64))
    times = np.asarray([e.t_ns for e in events], dtype=np.int64)
    tokens = cumulative[None, :] - cumulative[:, None]
    span = times[None, :] - times[:, None]
    valid = (tokens >= PEAK_WINDOW_TOKENS) & (span > 0)
    return float(np.max(tokens[valid] / (span[valid] * NS))) if bool(valid.any()) else None


def chars_after_first(record: RequestRecord) -> int | None:
    """Characters that arrived after the first event; None without events."""
    events = content_events(record)
    return sum(e.n_chars for e in events[1:]) if events else None


def bytes_after_first(record: RequestRecord) -> int | None:
    """UTF-8 bytes that arrived after the first event; None where an event's are unknown."""
    counts = [e.n_bytes for e in content_events(record)[1:]]
    return None if not counts or None in counts else sum(n for n in counts if n is not None)


def chars_per_s(record: RequestRecord) -> float | None:
    """``characters after the first event / (t_K - t_1)``: comparable across tokenizers."""
    span, chars = decode_span_s(record), chars_after_first(record)
    return None if span is None or chars is None else chars / span


def bytes_per_s(record: RequestRecord) -> float | None:
    """``UTF-8 bytes after the first event / (t_K - t_1)``: comparable across tokenizers and scripts."""
    span, count = decode_span_s(record), bytes_after_first(record)
    return None if span is None or count is None else count / span


def icl_s(record: RequestRecord) -> list[float] | None:
    """Inter-chunk latencies ``t_k - t_(k-1)``, what a reader sees; None with fewer than two events."""
    times = [e.t_ns for e in content_events(record)]
    return [(b - a) * NS for a, b in pairwise(times)] if len(times) > 1 else None


def itl_s(record: RequestRecord) -> list[float] | None:
    """Inter-token latencies: the inter-chunk ones where every event is one token, else None.

    Zero gaps are never invented for tokens that arrived together.
    """
    return icl_s(record) if all(e.n_tokens == 1 for e in content_events(record)) else None


def token_gap_s(record: RequestRecord) -> list[float] | None:
    """Each gap spread evenly over the tokens it brought: ``(t_k - t_(k-1)) / n_k``, n_k times.

    A mean per token, not what a reader sees (that is `icl_s`). None where a token count is unknown or 0.
    """
    gaps = icl_s(record)
    counts = [e.n_tokens for e in content_events(record)[1:]]
    if gaps is None or not all(counts):
        return None
    return [gap / n for gap, n in zip(gaps, counts, strict=True) if n for _ in range(n)]


def tokens_per_chunk(record: RequestRecord) -> float | None:
    """``N / K``. Above 1 for speculation and for servers that merge tokens."""
    events, n = content_events(record), output_tokens(record)
    return n / len(events) if events and n else None


def stalls(record: RequestRecord) -> tuple[int, float] | None:
    """Number and total seconds of gaps longer than ``max(8 x median gap, 250 ms)``."""
    gaps = icl_s(record)
    if gaps is None:
        return None
    limit = max(STALL_FACTOR * float(np.median(gaps)), STALL_MIN_S)
    long = [gap for gap in gaps if gap > limit]
    return len(long), sum(long)


def playout_lag_s(record: RequestRecord) -> float | None:
    """How long a reader at the mean speed would have to wait before starting, so as never to wait again.

    Formula: ``max_k [(t_k - t_1) - (C_(k-1) + 1 - n_1) x TPOT]``.
    """
    events, tpot = content_events(record), tpot_s(record)
    counts = [e.n_tokens for e in events]
    if tpot is None or None in counts:
        return None
    sizes = [n for n in counts if n is not None]
    before, lag = 0, 0.0
    for event, size in zip(events, sizes, strict=True):
        lag = max(lag, (event.t_ns - events[0].t_ns) * NS - (before + 1 - sizes[0]) * tpot)
        before += size
    return lag


def speculation_s(record: RequestRecord) -> float | None:
    """Seconds in drafting and verifying together; None where not recorded."""
    return None if record.draft_s is None or record.verify_s is None else record.draft_s + record.verify_s


def accept_rate(record: RequestRecord) -> float | None:
    """Acceptance rate of speculation: ``accepted / drafted``, from the engine's counters only."""
    return record.accepted / record.drafted if record.drafted and record.accepted is not None else None


def accept_len(record: RequestRecord) -> float | None:
    """Tokens emitted per verification: ``1 + accepted / verifications``; each adds one token of its own."""
    if not record.verify_steps or record.accepted is None:
        return None
    return 1 + record.accepted / record.verify_steps
