"""The people, places and things of one text, and the ledger of what is true of them. Knows no token and no model."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Family = Literal["ledger", "multikey", "tracking"]
FAMILY_OF: Mapping[str, Family] = {
    "place": "ledger",
    "owner": "ledger",
    "post": "ledger",
    "home": "ledger",
    "promise": "ledger",
    "mark": "multikey",
    "chain": "tracking",
}
HOPS = 4
_LEDGER = tuple(topic for topic, family in FAMILY_OF.items() if family == "ledger")
_FIRST = ("place", "owner", "home", "post", "promise", "mark", "place", "mark", "mark")
_CHAIN_STARTS = (12, 26, 50, 85, 140, 230, 380, 600)


@dataclass(slots=True)
class Fact:
    """Something planted, and every value it has had.

    Attributes:
        topic: Kind of fact, a key of ``FAMILY_OF``.
        obj: What it is about.
        other: A second person it is about (the receiver of a promise), or "".
        history: ``(index of the sentence that says so, value)``, in order.
    """

    topic: str
    obj: str
    other: str = ""
    history: list[tuple[int, str]] = field(default_factory=list)

    @property
    def id(self) -> str:
        """Unique within a text, e.g. ``place:brass-key``."""
        return f"{self.topic}:{self.obj.replace(' ', '-')}"

    def values_at(self, sentences: int) -> list[str]:
        """Values it has had within the first ``sentences`` sentences, oldest first; the last one is true there."""
        return [value for index, value in self.history if index < sentences]


class Deck:
    """Draws at random without repeats, and shuffles anew when it runs out."""

    def __init__(self, rng: random.Random, cards: Sequence[str]) -> None:
        """Take the cards; nothing is drawn yet."""
        self._rng, self._cards, self._pile = rng, list(cards), list[str]()

    def draw(self, avoid: Sequence[str] = ()) -> str:
        """The next card that is not in ``avoid``."""
        while True:
            if not self._pile:
                self._pile = self._rng.sample(self._cards, len(self._cards))
            card = self._pile.pop()
            if card not in avoid:
                return card


class World:
    """Writes one sentence after another and keeps the ledger true to them.

    What is written depends on kind and seed alone, so a longer text begins with the shorter one.
    """

    def __init__(self, kind: str, seed: int, data: Mapping[str, Any]) -> None:
        """Cast the people and lay out the things; writes nothing."""
        self.rng = random.Random(f"{kind}:{seed}")
        words, self.grammar = data["words"], data["kinds"][kind]
        self.facts: list[Fact] = []
        self.sentences = 0
        self._women = frozenset(words["women"])
        people = self.rng.sample(words["women"] + words["men"], len(words["women"]) + len(words["men"]))
        self.villagers: list[str] = people[:14]
        self._carriers: list[str] = people[14:]
        self._met: list[str] = []
        self.places: list[str] = self.rng.sample(words["places"], 10)
        self.goods: list[str] = self.rng.sample(words["goods"], len(words["goods"]))
        pools: dict[str, list[str]] = {
            "place": [f"{m} {t}" for m in words["materials"] for t in words["things_kept"]],
            "owner": [f"{m} {t}" for m in words["materials"] for t in words["things_owned"]],
            "post": list(words["posts"]),
            "home": self.villagers[:10],
            "promise": list(self.villagers),
            "mark": [f"{c} {b}" for c in words["colors"] for b in words["boxes"]],
            "chain": list(words["tokens_passed"]),
        }
        self._unused = {topic: self.rng.sample(pool, len(pool)) for topic, pool in pools.items()}
        self._values: dict[str, list[str]] = {
            "place": self.places,
            "owner": self.villagers,
            "post": self.villagers,
            "home": self.places,
            "promise": self.goods,
            "mark": words["marks"],
        }
        self._filler = Deck(self.rng, self.grammar["filler"])
        self._heading = Deck(self.rng, self.grammar["heading"])
        self._small = {key: Deck(self.rng, words[key]) for key in ("dishes", "beasts", "weather")}
        self._templates: dict[str, Deck] = {}
        self._due: list[tuple[int, Fact]] = []
        self._started, self._left, self._entry = 0, 0, 0

    def opening(self) -> list[str]:
        """Title and first paragraph."""
        slots = {f"pl{i}": place for i, place in enumerate(self.places)}
        slots |= {f"p{i}": person for i, person in enumerate(self.villagers)}
        slots |= {f"g{i}": goods for i, goods in enumerate(self.goods)}
        lines: list[str] = [self.rng.choice(self.grammar["title"])]
        lines += ["\n\n" * (i == 0) + " " * (i > 0) + s.format(**slots) for i, s in enumerate(self.grammar["opening"])]
        self.sentences = len(lines)
        return lines

    def sentence(self) -> str:
        """The next sentence, with the white space before it. Updates the ledger."""
        lead = " "
        if self._left == 0:
            self._left, self._entry = self.rng.randint(5, 8), self._entry + 1
            text, lead = self._fill(self._heading.draw()), "\n\n"
        else:
            text = self._event() or self._fill(self._filler.draw())
        self._left -= 1
        self.sentences += 1
        return lead + text

    def _event(self) -> str | None:
        step = self.sentences
        if len(self.facts) < len(_FIRST):
            return self._plant(_FIRST[len(self.facts)])
        if self._due and self._due[0][0] <= step:
            return self._hop(self._due.pop(0)[1])
        if self._started < len(_CHAIN_STARTS) and step >= _CHAIN_STARTS[self._started]:
            return self._start_chain()
        if self.rng.random() > (0.8 if step < 45 else 0.5):
            return None
        marks = sum(fact.topic == "mark" for fact in self.facts)
        if self.rng.random() < 0.25 and marks < 4 + step // 12 and self._unused["mark"]:
            return self._plant("mark")
        return self._ledger_event()

    def _ledger_event(self) -> str:
        known = [fact for fact in self.facts if FAMILY_OF[fact.topic] == "ledger"]
        open_topics = [topic for topic in _LEDGER if self._unused[topic]]
        if open_topics and self.rng.random() < max(0.3, 1 - len(known) / 14):
            fewest = min(sum(fact.topic == topic for fact in known) for topic in open_topics)
            fresh = [topic for topic in open_topics if sum(f.topic == topic for f in known) == fewest]
            return self._plant(self.rng.choice(fresh))
        fact = self.rng.choice(known)
        return self._say(fact, "remind", fact.history[-1][1]) if self.rng.random() < 0.3 else self._change(fact)

    def _plant(self, topic: str) -> str:
        fact = Fact(topic, self._unused[topic].pop())
        if topic == "promise":
            fact.other = self.rng.choice([person for person in self.villagers if person != fact.obj])
        self.facts.append(fact)
        return self._write(fact, "plant", self._new_value(fact))

    def _change(self, fact: Fact) -> str:
        return self._write(fact, "change", self._new_value(fact))

    def _new_value(self, fact: Fact) -> str:
        """A value the fact has not had lately; marks are never used twice while others are left."""
        taken = {value for _, value in fact.history[-3:]} | {fact.obj}
        if fact.topic == "mark":
            used = [f.history[-1][1] for f in self.facts if f.topic == "mark" and f.history]
            taken |= set(used[-(len(self._values["mark"]) - 1) :])
        return self.rng.choice([value for value in self._values[fact.topic] if value not in taken])

    def _start_chain(self) -> str | None:
        start = _CHAIN_STARTS[self._started]
        self._started += 1
        if len(self._carriers) < HOPS + 1:
            return None
        fact = Fact("chain", self._unused["chain"].pop())
        self.facts.append(fact)
        gap = max(5, start // 5)
        self._due += [(self.sentences + gap * (hop + 1) + self.rng.randint(-1, 1), fact) for hop in range(HOPS)]
        self._due.sort(key=lambda due: due[0])
        return self._write(fact, "plant", self._carrier())

    def _hop(self, fact: Fact) -> str:
        return self._write(fact, "change", self._carrier())

    def _carrier(self) -> str:
        self._met.append(self._carriers.pop())
        return self._met[-1]

    def _write(self, fact: Fact, act: str, value: str) -> str:
        text = self._say(fact, act, value)
        fact.history.append((self.sentences, value))
        return text

    def _say(self, fact: Fact, act: str, value: str) -> str:
        key = f"{fact.topic}.{act}"
        if key not in self._templates:
            self._templates[key] = Deck(self.rng, self.grammar["events"][fact.topic][act])
        old = fact.history[-1][1] if fact.history else ""
        return self._fill(self._templates[key].draw(), obj=fact.obj, b=fact.other, new=value, old=old)

    def _passer(self, busy: set[str]) -> str:
        passers: list[str] = [*self.villagers, *self._met]
        return self.rng.choice([person for person in passers if person not in busy])

    def _fill(self, template: str, **given: str) -> str:
        busy = set(given.values())
        a: str = self.rng.choice([person for person in self.villagers if person not in busy])
        # Carriers pass by too, or those whom a text seldom names would be known for the holders.
        busy |= {a}
        near: list[str] = [person for person in self._met[-6:] if person not in busy]
        p = self.rng.choice(near) if near and self.rng.random() < 0.6 else self._passer(busy)
        q = self._passer(busy | {p})
        slots = {"a": a, "p": p, "q": q, "pl": self.rng.choice(self.places), **given}
        slots |= {"n": str(self._entry), "date": f"{1 + self._entry * 3 % 28} {_MONTHS[self._entry * 3 // 28 % 12]}"}
        for slot, deck in (("dish", "dishes"), ("beast", "beasts"), ("wx", "weather")):
            if f"{{{slot}}}" in template:
                slots[slot] = self._small[deck].draw()
        for slot in ("a", "p", "q", "obj", "old", "new"):
            woman = slots.get(slot) in self._women
            slots |= dict(zip((f"{slot}_they", f"{slot}_their", f"{slot}_them"), _SHE if woman else _HE, strict=True))
        return str(template.format_map(slots))


_SHE, _HE = ("she", "her", "her"), ("he", "his", "him")
_MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
