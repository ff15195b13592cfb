"""Which trials of a variant count, and which prompt length each stands for. Knows no figure.

A failed trial never counts. One with another voiding code (other load, a length that was not honoured)
counts only where fewer than half of the variant's blocks, and fewer than 5, have something better; then the
figure carries the code, so that it is shown and never ranks. So it does where clean trials were picked out of a time
in which most attempts were disturbed: what they show is what a neighbour left over, not the machine.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness.metrics.request import Trial
from harness.record import INFORMATIVE_CODES, RequestRecord

# Measured all the same, though not under the conditions asked for.
DISTURBED = frozenset({"contended", "throttled"})
SOFT_CODES = DISTURBED | {"approx_tokens", "short_output", "long_output"}
# Lengths within 5% are one prompt length: tokenizers do not land on a number exactly.
SAME_LENGTH = 1.05
# Fewer than half of the blocks will do, if they are as many as this: their interval says how much they can tell.
ENOUGH_BLOCKS = 5
# Share of disturbed attempts around the trials that count above which these don't speak for a quiet machine.
MOST_AROUND = 0.5


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
    elif around(kept, measured) > MOST_AROUND:
        reasons = {c for t in measured for c in codes[id(t)] & DISTURBED} or {"contended"}
    if not kept:
        reasons = {c for t in timed for c in codes[id(t)]} or {"not_measured"}
    kept_ids = {id(t) for t in kept}
    excluded = Counter(c for t in timed if id(t) not in kept_ids for c in codes[id(t)])
    return Usable(tuple(kept), tuple(sorted(reasons)), dict(sorted(excluded.items())))


def around(kept: Sequence[Trial], measured: Sequence[Trial]) -> float:
    """Share of attempts that were disturbed in a block of trials and the blocks next to it: the mean over ``kept``.

    All attempts of a trial but the last were disturbed, and the last one too if it has the code. A stretch of quiet
    before or after a neighbour came gives about 0, single quiet blocks between disturbed ones nearly 1.
    """
    blocks: dict[int, tuple[int, int]] = {}
    for trial in sorted(measured, key=lambda t: (t.position, t.block)):
        attempts, disturbed = blocks.get(trial.block, (0, 0))
        again = trial.record.attempt - (not DISTURBED & set(trial.record.codes))
        blocks[trial.block] = (attempts + trial.record.attempt, disturbed + again)
    counts, shares = list(blocks.values()), {}
    for place, block in enumerate(blocks):
        near = counts[max(0, place - 1) : place + 2]
        shares[block] = sum(disturbed for _, disturbed in near) / sum(attempts for attempts, _ in near)
    return math.fsum(shares[t.block] for t in kept) / len(kept) if kept else 0.0


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
