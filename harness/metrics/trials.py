"""Which trials of a variant count, and which prompt length each stands for. Knows no figure.

A failed trial never counts. One with another voiding code (other load, a length that was not honoured)
counts only where fewer than half of the variant's blocks, and fewer than 5, have something better; then the
figure carries the code, so that it is shown and never ranks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness.metrics.request import Trial
from harness.record import INFORMATIVE_CODES, RequestRecord

# Measured all the same, though not under the conditions asked for.
SOFT_CODES = frozenset({"contended", "throttled", "approx_tokens", "short_output", "long_output"})
# Lengths within 5% are one prompt length: tokenizers do not land on a number exactly.
SAME_LENGTH = 1.05
# Fewer than half of the blocks will do, if they are as many as this: their interval says how much they can tell.
ENOUGH_BLOCKS = 5


@dataclass(frozen=True, slots=True)
class Usable:
    """The trials a figure may rest on, the codes it must carry, and what was left out."""

    trials: tuple[Trial, ...]
    reasons: tuple[str, ...]
    excluded: Mapping[str, int]


def voiding(record: RequestRecord) -> frozenset[str]:
    """Codes that keep a request from counting as a clean measurement."""
    codes = set(record.codes) - INFORMATIVE_CODES
    if record.error is not None or record.finish_reason == "error":
        codes.add("error")
    if record.cached_tokens > 0:
        codes.add("cached_prompt")
    if record.token_source not in ("engine", "usage"):
        codes.add("approx_tokens")
    return frozenset(codes)


def usable(trials: Sequence[Trial], allow: frozenset[str] = frozenset()) -> Usable:
    """Choose the trials that count; warm-ups (negative block) never do. ``allow``: codes without effect here."""
    codes = {id(t): voiding(t.record) - allow for t in trials if t.block >= 0}
    timed = [t for t in trials if t.block >= 0]
    measured = [t for t in timed if codes[id(t)] <= SOFT_CODES]
    clean = [t for t in measured if not codes[id(t)]]
    clean_blocks, blocks = {t.block for t in clean}, {t.block for t in measured}
    kept, reasons = clean, set[str]()
    # A prompt length of which nothing clean is left would drop out unseen, and medians over lengths would move.
    lengths_lost = {t.prompt_tokens for t in measured} - {t.prompt_tokens for t in clean}
    if len(clean_blocks) < min(len(blocks) / 2, ENOUGH_BLOCKS) or lengths_lost:
        kept = measured
        reasons = {c for t in measured if t.block not in clean_blocks for c in codes[id(t)]}
    if not kept:
        reasons = {c for t in timed for c in codes[id(t)]} or {"not_measured"}
    kept_ids = {id(t) for t in kept}
    excluded = Counter(c for t in timed if id(t) not in kept_ids for c in codes[id(t)])
    return Usable(tuple(kept), tuple(sorted(reasons)), dict(sorted(excluded.items())))


def prompt_groups(trials: Sequence[Trial]) -> list[int]:
    """The prompt length each trial stands for: the median of all lengths within 5% of the shortest of them."""
    leader = 0
    members: dict[int, list[int]] = {}
    for length in sorted(t.prompt_tokens for t in trials):
        if not members or length > leader * SAME_LENGTH:
            leader = length
        members.setdefault(leader, []).append(length)
    label = {length: int(np.median(lengths)) for lengths in members.values() for length in lengths}
    return [label[t.prompt_tokens] for t in trials]
