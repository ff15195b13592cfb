"""Who answers from where words stand, and not from what the text says, scores what guessing scores."""

from __future__ import annotations

import re
from collections import defaultdict

import pytest

from harness.suites.long_context import generate
from harness.suites.long_context.cues import CUES, answer, mentions

SEEDS, DEPTHS = range(8), (512, 1024, 2048, 4096)


def count(text: str) -> int:
    return len(re.findall(r"\w+|[^\w\s]", text))


@pytest.fixture(scope="module")
def hits() -> dict[tuple[str, str], list[bool]]:
    """Right or wrong by cue and family, over 16 texts."""
    found: dict[tuple[str, str], list[bool]] = defaultdict(list)
    for kind in ("story", "document"):
        for seed in SEEDS:
            text = generate(kind, seed, max(DEPTHS), count, DEPTHS)  # type: ignore[arg-type]
            for depth, probes in text.probes.items():
                seen = mentions(text.text[: text.cut(depth)])
                for probe in probes:
                    for cue in CUES:
                        found[cue, probe.family].append(answer(cue, probe.options, seen) == probe.gold)
    return dict(found)


@pytest.mark.parametrize("cue", CUES)
@pytest.mark.parametrize("family", ["ledger", "multikey", "tracking"])
def test_cues_score_near_chance(hits: dict[tuple[str, str], list[bool]], cue: str, family: str):
    right = hits[cue, family]
    assert len(right) >= 170
    assert abs(sum(right) / len(right) - 0.25) < 0.08


def test_place_of_the_right_option_tells_nothing():
    golds = [
        probe.gold
        for seed in SEEDS
        for probes in generate("story", seed, 2048, count, (1024, 2048)).probes.values()
        for probe in probes
        if probe.asked == 0
    ]
    assert all(abs(golds.count(place) / len(golds) - 0.25) < 0.1 for place in range(4))


def test_baselines_by_hand():
    seen = mentions("mill barn mill forge barn mill tower")
    options = (" mill", " barn", " forge", " tower")
    assert {cue: answer(cue, options, seen) for cue in CUES} == {
        "last_mentioned": 3,
        "first_mentioned": 0,
        "most_frequent": 0,
        "least_frequent": 3,  # as often as the forge, and later
    }
