"""Writes a text of a wanted length and asks about it at several depths. Knows a token counter, but no model."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Literal, TypeVar

from harness.errors import InputError
from harness.suites.data import suite_yaml
from harness.suites.long_context.world import FAMILY_OF, Fact, Family, World

Kind = Literal["story", "document"]
N_OPTIONS = 4
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
    for depth in sorted(set(depths)):
        seen = bisect_right(ends, depth, key=lambda end: count_tokens(text[:end]))
        if seen == 0:
            raise InputError(f"long_context: no sentence ends within {depth} tokens; ask at a greater depth")
        cuts.append((depth, ends[seen - 1]))
        probes[depth] = _ask(f"{kind}-{seed}", depth, seen, world, wanted)
    return Text(f"{kind}-{seed}", text, ends, tuple(cuts), probes)


def _ask(text_id: str, depth: int, seen: int, world: World, wanted: dict[Family, int]) -> tuple[Probe, ...]:
    """Probes at a cut after ``seen`` sentences; from the newest fact to the oldest, evenly spread."""
    rng = random.Random(f"{text_id}:{depth}")
    probes: list[Probe] = []
    for family, count in wanted.items():
        facts = [fact for fact in world.facts if FAMILY_OF[fact.topic] == family]
        able = [(fact, options) for fact in facts if (options := _options(fact, seen, world, rng))]
        able.sort(key=lambda pair: max(index for index, _ in pair[0].history if index < seen))
        for rank, (fact, options) in enumerate(_spread(able, count)):
            gold = fact.values_at(seen)[-1]
            for asked in (0, 1) if family == "ledger" else (rank % 2,):
                stem = world.grammar["stems"][fact.topic][asked].format(obj=fact.obj, b=fact.other)
                name, spaced = f"{text_id}/{depth}/{fact.id}/{asked}", tuple(f" {option}" for option in options)
                probes.append(Probe(name, depth, family, fact.id, asked, stem, spaced, options.index(gold)))
    return tuple(probes)


def _spread(items: Sequence[_T], count: int) -> list[_T]:
    """``count`` of the items, evenly spread, the last one always among them."""
    n = len(items)
    return [items[n - 1 - (n * i) // count] for i in range(count)] if n > count else list(items)


def _options(fact: Fact, seen: int, world: World, rng: random.Random) -> list[str] | None:
    """The value that is true, stale values of the same fact, and values of its likes; None if the text has too few."""
    values = fact.values_at(seen)
    if not values or (fact.topic == "chain" and len(values) == 1):
        return None
    stale = list(dict.fromkeys(value for value in reversed(values[:-1]) if value != values[-1]))[:2]
    others = [other for other in world.facts if other.topic == fact.topic and other is not fact]
    likes = [value for other in others for value in other.values_at(seen)]
    barred = (*stale, values[-1], fact.obj, fact.other)
    fill = [value for value in dict.fromkeys(likes + _told(fact, world)) if value not in barred]
    need = N_OPTIONS - 1 - len(stale)
    if len(fill) < need:
        return None
    near = [value for value in dict.fromkeys(likes) if value in fill]
    picked = rng.sample(near, min(need, len(near)))
    rest = [value for value in fill if value not in picked]
    picked += rng.sample(rest, need - len(picked))
    return rng.sample([values[-1], *stale, *picked], N_OPTIONS)


def _told(fact: Fact, world: World) -> list[str]:
    """Places, people and goods that the opening names."""
    if fact.topic in ("place", "home"):
        return world.places[:4]
    if fact.topic == "promise":
        return world.goods[:4]
    return world.villagers[:4] if fact.topic in ("owner", "post") else []
