"""Writes a text of a wanted length and asks about it at several depths. Knows a token counter, but no model."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, combinations, pairwise
from typing import Literal, TypeVar

from harness.errors import InputError
from harness.suites.data import suite_yaml
from harness.suites.long_context.cues import CUES, Mentions, answer, mentions
from harness.suites.long_context.world import FAMILY_OF, Fact, Family, World

Kind = Literal["story", "document"]
N_OPTIONS = 4
# Wrong options are the best of so many drawn sets.
_SETS = 600
# Right answers of each baseline beyond those that guessing gives, so far in a text.
Excess = dict[str, float]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Probe:
    """One forced choice about the text up to a depth.

    Attributes:
        id: Unique over all texts.
        depth: Depth asked for, tokens.
        family: ledger (facts that change) | multikey (confusable keys) | tracking (chains of hands).
        fact: Id of the fact within its text.
        asked: Which wording. 0 repeats the wording of the text, 1 asks in other words.
        stem: What follows the text; every option continues it.
        options: Each begins with a space.
        gold: Index of the option that is true at that depth.
    """

    id: str
    depth: int
    family: Family
    fact: str
    asked: int
    stem: str
    options: tuple[str, ...]
    gold: int


@dataclass(frozen=True, slots=True)
class Text:
    """A text, where it is cut, and what is asked there.

    Attributes:
        id: From kind and seed.
        text: All of it.
        ends: Where each sentence ends, character offsets, ascending; the last is ``len(text)``.
        cuts: Per depth, in ascending order: ``(depth in tokens, characters before the cut)``.
        probes: Probes of each depth.
    """

    id: str
    text: str
    ends: tuple[int, ...]
    cuts: tuple[tuple[int, int], ...]
    probes: dict[int, tuple[Probe, ...]]

    def cut(self, depth: int) -> int:
        """Characters of the text that the probes of ``depth`` see: a sentence end at or below that many tokens."""
        return dict(self.cuts)[depth]

    def segments(self) -> tuple[str, ...]:
        """The text split at the cuts; tokenised one by one and joined, each cut falls on a token boundary."""
        edges = [0, *(cut for _, cut in self.cuts), len(self.text)]
        return tuple(self.text[a:b] for a, b in pairwise(edges))


def generate(
    kind: Kind,
    seed: int,
    tokens: int,
    count_tokens: Callable[[str], int],
    depths: Sequence[int],
    *,
    ledger: int = 8,
    multikey: int = 4,
    tracking: int = 4,
) -> Text:
    """Write a text of at least ``tokens`` tokens and its probes.

    The same kind and seed give the same sentences whatever the length; depths only choose where to ask.

    Args:
        kind: "story" or "document".
        seed: Of people, places, events and words.
        tokens: Least length. Tokens.
        count_tokens: Tokens of a piece of text, without BOS.
        depths: Where to ask. Tokens, each at most ``tokens``.
        ledger: Facts asked at each depth, each in two wordings.
        multikey: Probes with confusable keys at each depth.
        tracking: Probes of chains at each depth.

    Raises:
        InputError: If a depth is beyond the text or too shallow for its first sentence, or the kind is unknown.
    """
    data = suite_yaml("long_context")
    if kind not in data["kinds"]:
        raise InputError(f"long_context: kind '{kind}' is unknown; expected one of {', '.join(data['kinds'])}")
    if depths and not 0 < min(depths) <= max(depths) <= tokens:
        raise InputError(f"long_context: depths {list(depths)}: expected between 1 and {tokens} tokens; lower them")
    world = World(kind, seed, data)
    pieces = world.opening()
    total = sum(map(count_tokens, pieces))
    while total < tokens or count_tokens("".join(pieces)) < tokens:
        pieces.append(world.sentence())
        total += count_tokens(pieces[-1])
    text, ends = "".join(pieces), tuple(accumulate(map(len, pieces)))
    cuts: list[tuple[int, int]] = []
    probes: dict[int, tuple[Probe, ...]] = {}
    wanted: dict[Family, int] = {"ledger": ledger, "multikey": multikey, "tracking": tracking}
    excess: dict[Family, Excess] = {family: dict.fromkeys(CUES, 0.0) for family in wanted}
    for depth in sorted(set(depths)):
        seen = bisect_right(ends, depth, key=lambda end: count_tokens(text[:end]))
        if seen == 0:
            raise InputError(f"long_context: no sentence ends within {depth} tokens; ask at a greater depth")
        cuts.append((depth, ends[seen - 1]))
        probes[depth] = _ask(f"{kind}-{seed}", depth, seen, world, wanted, mentions(text[: ends[seen - 1]]), excess)
    return Text(f"{kind}-{seed}", text, ends, tuple(cuts), probes)


def _ask(
    text_id: str,
    depth: int,
    seen: int,
    world: World,
    wanted: dict[Family, int],
    where: Mentions,
    excess: dict[Family, Excess],
) -> tuple[Probe, ...]:
    """Probes at a cut after ``seen`` sentences; from the newest fact to the oldest, evenly spread."""
    rng = random.Random(f"{text_id}:{depth}")
    probes: list[Probe] = []
    for family, count in wanted.items():
        facts = [fact for fact in world.facts if FAMILY_OF[fact.topic] == family]
        able = [fact for fact in facts if _pool(fact, seen, world, where)]
        able.sort(key=lambda fact: max(index for index, _ in fact.history if index < seen))
        for rank, fact in enumerate(_spread(able, count)):
            gold = fact.values_at(seen)[-1]
            options = _options(gold, _pool(fact, seen, world, where), where, excess[family], rng)
            for asked in (0, 1) if family == "ledger" else (rank % 2,):
                stem = world.grammar["stems"][fact.topic][asked].format(obj=fact.obj, b=fact.other)
                name, spaced = f"{text_id}/{depth}/{fact.id}/{asked}", tuple(f" {option}" for option in options)
                probes.append(Probe(name, depth, family, fact.id, asked, stem, spaced, options.index(gold)))
    return tuple(probes)


def _spread(items: Sequence[_T], count: int) -> list[_T]:
    """``count`` of the items, evenly spread, the last one always among them."""
    n = len(items)
    return [items[n - 1 - (n * i) // count] for i in range(count)] if n > count else list(items)


def _pool(fact: Fact, seen: int, world: World, where: Mentions) -> list[str]:
    """Wrong answers: stale values, values of the fact's likes, others the text names; empty if fewer than three."""
    values = fact.values_at(seen)
    if not values or (fact.topic == "chain" and len(values) == 1):
        return []
    likes = [v for other in world.facts if other.topic == fact.topic for v in other.values_at(seen)]
    barred = (values[-1], fact.obj, fact.other)
    named = dict.fromkeys([*reversed(values), *likes, *_told(fact, world)])
    pool = [value for value in named if value in where and value not in barred]
    return pool if len(pool) >= N_OPTIONS - 1 else []


def _options(gold: str, pool: Sequence[str], where: Mentions, excess: Excess, rng: random.Random) -> list[str]:
    """The true value and three wrong ones, drawn so that answering by a cue scores what guessing scores.

    The set is taken that brings each baseline's right answers so far in the text nearest to a quarter; ``excess``
    is updated. Where a text has no such set (its true value is always the last named), the next probes make up for it.
    """
    sets = list(combinations(pool, N_OPTIONS - 1))
    sets = rng.sample(sets, min(_SETS, len(sets)))

    def after(picked: tuple[str, ...]) -> Excess:
        four = (gold, *picked)
        return {cue: excess[cue] + (answer(cue, four, where) == 0) - 1 / N_OPTIONS for cue in CUES}

    best = min(sets, key=lambda picked: sum(value**2 for value in after(picked).values()))
    excess |= after(best)
    return rng.sample([gold, *best], N_OPTIONS)


def _told(fact: Fact, world: World) -> list[str]:
    """Places, people and goods of the text that are no value of a like fact."""
    if fact.topic in ("place", "home"):
        return world.places
    if fact.topic == "promise":
        return world.goods
    return [] if fact.topic == "mark" else world.villagers
